"""Imports point only downwards, pyspark stays where it is allowed, and start-up is light."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "everfold"

LAYERS = (
    ("cli", "lsp", "notebook", "shell", "web", "testing"),
    ("table",),
    ("metrics",),
    ("inspection",),
    ("jobs",),
    ("spark",),
    ("completion",),
    ("connectors",),
    ("checkpoint",),
    ("memory",),
    ("operators",),
    ("compat",),
    ("sql",),
    ("aggregates",),
    ("state",),
    ("rendering",),
    ("plan",),
    ("udf",),
    ("error_codes",),
    ("limits",),
    ("error_transport",),
    ("engine_literals",),
    ("value_text",),
    ("far_times",),
    ("storage",),
    ("local_paths",),
    ("types", "errors", "secrets", "files", "activity"),
    ("similar_names", "hidden_values"),
)
"""Directories and modules of the package from top to bottom; those in one line may import each
other.
"""

MAY_IMPORT_PYSPARK = {"table", "inspection", "jobs", "spark", "connectors"}
SPARK_ENGINE_OF_CASES = SOURCE / "testing" / "spark_engine.py"
HEAVY = ("duckdb", "numpy", "pandas", "polars", "pyarrow", "pyspark")

RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
MODULES = sorted(SOURCE.rglob("*.py"))


def layer(module: Path) -> str:
    """Return the directory or module directly below the package."""
    return module.relative_to(SOURCE).with_suffix("").parts[0]


def list_imports(module: Path, *, top_level: bool = False) -> Iterator[tuple[int, str]]:
    """Yield each name that a file imports, with its module and the line.

    Imports for type checking count, too. `top_level` skips lazy imports.
    """
    tree = ast.parse(module.read_text(encoding="utf-8"))
    package = ["everfold", *module.relative_to(SOURCE).parent.parts]
    for node in _statements(tree) if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the statements that run when the module is imported."""
    for node in tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(module: Path) -> None:
    own = layer(module)
    if own in ("__init__", "__main__"):
        pytest.skip("the package itself hands names out lazily")
    assert own in RANK, f"`{own}` has no place in the layers yet"
    upwards = [
        f"{module.relative_to(SOURCE)}:{line} imports {name}"
        for line, name in list_imports(module)
        if name.startswith("everfold.")
        and (below := name.split(".")[1]) != own
        and below in RANK
        and (
            RANK[below] < RANK[own]
            or (RANK[below] == RANK[own] and own not in ("cli", "lsp", "shell", "web", "types", "errors"))
        )
    ]
    assert not upwards, "\n".join(upwards)


def find_module(name: str) -> Path | None:
    """Return the file of an imported name or of its module, None outside of the package."""
    if not name.startswith("everfold."):
        return None
    place = SOURCE.joinpath(*name.split(".")[1:])
    files = (
        place.with_suffix(".py"),
        place / "__init__.py",
        place.parent.with_suffix(".py"),
        place.parent / "__init__.py",
    )
    return next((file for file in files if file.is_file()), None)


def find_circles() -> set[frozenset[Path]]:
    """Return the groups of files that import each other, lazily or for type checking included.

    The package itself is left out: everything reads its version, and it hands names out lazily.
    """
    package = SOURCE / "__init__.py"
    graph = {
        module: {file for _, name in list_imports(module) if (file := find_module(name)) not in (None, module, package)}
        for module in MODULES
        if module != package
    }
    reached: dict[Path, set[Path]] = {}
    for module in graph:
        found: set[Path] = set()
        waiting = [module]
        while waiting:
            new = graph[waiting.pop()] - found
            found |= new
            waiting += new
        reached[module] = found
    return {
        frozenset(other for other in found if module in reached[other])
        for module, found in reached.items()
        if module in found
    }


def test_files_do_not_import_each_other() -> None:
    assert not [sorted(str(file.relative_to(SOURCE)) for file in circle) for circle in find_circles()]


ABOVE_STORAGE = ("checkpoint", "jobs", "inspection")
"""Packages that reach a job directory only through locations in a store."""
LOCAL_FILES = {
    "jobs/class_archive_warmup.py": "the rehearsal of a start has a temporary folder",
    "jobs/engine.py": "the job's log is a local file in every case",
    "jobs/progress_log.py": "the history is a local file in every case",
    "jobs/row_samples.py": "it is next to the history, a local file in every case",
    "jobs/ownership.py": "locks are those of the local file system",
    "jobs/shared_ownership.py": "it reads about this machine's processes from /proc",
}
PURE_OF_OS = {"PathLike", "cpu_count", "fspath", "getpid", "path"}
FILE_METHODS = {"hardlink_to", "mkdir", "rglob", "symlink_to", "touch", "unlink", "write_bytes", "write_text"}


def find_file_calls(module: Path) -> Iterator[tuple[int, str]]:
    """Yield each use of a local file in a module, with its line."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names if each.name in ("shutil", "tempfile"))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            yield node.lineno, "open"
        elif isinstance(node, ast.Attribute):
            of_os = isinstance(node.value, ast.Name) and node.value.id == "os" and node.attr not in PURE_OF_OS
            if of_os or node.attr in FILE_METHODS:
                yield node.lineno, node.attr


def test_job_directories_are_reached_through_a_store() -> None:
    found = {
        name: calls
        for module in MODULES
        if layer(module) in ABOVE_STORAGE and (calls := list(find_file_calls(module)))
        for name in [str(module.relative_to(SOURCE))]
    }
    assert found.keys() == LOCAL_FILES.keys(), {name: found[name] for name in found.keys() - LOCAL_FILES.keys()}
