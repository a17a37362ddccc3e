"""The registry of error codes has exactly the codes that the source code uses, and readable entries."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from everfold import errors
from everfold.error_codes import TOPICS, ErrorCode, Family, all_codes, find_code
from everfold.errors import EverfoldError
from everfold.sql.dialects.token_stream import MAX_DEPTH, MAX_NESTING

SOURCE = Path(__file__).parents[2] / "src" / "everfold"
CODE = re.compile(r"[a-z]+(-[a-z]+)*")
RAISED = re.compile(r"everfold\[(?P<raised>[a-z-]+)\]: |\{fail: (?P<fail>[a-z-]+): ")
"""A code in SQL or in the message of an exception that crosses Spark."""
DOCUMENTED = re.compile(r"(?:Error|UnsupportedFeature)\s((?:`[a-z]+(?:-[a-z]+)+`(?:,?\s(?:and\s|or\s)?)?)+)")
"""The codes after the name of an error class in a docstring."""

MARKERS = {"task-failed", "write-failed"}
"""Codes of reports that carry another code through Spark. Users never see them."""
COMPUTED = {
    ("connectors/connector_errors.py", "code"): {"disk-full", "file-system-error", "no-permission", "not-a-folder"},
    ("connectors/maven_jars.py", "self.code"): {"kafka-jars", "delta-jars"},
    ("sql/binder/expressions.py", "code"): {"aggregate-in-where", "misplaced-aggregate"},
    ("sql/binder/relations.py", "code"): {"ambiguous-column", "unknown-column"},
    ("sql/binder/show.py", "f'not-a-{kind.lower()}'"): {"not-a-table", "not-a-view"},
    ("sql/catalog.py", "f'not-a-{kind}'"): {"not-a-table", "not-a-view"},
    ("sql/catalog.py", "f'unknown-{kind}'"): {"unknown-table", "unknown-view"},
    ("sql/functions/writer.py", "code"): set[str](),
    ("memory/duck.py", "code"): set[str](),
}
"""Codes that are computed from other values, by file and expression. Empty: a transported code."""
IN_JAVA = {"regex-too-costly"}
"""Codes of errors that functions in Java raise."""
TWO_FAMILIES = {"missing-column"}
"""Codes of both a script (`INSERT`) and an external resource (a Parquet file)."""

CLASSES = {
    name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, EverfoldError)
}
RAISED_BY = {
    "error": "SqlError",
    "unsupported": "UnsupportedFeature",
    "unsupported_error": "UnsupportedFeature",
    "_refusal": "StateError",
    "Fault": "ConnectorError",
    "fail": "ConnectorError",
    "fail_with_value": "ConnectorError",
}
"""The error class of each function that creates an error."""


@dataclass(frozen=True)
class Use:
    """A code in the source, with its location and, if known, the class of its error."""

    code: str
    file: str
    line: int
    error: str | None = None


def parse_source() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(SOURCE.rglob("*.py")):
        name = str(file.relative_to(SOURCE))
        if not name.startswith("error_codes/"):
            yield name, ast.parse(file.read_text(encoding="utf-8"))


def find_code_parameters(trees: dict[str, ast.Module]) -> dict[str, int]:
    """Return the functions and dataclasses that take an error code, with its position."""
    found = {"fail": 0}
    for tree in trees.values():
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.FunctionDef):
                names = [arg.arg for arg in node.args.args if arg.arg not in ("self", "cls")]
            elif isinstance(node, ast.ClassDef):
                fields = (each for each in node.body if isinstance(each, ast.AnnAssign))
                names = [each.target.id for each in fields if isinstance(each.target, ast.Name)]
            if "code" in names:
                found[node.name] = names.index("code")  # type: ignore[attr-defined]
    return {name: at for name, at in found.items() if name not in ("rule", "Rule", "Finding", "ExpectedError")}


class Scan:
    """All uses of error codes in the source."""

    def __init__(self) -> None:
        self.trees = dict(parse_source())
        self.parameters = find_code_parameters(self.trees)
        self.uses: list[Use] = []
        self.unresolved: list[str] = []
        for file, tree in self.trees.items():
            constants = {
                node.targets[0].id: node.value
                for node in tree.body
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            }
            wrapped = {
                id(arg): node.func.id
                for node in ast.walk(tree)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES
                for arg in node.args
            }
            passing = {
                id(inner)
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and any(arg.arg == "code" for arg in node.args.args)
                for inner in ast.walk(node)
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for match in RAISED.finditer(node.value):
                        self._add(match["raised"] or match["fail"], file, node, "ConnectorError")
                elif isinstance(node, ast.Dict):
                    for key, value in zip(node.keys, node.values, strict=True):
                        if isinstance(key, ast.Constant) and key.value == "code" and isinstance(value, ast.Constant):
                            self._add(str(value.value), file, value, "ConnectorError")
                elif isinstance(node, ast.Call):
                    self._scan_call(file, node, constants, wrapped.get(id(node)), passes=id(node) in passing)

    def _scan_call(
        self, file: str, node: ast.Call, constants: dict[str, ast.expr], wrapper: str | None, *, passes: bool
    ) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        error = RAISED_BY.get(name, wrapper)
        if name == "of":
            error = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            if error not in CLASSES:
                return
        if name not in self.parameters:
            return
        named = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
        for arg in named or node.args[self.parameters[name] :][:1]:
            self._scan_argument(file, arg, constants, error, words=name == "fail", passes=passes)

    def _scan_argument(
        self, file: str, arg: ast.expr, constants: dict[str, ast.expr], error: str | None, *, words: bool, passes: bool
    ) -> None:
        if isinstance(arg, ast.Name) and arg.id in constants:
            arg = constants[arg.id]
        if words and isinstance(arg, ast.JoinedStr):
            arg = arg.values[0]
        if isinstance(arg, ast.IfExp):
            for each in (arg.body, arg.orelse):
                self._scan_argument(file, each, constants, error, words=words, passes=passes)
        elif isinstance(arg, ast.Constant) and isinstance(arg.value, str):
            self._add(arg.value.partition(": ")[0] if words else arg.value, file, arg, error)
        elif (file, ast.unparse(arg)) in COMPUTED:
            for code in COMPUTED[file, ast.unparse(arg)]:
                self._add(code, file, arg, None)
        elif isinstance(arg, ast.JoinedStr) or (isinstance(arg, ast.Name) and arg.id == "code" and not passes):
            self.unresolved.append(f"{file}:{arg.lineno}: {ast.unparse(arg)}")

    def _add(self, code: str, file: str, node: ast.expr, error: str | None) -> None:
        if code not in MARKERS:
            self.uses.append(Use(code, file, node.lineno, error))


@pytest.fixture(scope="module")
def scan() -> Scan:
    return Scan()


def test_the_scan_resolves_every_code(scan: Scan) -> None:
    assert scan.unresolved == [], "list the codes in COMPUTED"
    assert [use for use in scan.uses if CODE.fullmatch(use.code) is None] == []
    assert len(scan.uses) > 400


def test_every_code_in_use_is_registered(scan: Scan) -> None:
    missing = sorted({f"{use.code} ({use.file}:{use.line})" for use in scan.uses if find_code(use.code) is None})
    assert missing == [], "add an entry to src/everfold/error_codes"


def test_every_registered_code_is_in_use(scan: Scan) -> None:
    assert sorted({entry.code for entry in all_codes()} - {use.code for use in scan.uses} - IN_JAVA) == []


def test_the_exit_code_is_that_of_the_error(scan: Scan) -> None:
    wrong = defaultdict(set)
    for use in scan.uses:
        entry = find_code(use.code)
        if use.error is not None and entry is not None and CLASSES[use.error].exit_code != entry.family.exit_code:
            wrong[use.code].add(f"{use.error} in {use.file}:{use.line}")
    assert {code: uses for code, uses in wrong.items() if code not in TWO_FAMILIES} == {}


def test_docstrings_name_registered_codes(scan: Scan) -> None:
    stale = [
        f"{file}: {code}"
        for file, tree in scan.trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
        for listed in DOCUMENTED.findall(ast.get_docstring(node) or "")
        for code in re.findall(r"`([a-z-]+)`", listed)
        if find_code(code) is None
    ]
    assert stale == []


def test_codes_are_unique() -> None:
    counts = Counter(entry.code for entry in all_codes())
    assert [code for code, count in counts.items() if count > 1] == []
    assert sum(len(entries) for _, entries in TOPICS) == len(all_codes())


@pytest.mark.parametrize("entry", all_codes(), ids=lambda entry: entry.code)
def test_an_entry_is_short_and_complete(entry: ErrorCode) -> None:
    assert CODE.fullmatch(entry.code)
    assert re.fullmatch(r"(?:[A-Z`]|everfold )[^\n]{15,110}\.", entry.meaning), "one sentence"
    assert ". " not in entry.meaning, "one sentence"
    assert re.fullmatch(r"(?:[A-Z`]|everfold )[^\n]{25,420}\.", entry.why)
    assert re.fullmatch(r"[a-z`][^\n]{10,330}\.", entry.fix), "a clause that follows “To resolve this, ”"
    for text in (entry.meaning, entry.why, entry.fix):
        assert text == " ".join(text.split())
        assert text.count("`") % 2 == 0
    assert max(map(len, entry.page.splitlines())) <= 100
    assert entry.page.count("\n\n") == 2


def test_entries_name_the_current_limits() -> None:
    entry = find_code("too-deep")
    assert entry is not None
    assert str(MAX_DEPTH) in entry.why
    assert str(MAX_NESTING) in entry.why


def test_families_say_who_acts() -> None:
    assert all(" for its " in family.meaning or " for the " in family.meaning for family in Family)
    assert len({family.meaning for family in Family}) == len(Family)
