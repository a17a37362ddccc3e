"""Evaluate the expressions that declare functions: constants, types, and calls of a few functions.

No code of the module runs. Calls are those of everfold's own functions, of a few of Python's that
wrap functions, and of stand-ins, which are interpreted. Errors that they raise are those that the
module would raise.
"""

from __future__ import annotations

import abc
import ast
import functools
import inspect
import operator
import types as python_types
import typing
from abc import ABC, ABCMeta
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import everfold.types
import everfold.udf
from everfold.types import DataType, RowField
from everfold.udf import datatypes, declared, interface
from everfold.udf.datatypes import DataTypes
from everfold.udf.function import SOURCE
from everfold.udf.reading.scopes import Imported, ModuleRef, Scope
from everfold.udf.reading.unknown import Unknown, UnknownError, require_known

_MAX_STEPS = 100_000
_MAX_DEPTH = 50
_MAX_NESTING = 64
"""Levels of a type or a list; as of parentheses in SQL."""
_MAX_SIZE = 10_000
"""Characters of a string, elements of a list, and parts of a type that are computed."""
LIVE: dict[str, dict[str, object]] = {
    "everfold.udf": {name: getattr(everfold.udf, name) for name in everfold.udf.__all__},
    "everfold.types": {name: value for name, value in vars(everfold.types).items() if not name.startswith("_")},
    "abc": {"ABC": ABC, "ABCMeta": ABCMeta, "abstractmethod": abc.abstractmethod},
    "functools": {name: getattr(functools, name) for name in ("partial", "lru_cache", "cache", "wraps")},
    "typing": {
        name: getattr(typing, name) for name in ("TYPE_CHECKING", "final", "override", "Any") if hasattr(typing, name)
    },
    "dataclasses": {"dataclass": dataclass},
    **{
        module: {name: value for name, value in vars(source).items() if getattr(value, "__module__", None) == owner}
        for module, source, owner in (
            ("everfold.udf.datatypes", datatypes, datatypes.__name__),
            ("everfold.udf.declared", declared, declared.__name__),
            ("everfold.udf.interface", interface, interface.__name__),
        )
    },
}
"""Objects that are used as they are, by module. Their calls run no code of users."""
_WRAPPING = (staticmethod, classmethod, property, functools.update_wrapper, *LIVE["functools"].values())
_CALLABLE = (*_WRAPPING, abc.abstractmethod, typing.final, getattr(typing, "override", typing.final), dataclass)
_OWN_MODULES = (declared.__name__, datatypes.__name__, functools.__name__, "dataclasses")
_PLAIN = (str, int, float, bool, type(None), list, tuple, dict, DataType, RowField)
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def is_stand_in(value: object) -> bool:
    """Return whether a function or class stands for one of a module that was read."""
    return isinstance(value, python_types.FunctionType | type) and SOURCE in vars(value)


class Expressions:
    """Evaluates expressions in scopes.

    `steps` bounds the time.
    """

    def __init__(self) -> None:
        self._steps = _MAX_STEPS
        self._depth = 0
        self._sizes: dict[int, tuple[object, int, int]] = {}
        """Parts and levels of values, by their ids. The values are kept, so that ids are unique."""

    # What the interpreter of statements and modules adds.

    def find_attribute(self, module: str, name: str, unknown: Unknown) -> object:
        """Return an attribute of a module."""
        raise NotImplementedError

    def make_lambda(self, node: ast.Lambda, scope: Scope) -> Callable[..., Any]:
        """Return the stand-in of a lambda."""
        raise NotImplementedError

    def evaluate(self, node: ast.expr, scope: Scope) -> object:
        """Return the value of an expression, an Unknown if only running the module would show it.

        Raises what the module would raise.
        """
        self._steps -= 1
        self._depth += 1
        try:
            if self._steps < 0 or self._depth > _MAX_DEPTH:
                return scope.module.find_unknown(node)
            return self._evaluate(node, scope)
        except UnknownError as error:
            return error.value
        finally:
            self._depth -= 1

    def require(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression. Raises UnknownError."""
        return require_known(self.evaluate(node, scope))

    def _evaluate(self, node: ast.expr, scope: Scope) -> object:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._find_name(node, scope)
            case ast.Attribute():
                return self._find_attribute(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.List() | ast.Tuple():
                values = self._elements(node.elts, scope)
                container = values if isinstance(node, ast.List) else tuple(values)
                return self._limit_values(container, tuple(values), scope.module.find_unknown(node))
            case ast.Dict():
                entries = self._entries(node, scope)
                return self._limit_values(entries, tuple(entries.values()), scope.module.find_unknown(node))
            case ast.JoinedStr():
                return self._limit("".join(self._format(part, scope) for part in node.values), node, scope)
            case ast.BinOp(op=ast.Add()):
                return self._add(node, scope)
            case ast.UnaryOp(op=ast.USub()) if isinstance(value := self.require(node.operand, scope), int | float):
                return -value
            case ast.UnaryOp(op=ast.Not()) if isinstance(value := self.require(node.operand, scope), bool):
                return not value
            case ast.IfExp() if isinstance(test := self.require(node.test, scope), bool):
                return self.require(node.body if test else node.orelse, scope)
            case ast.Compare(ops=[op], comparators=[right]) if type(op) in _COMPARE:
                compared = self.require(node.left, scope), self.require(right, scope)
                if all(isinstance(value, str | int | tuple) for value in compared):
                    return _COMPARE[type(op)](*compared)
            case ast.Subscript():
                values, key = self.require(node.value, scope), self.require(node.slice, scope)
                if type(values) in (list, tuple, dict) and isinstance(key, str | int):
                    return values[key]
            case ast.Lambda():
                return self.make_lambda(node, scope)
            case _:
                pass
        return scope.module.find_unknown(node)

    # --- names ------------------------------------------------------------------------------------

    def _find_name(self, node: ast.Name, scope: Scope) -> object:
        try:
            value = scope.find(node.id)
        except KeyError:
            return scope.module.find_unknown(node)
        if isinstance(value, Imported):
            return self.find_attribute(value.module, value.name, scope.module.find_unknown(node))
        return value

    def _find_attribute(self, node: ast.Attribute, scope: Scope) -> object:
        owner, unknown = self.require(node.value, scope), scope.module.find_unknown(node)
        match owner:
            case ModuleRef():
                return self.find_attribute(owner.name, node.attr, unknown)
            case type() if owner is DataTypes or (owner.__module__ == "builtins" and not is_stand_in(owner)):
                return getattr(owner, node.attr)
            case DataType() if inspect.getattr_static(owner, node.attr, unknown) is unknown:
                raise AttributeError(f"'{type(owner).__name__}' object has no attribute '{node.attr}'")
            case type() if is_stand_in(owner):
                return _find_member(owner, None, node.attr, scope, unknown)
            case _ if is_stand_in(type(owner)):
                return _find_member(type(owner), owner, node.attr, scope, unknown)
            case _:
                return unknown

    # --- calls ------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, scope: Scope) -> object:
        unknown = scope.module.find_unknown(node)
        function = self.require(node.func, scope)
        positional: list[object] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                positional += self._unpack(argument, scope)
            else:
                positional.append(self.evaluate(argument, scope))
        named: dict[str, object] = {}
        for keyword in node.keywords:
            if keyword.arg is not None:
                named[keyword.arg] = self.evaluate(keyword.value, scope)
            else:
                named.update(self._require_dict(keyword.value, scope))
        return self.call(function, positional, named, unknown)

    def call(self, function: Any, args: list[object], named: dict[str, object], unknown: Unknown) -> object:
        """Return the value of a call. Raises UnknownError if the function must not run."""
        is_container = function is list or function is tuple or function is dict
        if is_container and len(args) <= 1 and (function is dict or not named):
            if all(type(value) in (list, tuple, dict) for value in args):
                return self._limit_values(function(*args, **named), (*args, *named.values()), unknown)
            unknown.fail()
        if not may_call(function):
            unknown.fail()
        if not _takes_unknown(function, args):
            if getattr(function, "__module__", "") == declared.__name__ and isinstance(named.get("name"), Unknown):
                named.pop("name")
            for value in (*args, *named.values()):
                require_known(value)
        return self._limit_values(function(*args, **named), (*args, *named.values()), unknown)

    # --- values -----------------------------------------------------------------------------------

    def _elements(self, nodes: list[ast.expr], scope: Scope) -> list[Any]:
        values: list[Any] = []
        for node in nodes:
            values += self._unpack(node, scope) if isinstance(node, ast.Starred) else [self.require(node, scope)]
        return values

    def _unpack(self, node: ast.Starred, scope: Scope) -> list[Any]:
        value = self.require(node.value, scope)
        if type(value) not in (list, tuple):
            scope.module.find_unknown(node).fail()
        return list(value)

    def _entries(self, node: ast.Dict, scope: Scope) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                entries.update(self._require_dict(value, scope))
            else:
                entries[self.require(key, scope)] = self.require(value, scope)
        return entries

    def _require_dict(self, node: ast.expr, scope: Scope) -> dict[Any, Any]:
        value = self.require(node, scope)
        if type(value) is not dict:
            scope.module.find_unknown(node).fail()
        return dict(value)

    def _format(self, node: ast.expr, scope: Scope) -> str:
        if isinstance(node, ast.FormattedValue) and node.conversion == -1 and node.format_spec is None:
            node = node.value
        value = self.require(node, scope)
        if type(value) not in (str, int):
            scope.module.find_unknown(node).fail()
        return str(value)

    def _add(self, node: ast.BinOp, scope: Scope) -> object:
        left, right = self.require(node.left, scope), self.require(node.right, scope)
        if type(left) is not type(right) or type(left) not in (str, list, tuple, int):
            scope.module.find_unknown(node).fail()
        return self._limit(left + right, node, scope)

    def _limit(self, value: Any, node: ast.expr, scope: Scope) -> Any:
        if value > 10**_MAX_DEPTH if isinstance(value, int) else len(value) > _MAX_SIZE:
            scope.module.find_unknown(node).fail()
        return value

    def _limit_values(self, value: object, parts: tuple[object, ...], unknown: Unknown) -> object:
        """Return a value that consists of other values, unless it becomes too large."""
        sizes = [self._sizes.get(id(part), (part, 1, 1)) for part in parts]
        size, levels = 1 + sum(each[1] for each in sizes), 1 + max((each[2] for each in sizes), default=0)
        if size > _MAX_SIZE or levels > _MAX_NESTING:
            unknown.fail()
        self._sizes[id(value)] = (value, size, levels)
        return value


def may_call(function: object) -> bool:
    """Return whether a call of a function runs no code of users."""
    if isinstance(function, python_types.MethodType):
        return is_stand_in(function.__func__)
    if isinstance(function, functools.partial):
        return may_call(function.func)
    if is_stand_in(function) or any(function is allowed for allowed in _CALLABLE):
        return True
    if isinstance(function, type):
        return issubclass(function, DataType | RowField)
    return isinstance(function, python_types.FunctionType) and function.__module__ in _OWN_MODULES


def _takes_unknown(function: object, args: Sequence[object] = ()) -> bool:
    """Return whether arguments that are not known may be passed: only their number matters."""
    if is_stand_in(function) or isinstance(function, python_types.MethodType):
        return True
    if isinstance(function, functools.partial):
        return _takes_unknown(function.func)
    return function is functools.partial and bool(args) and _takes_unknown(args[0])


def _find_member(owner: type, instance: object, name: str, scope: Scope, unknown: Unknown) -> object:
    """Return an attribute of a class that was read, or of its instance."""
    if name in scope.module.stored:
        unknown.fail()
    if instance is not None and name in getattr(instance, "__dict__", {}):
        value = instance.__dict__[name]
        return value if isinstance(value, _PLAIN) else unknown
    for base in owner.__mro__:
        if name not in vars(base):
            continue
        value = vars(base)[name]
        if not is_stand_in(base):
            return unknown
        if isinstance(value, staticmethod):
            return value.__func__
        if isinstance(value, classmethod):
            return python_types.MethodType(value.__func__, owner)
        if is_stand_in(value):
            return value if instance is None else python_types.MethodType(value, instance)
        return value if isinstance(value, _PLAIN) else unknown
    return unknown
