"""`udf` and `udaf`: a function with what SQL must know about it. Source of names and defaults: PyFlink's `pyflink.table.udf`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

from everfold.types import DataType
from everfold.udf.function import FuncType
from everfold.udf.interface import AggregateFunction, ScalarFunction, UserDefinedFunction

TypeLike: TypeAlias = DataType | str
"""A type, or how SQL writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A function with its types. Types that SQL text stands for are read when the function is registered.

    input_types: what arguments are cast to; None takes them as they come. result_type: None is an error when it is registered.
    accumulator_type: of an AggregateFunction. func_type: "general" is called with Python values; "arrow", "polars" and "pandas" with whole columns.
    """

    function: UserDefinedFunction
    name: str
    input_types: tuple[TypeLike, ...] | None = None
    result_type: TypeLike | None = None
    accumulator_type: TypeLike | None = None
    deterministic: bool = True
    func_type: FuncType = "general"

    def __call__(self, *args: Any) -> Any:
        """Calls the scalar function itself, as if it had not been declared."""
        if not isinstance(self.function, ScalarFunction):
            raise TypeError(f"`{self.name}` is an aggregate function: only a query can call it")
        return self.function.eval(*args)


class Wrapping:
    """A function of ours around one of the user's (`called`)."""

    called: Any


class Calling(ScalarFunction, Wrapping):
    """A plain callable as a scalar function."""

    def __init__(self, called: Callable[..., Any]) -> None:
        self.called = called

    def eval(self, *args: Any) -> Any:
        return self.called(*args)


class WholeColumns(UserDefinedFunction, Wrapping):
    """A plain callable as a vectorised aggregate function: it makes the value out of all rows of a group at once."""

    def __init__(self, called: Callable[..., Any]) -> None:
        self.called = called


def origin_of(function: object) -> object:
    """What the user wrote: a function, or an object of a class, out of all that it is wrapped into."""
    while isinstance(function, Wrapping | functools.partial):
        function = function.called if isinstance(function, Wrapping) else function.func
    return function


Function: TypeAlias = Callable[..., Any] | ScalarFunction
InputTypes: TypeAlias = TypeLike | Sequence[TypeLike] | None


@overload
def udf(
    f: None = None,
    input_types: InputTypes = None,
    result_type: TypeLike | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: FuncType = "general",
) -> Callable[[Function], Declared]: ...


@overload
def udf(
    f: Function,
    input_types: InputTypes = None,
    result_type: TypeLike | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: FuncType = "general",
) -> Declared: ...


def udf(
    f: Function | None = None,
    input_types: InputTypes = None,
    result_type: TypeLike | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: FuncType = "general",
) -> Declared | Callable[[Function], Declared]:
    """Declares a scalar function: a callable, or a ScalarFunction. Without `f` it is a decorator.

    input_types: what arguments are cast to. func_type: with "arrow", "polars" or "pandas" it takes whole columns and gives one.
    """
    if f is None:
        return lambda given: udf(given, input_types, result_type, deterministic, name, func_type)
    made = f() if inspect.isclass(f) else f
    if not callable(made) and not isinstance(made, ScalarFunction):
        raise TypeError(f"udf takes a callable or a ScalarFunction, not {type(made).__name__}")
    function = made if isinstance(made, ScalarFunction) else Calling(made)
    return Declared(
        function=function,
        name=name or _name(f),
        input_types=_types(input_types),
        result_type=result_type,
        deterministic=_deterministic(function, deterministic),
        func_type=func_type,
    )


AggregateLike: TypeAlias = AggregateFunction | type[AggregateFunction] | Callable[..., Any]


@overload
def udaf(
    f: None = None,
    input_types: InputTypes = None,
    result_type: TypeLike | None = None,
    accumulator_type: TypeLike | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: FuncType = "general",
) -> Callable[[AggregateLike], Declared]: ...


@overload
def udaf(
    f: AggregateLike,
    input_types: InputTypes = None,
    result_type: TypeLike | None = None,
    accumulator_type: TypeLike | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: FuncType = "general",
) -> Declared: ...


def udaf(
    f: AggregateLike | None = None,
    input_types: InputTypes = None,
    result_type: TypeLike | None = None,
    accumulator_type: TypeLike | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: FuncType = "general",
) -> Declared | Callable[[AggregateLike], Declared]:
    """Declares an aggregate function: an AggregateFunction, whose own types count where none are named here; or a callable that takes all rows
    of a group as columns, for which `func_type` says of which kind. Without `f` it is a decorator."""
    if f is None:
        return lambda given: udaf(given, input_types, result_type, accumulator_type, deterministic, name, func_type)
    made = f() if inspect.isclass(f) else f
    function: UserDefinedFunction
    if isinstance(made, AggregateFunction):
        function = made
        result_type = result_type if result_type is not None else _own(made.get_result_type)
        accumulator_type = accumulator_type if accumulator_type is not None else _own(made.get_accumulator_type)
    elif callable(made) and func_type != "general":
        function = WholeColumns(made)
    else:
        raise TypeError(
            "udaf takes an AggregateFunction, or a callable with a func_type that says what columns it takes"
        )
    return Declared(
        function=function,
        name=name or _name(f),
        input_types=_types(input_types),
        result_type=result_type,
        accumulator_type=accumulator_type,
        deterministic=_deterministic(function, deterministic),
        func_type=func_type,
    )


def _own(declares: Callable[[], TypeLike]) -> TypeLike | None:
    try:
        return declares()
    except NotImplementedError:
        return None


def _types(given: InputTypes) -> tuple[TypeLike, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, DataType | str) else tuple(given)


def _deterministic(function: UserDefinedFunction, said: bool | None) -> bool:
    return function.is_deterministic() if said is None else said


def _name(f: object) -> str:
    """The function's own name, of an object that of its class."""
    inner = origin_of(f)
    return str(getattr(inner, "__name__", None) or type(inner).__name__)
