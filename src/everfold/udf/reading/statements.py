"""Interpret the statements of modules, class bodies and functions.

Names that are bound under a condition, in a loop or by code that is not interpreted are Unknown.
"""

from __future__ import annotations

import abc
import ast
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

from everfold.udf.function import SOURCE
from everfold.udf.reading.expressions import Expressions, is_stand_in
from everfold.udf.reading.scopes import Imported, ModuleRef, Scope, find_root, list_bound_names
from everfold.udf.reading.unknown import Unknown, UnknownError, make_unknown_callable, require_known

_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_OPTIONAL = object()
"""Stands for a default value that is not known."""
_CLASS_NAMES = frozenset({"__module__", "__qualname__", "__dict__", "__weakref__", "__doc__"})


class Return(Exception):
    """The end of a call, with its value."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class Statements(Expressions):
    """Runs statements in scopes."""

    # What the reader of modules adds.

    def bind_import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        """Bind the names of an import. Raises what the import would raise."""
        raise NotImplementedError

    def can_import(self, node: ast.stmt, scope: Scope) -> bool:
        """Return whether a statement is an import, or a docstring, that succeeds."""
        raise NotImplementedError

    def run_body(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        """Run statements.

        Raises what the module would raise; Return at the end of a call.
        """
        for statement in body:
            self.run(statement, scope)

    def run(self, node: ast.stmt, scope: Scope) -> None:
        """Run a statement, see `run_body`."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                function = self._make_function(node, scope)
                scope.names[node.name] = self._decorate(function, node.decorator_list, scope, node.name)
            case ast.ClassDef():
                made = self._make_class(node, scope)
                scope.names[node.name] = self._decorate(made, node.decorator_list, scope, None)
            case ast.Assign(targets=targets, value=value):
                self._forget_changed(node, scope)
                result = self.evaluate(value, scope)
                for target in targets:
                    self._bind(target, result, scope)
            case ast.AnnAssign(target=target, value=None):
                self._annotate(target, node.annotation, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._annotate(target, node.annotation, scope)
                self._bind(target, self.evaluate(value, scope), scope)
            case ast.Import() | ast.ImportFrom():
                self.bind_import(node, scope)
            case ast.If():
                self._run_if(node, scope)
            case ast.Try(body=body) if all(self.can_import(part, scope) for part in body):
                self.run_body((*body, *node.orelse, *node.finalbody), scope)
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Global():
                pass
            case ast.Delete(targets=targets) if all(isinstance(target, ast.Name) for target in targets):
                for name in list_bound_names(node):
                    scope.names.pop(name, None)
            case ast.Expr():
                self._forget_changed(node, scope)
            case ast.Return(value=value) if scope.parent is not None and not scope.is_class:
                raise Return(None if value is None else self.evaluate(value, scope))
            case ast.Raise():
                self._raise(node, scope)
            case _ if scope.parent is not None and not scope.is_class:
                scope.module.find_unknown(node).fail()  # a part of a call that is not interpreted
            case _:
                self._forget(node, scope)

    # --- names ------------------------------------------------------------------------------------

    def _bind(self, target: ast.expr, value: object, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.names[name] = value
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if isinstance(
                scope.names.get(name), types.FunctionType
            ) and not attribute.startswith("__"):
                pass
            case ast.Tuple(elts=targets) | ast.List(elts=targets) if (
                isinstance(value, tuple | list)
                and len(value) == len(targets)
                and not any(isinstance(each, ast.Starred) for each in targets)
            ):
                for part, element in zip(targets, value, strict=True):
                    self._bind(part, element, scope)
            case _:
                self._forget(target, scope)

    def _annotate(self, target: ast.expr, annotation: ast.expr, scope: Scope) -> None:
        if scope.is_class and isinstance(target, ast.Name) and "ClassVar" not in ast.unparse(annotation):
            annotations = scope.names.setdefault("__annotations__", {})
            assert isinstance(annotations, dict)
            annotations[target.id] = object

    def _forget(self, node: ast.AST, scope: Scope) -> None:
        """Make all names unknown that a statement may bind or change."""
        if scope.is_class:
            scope.module.find_unknown(node).fail()
        for name in list_bound_names(node):
            scope.names[name] = scope.module.find_unknown(node)
        if any(isinstance(part, ast.alias) and part.name == "*" for part in ast.walk(node)):
            scope.module.has_more_names = True

    def _forget_changed(self, node: ast.stmt, scope: Scope) -> None:
        """Make values unknown that the calls in a statement may change, such as lists."""
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr):
                self._forget(part, scope)
            if not isinstance(part, ast.Call):
                continue
            changed = {find_root(part.func)} if isinstance(part.func, ast.Attribute) else set()
            if isinstance(part.func, ast.Name) and part.func.id in ("setattr", "delattr"):
                changed |= {find_root(argument) for argument in part.args[:1]}
            if isinstance(node, ast.Expr):
                changed |= {find_root(argument) for argument in part.args}
            for name in changed:
                if name is not None and _is_mutable(scope.names.get(name), part):
                    scope.names[name] = scope.module.find_unknown(part)

    # --- blocks -----------------------------------------------------------------------------------

    def _run_if(self, node: ast.If, scope: Scope) -> None:
        test = self.evaluate(node.test, scope)
        if isinstance(test, bool):
            self.run_body(node.body if test else node.orelse, scope)
        elif scope.parent is not None and not scope.is_class:
            scope.module.find_unknown(node).fail()
        else:
            self._forget(node, scope)

    def _raise(self, node: ast.Raise, scope: Scope) -> None:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        made = None if error is None else self.evaluate(error, scope)
        if isinstance(made, type) and issubclass(made, Exception | SystemExit) and made.__module__ == "builtins":
            arguments = node.exc.args if isinstance(node.exc, ast.Call) else []
            values = [self.evaluate(argument, scope) for argument in arguments]
            raise made(*(value for value in values if isinstance(value, str | int)))
        scope.module.find_unknown(node).fail()

    # --- functions and classes --------------------------------------------------------------------

    def make_lambda(self, node: ast.Lambda, scope: Scope) -> Callable[..., Any]:
        return self._make_function(node, scope)

    def _make_function(self, node: _FunctionNode, scope: Scope) -> Callable[..., Any]:
        """Return the stand-in of a function. A call of it is interpreted."""
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        signature = self._read_signature(node.args, scope)

        def stand_in(*args: Any, **named: Any) -> Any:
            bound = signature.bind(*args, **named)
            if name == "__init__":
                return None
            bound.apply_defaults()
            names = {
                key: scope.module.find_unknown(node) if value is _OPTIONAL else value
                for key, value in bound.arguments.items()
            }
            inner = Scope(scope.module, names, scope, prefix=f"{stand_in.__qualname__}.<locals>.")
            return require_known(self._interpret(node, inner))

        stand_in.__name__ = name
        stand_in.__qualname__ = scope.prefix + name
        stand_in.__module__ = scope.module.name
        stand_in.__signature__ = signature  # type: ignore[attr-defined]
        setattr(stand_in, SOURCE, scope.module.read_code(node))
        return stand_in

    def _interpret(self, node: _FunctionNode, scope: Scope) -> object:
        """Return the value of a call. Raises UnknownError, and what the function would raise."""
        if isinstance(node, ast.Lambda):
            return self.evaluate(node.body, scope)
        if isinstance(node, ast.AsyncFunctionDef):
            scope.module.find_unknown(node).fail()
        try:
            self.run_body(node.body, scope)
        except Return as end:
            return end.value
        return None

    def _read_signature(self, arguments: ast.arguments, scope: Scope) -> inspect.Signature:
        kind = inspect.Parameter
        parameters: list[inspect.Parameter] = []
        positional = [*arguments.posonlyargs, *arguments.args]
        first_default = len(positional) - len(arguments.defaults)
        for index, argument in enumerate(positional):
            default = arguments.defaults[index - first_default] if index >= first_default else None
            only = index < len(arguments.posonlyargs)
            parameters.append(
                kind(
                    argument.arg,
                    kind.POSITIONAL_ONLY if only else kind.POSITIONAL_OR_KEYWORD,
                    default=self._default(default, scope),
                )
            )
        if arguments.vararg is not None:
            parameters.append(kind(arguments.vararg.arg, kind.VAR_POSITIONAL))
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            parameters.append(kind(argument.arg, kind.KEYWORD_ONLY, default=self._default(default, scope)))
        if arguments.kwarg is not None:
            parameters.append(kind(arguments.kwarg.arg, kind.VAR_KEYWORD))
        return inspect.Signature(parameters)

    def _default(self, node: ast.expr | None, scope: Scope) -> object:
        if node is None:
            return inspect.Parameter.empty
        value = self.evaluate(node, scope)
        return _OPTIONAL if isinstance(value, Unknown) else value

    def _make_class(self, node: ast.ClassDef, scope: Scope) -> object:
        """Return the stand-in of a class, an Unknown if its bases or methods are not known."""
        try:
            bases = tuple(self.require(base, scope) for base in node.bases)
            options = {keyword.arg: self.require(keyword.value, scope) for keyword in node.keywords if keyword.arg}
            if not all(isinstance(base, type) for base in bases) or options not in ({}, {"metaclass": abc.ABCMeta}):
                return scope.module.find_unknown(node)
            body = Scope(scope.module, {}, scope, is_class=True, prefix=f"{scope.prefix}{node.name}.")
            self.run_body(node.body, body)
            members = {name: _make_member(name, value) for name, value in body.names.items()}
            made = types.new_class(node.name, bases, options, lambda namespace: namespace.update(members))
        except UnknownError as error:
            return error.value
        made.__module__ = scope.module.name
        made.__qualname__ = scope.prefix + node.name
        setattr(made, SOURCE, scope.module.read_class(node))
        return made

    def _decorate(self, value: object, decorators: list[ast.expr], scope: Scope, name: str | None) -> object:
        """Return a function or class with its decorators applied.

        A decorator that is not known makes a callable of a function (`name`), but anything of a
        class.
        """
        for node in reversed(decorators):
            decorator = self.evaluate(node, scope)
            unknown = scope.module.find_unknown(node)
            try:
                if isinstance(value, Unknown):
                    return value
                value = self.call(require_known(decorator), [value], {}, unknown)
            except UnknownError as error:
                value = error.value if name is None else make_unknown_callable(error.value, name)
        return value


def _make_member(name: str, value: object) -> object:
    """Return a class attribute. One that is not known is only known to be there."""
    if isinstance(value, Unknown):
        return make_unknown_callable(value, name)
    return None if isinstance(value, Imported | ModuleRef) else value


def _is_mutable(value: object, call: ast.Call) -> bool:
    """Return whether a call, of a method or with an argument, may change a value."""
    if isinstance(value, list | dict) or is_stand_in(type(value)):
        return True
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return isinstance(value, type) and is_stand_in(value) and name in ("setattr", "delattr")
