"""The names of a module, a class body or a function while its source is interpreted."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from everfold.udf.reading.unknown import Unknown

_START = re.compile(r"^(\s*def\s)|(\s*async\s+def\s)|(.*(?<!\w)lambda(:|\s))|^(\s*@)")
"""The line that `inspect.getsource` takes for the first line of a function, before Python 3.13."""
_MAKES_NAMES = frozenset({"exec", "globals", "vars", "locals"})


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """A module as a value."""

    name: str


@dataclass(frozen=True, slots=True)
class Imported:
    """A name that another module defines."""

    module: str
    name: str


@dataclass(slots=True)
class Module:
    """The source of a module, and the values of its names.

    is_own: whether it is one of the script's folder; what other modules import is not checked.
    has_more_names: whether it may have names that the source does not show. rebound: names that
    functions may change. stored: attributes that are assigned anywhere. classes: how often a class
    of that name is defined.
    """

    name: str
    file: Path
    is_own: bool
    is_package: bool
    lines: list[str]
    tree: ast.Module
    names: dict[str, object] = field(default_factory=dict)
    is_complete: bool = False
    has_more_names: bool = False
    rebound: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    classes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            match node:
                case ast.Global(names=names):
                    self.rebound.update(names)
                case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                    self.stored.add(name)
                case ast.ClassDef(name=name):
                    self.classes[name] += 1
                case ast.Call(func=ast.Name(id=name)) if name in _MAKES_NAMES:
                    self.has_more_names = True
        self.has_more_names |= any(
            isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in self.tree.body
        )

    @property
    def package(self) -> str:
        """The package from which its relative imports start."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    def find_unknown(self, node: ast.AST) -> Unknown:
        """Return the unknown value of a node."""
        return Unknown(f"{self.file.name}:{getattr(node, 'lineno', 1)}")

    def read_code(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> str:
        """Return the source code of a function, as `inspect.getsource` does."""
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]) - 1
        while sys.version_info < (3, 13) and first > 0 and not _START.match(self.lines[first]):
            first -= 1
        return "".join(inspect.getblock(self.lines[first:]))

    def read_class(self, node: ast.ClassDef) -> str | None:
        """Return the source code of a class as `inspect.getsource` does; None if ambiguous."""
        if self.classes[node.name] > 1:
            return None
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
        return "".join(inspect.getblock(self.lines[first:]))


@dataclass(slots=True)
class Scope:
    """The names of a module, a class body or a call of a function."""

    module: Module
    names: dict[str, object]
    parent: Scope | None = None
    is_class: bool = False
    prefix: str = ""
    """What precedes the qualified names of functions and classes."""

    def find(self, name: str) -> object:
        """Return the value of a name. Raises KeyError if no scope has it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or not scope.is_class):
                value = scope.names[name]
                is_rebound = scope.parent is None and name in self.module.rebound
                return Unknown(self.module.file.name) if is_rebound else value
            scope = scope.parent
        if name == "__name__":
            return self.module.name
        if not self.module.has_more_names and name in vars(builtins):
            return vars(builtins)[name]
        raise KeyError(name)


def list_bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds or changes, also those inside of it."""
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                if root := find_root(part):
                    yield root
            case _:
                pass


def find_root(node: ast.AST) -> str | None:
    """Return the name with which a chain of attributes and subscripts begins."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
