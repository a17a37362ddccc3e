"""Read modules, and what they import, without importing them."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Sequence
from importlib.util import decode_source
from pathlib import Path

from everfold.udf.declared import udaf
from everfold.udf.interface import AggregateFunction
from everfold.udf.reading.expressions import LIVE
from everfold.udf.reading.files import find_module_file, read_source
from everfold.udf.reading.scopes import Imported, Module, ModuleRef, Scope
from everfold.udf.reading.statements import Statements
from everfold.udf.reading.unknown import Unknown, UnknownError, find_unknown

_MAX_BYTES = 1_000_000
_MAX_TOTAL_BYTES = 3_000_000
"""Bytes of all modules that are read for a script, to bound the time."""
_MAX_IMPORTS = 50
"""Modules through which a name is followed."""
_PUBLIC_LIVE = frozenset({"version_info", "maxsize", "platform", "byteorder"})
"""Attributes of `sys` that are the same wherever the module runs."""


class NoModuleError(Exception):
    """There is no module of this name (`args[0]`)."""


class ModuleFailure(Exception):
    """The import of a module would fail.

    reason: the exception, as Python prints it. notes: where, outermost first.
    """

    def __init__(self, reason: str, notes: tuple[str, ...]) -> None:
        super().__init__(reason)
        self.reason, self.notes = reason, notes


class FunctionReader(Statements):
    """Reads functions of modules that are searched for in a folder first, then as Python does."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self._modules: dict[str, Module | None] = {}
        self._bytes_left = _MAX_TOTAL_BYTES

    def read(self, module: str, name: str) -> object:
        """Return the stand-in of the object that a module has under a name.

        Raises AttributeError if there is none, UnknownError if only running the module would show
        it, NoModuleError, ModuleFailure.
        """
        unknown = Unknown(f"the module `{module}`")
        parts = module.split(".")
        for number in range(1, len(parts) + 1):  # Python imports the packages of a module, too.
            parent = ".".join(parts[:number])
            if parent not in LIVE and find_module_file(parent, self._path) is None:
                raise NoModuleError(parent)
            self._load(parent)
        value = self._find_in(module, name, unknown)
        if (missing := find_unknown(value)) is not None:
            missing.fail()
        if isinstance(value, ModuleRef):
            return types.ModuleType(value.name)
        if isinstance(value, AggregateFunction) or (isinstance(value, type) and issubclass(value, AggregateFunction)):
            try:
                return udaf(value)
            except UnknownError:
                raise
            except Exception:
                return value  # The registration fails with the same exception.
        return value

    def list_names(self, module: str) -> list[str]:
        """Return the public names of a module."""
        source = self._modules.get(module)
        return [] if source is None else [name for name in source.names if not name.startswith("_")]

    def find_file(self, module: str) -> Path | None:
        """Return the file of a module that was read."""
        source = self._modules.get(module)
        return None if source is None else source.file

    @property
    def _path(self) -> Sequence[str]:
        return (str(self.folder), *sys.path)

    # --- modules ----------------------------------------------------------------------------------

    def _load(self, name: str) -> Module | None:
        """Return a module, None if its source cannot be read. Raises ModuleFailure."""
        if name in LIVE or name in self._modules:
            return self._modules.get(name)
        self._modules[name] = None
        found = find_module_file(name, self._path)
        if found is None or found.file is None:
            return None
        is_own = found.file.is_relative_to(self.folder) and "site-packages" not in found.file.parts
        try:
            source = read_source(found.file, min(_MAX_BYTES, self._bytes_left))
            if source is None:
                return None
            self._bytes_left -= len(source)
            text = decode_source(source)
            tree = ast.parse(text)
        except SyntaxError as error:
            error.filename = found.file.name
            raise ModuleFailure(f"{type(error).__name__}: {error}", (f"{found.file}:{error.lineno}",)) from None
        except (ValueError, RecursionError, MemoryError, OSError) as error:
            raise ModuleFailure(f"{type(error).__name__}: {error}", ()) from None
        lines = text.splitlines(keepends=True)
        module = Module(name, found.file, is_own, found.path is not None, lines, tree)
        self._modules[name] = module
        self._run_module(module)
        return module

    def _run_module(self, module: Module) -> None:
        scope = Scope(module, module.names)
        for node in module.tree.body:
            try:
                self.run(node, scope)
            except UnknownError:
                self._forget(node, scope)
            except ModuleFailure as failure:
                if module.is_own:
                    raise ModuleFailure(failure.reason, (_frame(module, node), *failure.notes)) from None
                self._forget(node, scope)
            except (Exception, SystemExit) as error:
                if module.is_own:
                    reason = " ".join(str(error).split())
                    raise ModuleFailure(f"{type(error).__name__}: {reason}", (_frame(module, node),)) from None
                self._forget(node, scope)
        module.is_complete = True

    def find_attribute(self, module: str, name: str, unknown: Unknown) -> object:
        try:
            value = self._find_in(module, name, unknown)
        except (AttributeError, ModuleFailure):
            return unknown
        source = self._modules.get(module)
        is_own = source is not None and source.is_own
        return value if is_own or not isinstance(value, Unknown) else unknown

    def _find_in(self, name: str, attribute: str, unknown: Unknown) -> object:
        """Return an attribute of a module. Raises AttributeError, ModuleFailure."""
        if name in LIVE:
            return LIVE[name].get(attribute, unknown)
        top = name.partition(".")[0]
        if _is_compiled_library(name):
            value = getattr(sys.modules[name], attribute, unknown)
            is_plain = isinstance(value, types.BuiltinFunctionType) or (name == "sys" and attribute in _PUBLIC_LIVE)
            return value if is_plain else unknown
        module = self._load(name)
        found = find_module_file(f"{name}.{attribute}", self._path)
        if module is None:
            return unknown if found is None else ModuleRef(f"{name}.{attribute}")
        if attribute in module.names:
            value = Scope(module, module.names).find(attribute)
            if value == Imported(name, attribute) and found is not None:  # `from . import submodule`
                return ModuleRef(f"{name}.{attribute}")
            return self._follow(value, unknown) if isinstance(value, Imported) else value
        if found is not None:
            return ModuleRef(f"{name}.{attribute}")
        if module.has_more_names or not module.is_complete or not module.is_own or top in LIVE:
            return unknown
        raise AttributeError(f"module '{name}' has no attribute '{attribute}'")

    def _follow(self, value: Imported, unknown: Unknown) -> object:
        """Return what an imported name refers to, over several modules."""
        self._depth += 1
        try:
            return unknown if self._depth > _MAX_IMPORTS else self._find_in(value.module, value.name, unknown)
        finally:
            self._depth -= 1

    # --- imports ----------------------------------------------------------------------------------

    def can_import(self, node: ast.stmt, scope: Scope) -> bool:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return True
            case ast.Import() | ast.ImportFrom():
                return all(self._exists(name) for name in _imported_modules(node, scope.module))
            case _:
                return False

    def bind_import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        module = scope.module
        for name in _imported_modules(node, module):
            if module.is_own and not self._exists(name):
                missing = next(part for part in _prefixes(name) if not self._exists(part))
                raise ModuleNotFoundError(f"No module named '{missing}'")
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._load_own(alias.name, module)
                scope.names[alias.asname or alias.name.partition(".")[0]] = ModuleRef(
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
            return
        (name,) = _imported_modules(node, module)
        loaded = self._load_own(name, module)
        for alias in node.names:
            if alias.name == "*":
                self._bind_all(name, scope)
                continue
            scope.names[alias.asname or alias.name] = Imported(name, alias.name)
            if loaded is not None and loaded.is_own and loaded.is_complete:
                try:
                    self._find_in(name, alias.name, Unknown(""))
                except AttributeError:
                    raise ImportError(f"cannot import name '{alias.name}' from '{name}' ({loaded.file})") from None

    def _load_own(self, name: str, importer: Module) -> Module | None:
        """Load an imported module if it is in the script's folder; its import may fail.

        Raises ModuleFailure.
        """
        if not importer.is_own or name in LIVE or name.partition(".")[0] in sys.stdlib_module_names:
            return None
        for part in _prefixes(name):
            found = find_module_file(part, (str(self.folder),))
            if found is not None and found.file is not None:
                self._load(part)
        return self._modules.get(name)

    def _bind_all(self, name: str, scope: Scope) -> None:
        try:
            module = None if name in LIVE else self._load(name)
        except ModuleFailure:
            module = None
        if name in LIVE:
            names = list(LIVE[name])
        elif module is None or module.has_more_names or not module.is_complete:
            scope.module.has_more_names = True
            return
        else:
            exported = module.names.get("__all__")
            names = [public for public in module.names if not public.startswith("_")]
            if isinstance(exported, list | tuple):
                names = [public for public in exported if isinstance(public, str)]
            elif exported is not None:
                scope.module.has_more_names = True
        for public in names:
            scope.names[public] = Imported(name, public)

    def _exists(self, name: str) -> bool:
        top = name.partition(".")[0]
        return name in LIVE or top in sys.stdlib_module_names or find_module_file(name, self._path) is not None


def _is_compiled_library(name: str) -> bool:
    """Return whether a module of Python's library is loaded whose functions have no source."""
    if name not in sys.stdlib_module_names or name not in sys.modules:
        return False
    found = find_module_file(name, sys.path)
    return found is not None and found.is_compiled


def _imported_modules(node: ast.Import | ast.ImportFrom, importer: Module) -> list[str]:
    """Return the full names of the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not node.level:
        return [node.module or ""]
    base = importer.package.split(".")
    base = base[: len(base) - node.level + 1]
    return [".".join([*base, *([node.module] if node.module else [])])]


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:number]) for number in range(1, len(parts) + 1)]


def _frame(module: Module, node: ast.stmt) -> str:
    line = module.lines[node.lineno - 1].strip() if node.lineno <= len(module.lines) else ""
    return f"{module.file}:{node.lineno} in <module>: {line}"
