"""`udf` and `udaf`: declare a function with its SQL types.

Source of names and defaults: PyFlink's `pyflink.table.udf`.
"""

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
"""A type, or its SQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredFunction:
    """A function with its types. Types in SQL are parsed when the function is registered.

    input_types: the types that arguments are cast to; None means no casts. result_type: registering
    a function without one is an error. accumulator_type: for an AggregateFunction. func_type:
    "general" functions are called with Python values; "arrow", "polars" and "pandas" functions with
    whole columns.
    """

    function: UserDefinedFunction
    name: str
    input_types: tuple[TypeLike, ...] | None = None
    result_type: TypeLike | None = None
    accumulator_type: TypeLike | None = None
    deterministic: bool = True
    func_type: FuncType = "general"

    def __call__(self, *args: Any) -> Any:
        """Call the scalar function itself."""
        if not isinstance(self.function, ScalarFunction):
            raise TypeError(f"`{self.name}` is an aggregate function: only a query can call it")
        return self.function.eval(*args)


class FunctionWrapper:
    """A wrapper of everfold around a user's function (`wrapped`)."""

    wrapped: Any


class CallableFunction(ScalarFunction, FunctionWrapper):
    """A callable as a scalar function."""

    def __init__(self, wrapped: Callable[..., Any]) -> None:
        self.wrapped = wrapped

    def eval(self, *args: Any) -> Any:
        return self.wrapped(*args)


class ColumnsFunction(UserDefinedFunction, FunctionWrapper):
    """A callable as a vectorized aggregate function.

    It computes the value from all rows of a group at once.
    """

    def __init__(self, wrapped: Callable[..., Any]) -> None:
        self.wrapped = wrapped


def unwrap_function(function: object) -> object:
    """Return the user's function or object inside all wrappers."""
    while isinstance(function, FunctionWrapper | functools.partial):
        function = function.wrapped if isinstance(function, FunctionWrapper) else function.func
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
) -> Callable[[Function], DeclaredFunction]: ...


@overload
def udf(
    f: Function,
    input_types: InputTypes = None,
    result_type: TypeLike | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: FuncType = "general",
) -> DeclaredFunction: ...


def udf(
    f: Function | None = None,
    input_types: InputTypes = None,
    result_type: TypeLike | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: FuncType = "general",
) -> DeclaredFunction | Callable[[Function], DeclaredFunction]:
    """Declare a scalar function: a callable or a ScalarFunction. Without `f`, return a decorator.

    input_types: the types that arguments are cast to. func_type: "arrow", "polars" and "pandas"
    functions take whole columns and return one.
    """
    if f is None:
        return lambda given: udf(given, input_types, result_type, deterministic, name, func_type)
    made = f() if inspect.isclass(f) else f
    if not callable(made) and not isinstance(made, ScalarFunction):
        raise TypeError(f"udf takes a callable or a ScalarFunction, not {type(made).__name__}")
    function = made if isinstance(made, ScalarFunction) else CallableFunction(made)
    return DeclaredFunction(
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
) -> Callable[[AggregateLike], DeclaredFunction]: ...


@overload
def udaf(
    f: AggregateLike,
    input_types: InputTypes = None,
    result_type: TypeLike | None = None,
    accumulator_type: TypeLike | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: FuncType = "general",
) -> DeclaredFunction: ...


def udaf(
    f: AggregateLike | None = None,
    input_types: InputTypes = None,
    result_type: TypeLike | None = None,
    accumulator_type: TypeLike | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: FuncType = "general",
) -> DeclaredFunction | Callable[[AggregateLike], DeclaredFunction]:
    """Declare an aggregate function. Without `f`, return a decorator.

    f: an AggregateFunction, whose own types apply unless types are given here; or a callable that
    takes all rows of a group as columns of the kind `func_type`.
    """
    if f is None:
        return lambda given: udaf(given, input_types, result_type, accumulator_type, deterministic, name, func_type)
    made = f() if inspect.isclass(f) else f
    function: UserDefinedFunction
    if isinstance(made, AggregateFunction):
        function = made
        result_type = result_type if result_type is not None else _type_or_none(made.get_result_type)
        accumulator_type = (
            accumulator_type if accumulator_type is not None else _type_or_none(made.get_accumulator_type)
        )
    elif callable(made) and func_type != "general":
        function = ColumnsFunction(made)
    else:
        raise TypeError('udaf takes an AggregateFunction, or a callable with func_type="arrow", "polars" or "pandas"')
    return DeclaredFunction(
        function=function,
        name=name or _name(f),
        input_types=_types(input_types),
        result_type=result_type,
        accumulator_type=accumulator_type,
        deterministic=_deterministic(function, deterministic),
        func_type=func_type,
    )


def _type_or_none(get_type: Callable[[], TypeLike]) -> TypeLike | None:
    try:
        return get_type()
    except NotImplementedError:
        return None


def _types(given: InputTypes) -> tuple[TypeLike, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, DataType | str) else tuple(given)


def _deterministic(function: UserDefinedFunction, declared: bool | None) -> bool:
    return function.is_deterministic() if declared is None else declared


def _name(f: object) -> str:
    """Return the function's own name, or the name of an object's class."""
    inner = unwrap_function(f)
    return str(getattr(inner, "__name__", None) or type(inner).__name__)
