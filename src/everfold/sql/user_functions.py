"""User functions of a session: registration, name resolution and typing of calls.

CREATE FUNCTION registers them. Function names are case-insensitive. An unqualified name means the
first of: temporary system function, built-in function, temporary function, catalog function.
Source: Flink's page on functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from everfold.errors import Diagnostic, Span, SqlError, suggest_name
from everfold.plan.expressions import Expr, Literal
from everfold.types import DataType, NullType
from everfold.udf.declared import CallableFunction, ColumnsFunction, DeclaredFunction, TypeLike, udaf, unwrap_function
from everfold.udf.failure import user_traceback
from everfold.udf.function import FUNC_TYPES, SOURCE, PythonFunction
from everfold.udf.interface import AggregateFunction, ScalarFunction, UserDefinedFunction


class Kind(StrEnum):
    """Where a function is registered.

    SYSTEM functions hide built-in ones. All kinds end with the session, not only the temporary
    ones.
    """

    SYSTEM = "temporary system"
    TEMPORARY = "temporary"
    CATALOG = "catalog"

    @classmethod
    def of(cls, *, temporary: bool, system: bool) -> Kind:
        """Return the kind for the keywords TEMPORARY and SYSTEM."""
        return cls.SYSTEM if system else cls.TEMPORARY if temporary else cls.CATALOG


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunction:
    """A registered function. If `input_types` is None, arguments are passed unchanged."""

    python: PythonFunction
    input_types: tuple[DataType, ...] | None
    result_type: DataType

    @property
    def name(self) -> str:
        """Its name in SQL."""
        return self.python.name

    @property
    def is_aggregate(self) -> bool:
        """Whether it is an aggregate function."""
        return not isinstance(self.python.function, ScalarFunction)

    def cast_arguments(self, args: Sequence[Expr], span: Span | None) -> tuple[Expr, ...]:
        """Return the arguments of a call, cast to the declared input types.

        Raises SqlError `wrong-arguments`.
        """
        from everfold.sql.functions.coercion import convert_to, fits_implicitly
        from everfold.types import STRING

        shown = ", ".join(arg.type.sql for arg in args)
        if self.input_types is None:
            if not self._accepts(len(args)):
                raise SqlError.of("wrong-arguments", f"`{self.name}` does not take {_argument_count(len(args))}", span)
            # NULL alone has no type; the function sees None whatever it is.
            return tuple(convert_to(arg, STRING) if isinstance(arg.type, NullType) else arg for arg in args)
        fits = len(args) == len(self.input_types) and all(
            fits_implicitly(arg.type, wanted) for arg, wanted in zip(args, self.input_types, strict=True)
        )
        if not fits:
            takes = f"{self.name}({', '.join(wanted.sql for wanted in self.input_types)})"
            raise SqlError.of("wrong-arguments", f"`{self.name}` does not take ({shown})", span, f"it takes {takes}")
        for arg, wanted in zip(args, self.input_types, strict=True):
            if isinstance(arg, Literal) and arg.value is None and not wanted.nullable:
                raise SqlError.of("wrong-arguments", f"`{self.name}` does not take NULL for {wanted}", arg.span)
        return tuple(convert_to(arg, wanted) for arg, wanted in zip(args, self.input_types, strict=True))

    @property
    def is_argument_count_known(self) -> bool:
        """Whether the number of its arguments is declared, or known from its parameters."""
        origin = inspect.unwrap(getattr(self._called, "__func__", self._called))
        return self.input_types is not None or getattr(origin, "__dict__", {}).get(SOURCE, "") is not None

    @property
    def _called(self) -> Callable[..., object]:
        """What is called with the arguments of a row."""
        function = self.python.function
        if isinstance(function, CallableFunction | ColumnsFunction):
            wrapped: Callable[..., object] = function.wrapped
            return wrapped
        if isinstance(function, AggregateFunction):
            return function.accumulate
        assert isinstance(function, ScalarFunction)
        return function.eval

    def _accepts(self, count: int) -> bool:
        """Return whether Python could call it with this number of arguments."""
        given = count + isinstance(self.python.function, AggregateFunction)
        try:
            inspect.signature(self._called).bind(*range(given))
        except TypeError:
            return False
        except ValueError:  # a function in C without a signature
            return True
        return True


def _argument_count(count: int) -> str:
    return f"{count} argument{'' if count == 1 else 's'}"


class UserFunctions:
    """The functions of a session, by kind and name."""

    def __init__(self) -> None:
        self._by_kind: dict[Kind, dict[str, UserFunction]] = {kind: {} for kind in Kind}

    def find_system(self, name: str) -> UserFunction | None:
        """Return the temporary system function of a name.

        It takes precedence over a built-in one.
        """
        return self._by_kind[Kind.SYSTEM].get(name.lower())

    def find_other(self, name: str) -> UserFunction | None:
        """Return the temporary function of a name, else that of the catalog.

        Used for names that are not built-in.
        """
        key = name.lower()
        return self._by_kind[Kind.TEMPORARY].get(key) or self._by_kind[Kind.CATALOG].get(key)

    def has(self, name: str, kind: Kind) -> bool:
        """Return whether a function of that kind is registered."""
        return name.lower() in self._by_kind[kind]

    def add(self, function: UserFunction, kind: Kind, span: Span | None = None) -> None:
        """Register a function. Raises SqlError `function-exists` if the name and kind are taken."""
        if self.has(function.name, kind):
            raise SqlError.of(
                "function-exists",
                f"a {kind.value} function named `{function.name}` exists already",
                span,
                "choose another name, or write IF NOT EXISTS to keep the one that exists",
            )
        self._by_kind[kind][function.name.lower()] = function

    def drop(self, name: str, kind: Kind, *, if_exists: bool, span: Span | None = None) -> bool:
        """Remove a function; return whether there was one.

        Raises SqlError `unknown-function` if there was none and not `if_exists`.
        """
        if self._by_kind[kind].pop(name.lower(), None) is not None:
            return True
        if if_exists:
            return False
        near = suggest_name(name, [each.name for each in self._by_kind[kind].values()])
        other = next((each for each in Kind if self.has(name, each)), None)
        if other is not None:
            prefix = "" if other is Kind.CATALOG else f"{other.value.upper()} "
            near = f"DROP {prefix}FUNCTION {name}"
        message = f"no {kind.value} function is named `{name}`"
        raise SqlError(Diagnostic("unknown-function", message, span, near))

    def __iter__(self) -> Iterator[UserFunction]:
        found = {each.name: each for kind in reversed(Kind) for each in self._by_kind[kind].values()}
        return iter(found[name] for name in sorted(found))


# --- what a Python object declares ----------------------------------------------------------------


def build_user_function(found: object, name: str, identifier: str, span: Span | None) -> UserFunction:
    """Build a user function from a Python object.

    The object is a result of `udf` or `udaf`, or an AggregateFunction that declares its own types.
    Raises SqlError `not-a-function`, or `undeclared-type` with what is missing.
    """
    of = _declaration(found, identifier, span)
    if of.func_type not in FUNC_TYPES:
        message = f"`{identifier}` is declared with the func_type `{of.func_type}`"
        raise SqlError.of("not-a-function", message, span, f"there are {', '.join(FUNC_TYPES)}")
    result_type = _type(of.result_type, "result", of, identifier, span)
    accumulator = None
    if isinstance(of.function, AggregateFunction):
        accumulator = _type(of.accumulator_type, "accumulator", of, identifier, span)
    input_types = None
    if of.input_types is not None:
        input_types = tuple(_type(each, "input", of, identifier, span) for each in of.input_types)
    python = PythonFunction(
        name=name,
        identifier=identifier,
        function=of.function,
        func_type=of.func_type,
        deterministic=of.deterministic,
        accumulator=accumulator,
    )
    return UserFunction(python=python, input_types=input_types, result_type=result_type)


def qualified_name(found: object) -> str:
    """Return module and qualified name of a function that is passed as an object."""
    of = unwrap_function(found.function if isinstance(found, DeclaredFunction) else found)
    of = of if hasattr(of, "__qualname__") else type(of)
    return f"{getattr(of, '__module__', None) or 'builtins'}.{getattr(of, '__qualname__', '')}"


def _declaration(found: object, identifier: str, span: Span | None) -> DeclaredFunction:
    if isinstance(found, DeclaredFunction):
        return found
    if isinstance(found, AggregateFunction) or (isinstance(found, type) and issubclass(found, AggregateFunction)):
        try:
            return udaf(found)
        except Exception as error:  # such as a class that lacks a method, or requires arguments
            message = f"`{identifier}` cannot be used as a function: {type(error).__name__}: {error}"
            raise SqlError(Diagnostic("not-a-function", message, span, notes=user_traceback(error))) from error
    if isinstance(found, UserDefinedFunction | type) or callable(found):
        raise SqlError.of(
            "undeclared-type",
            f"the Python function `{identifier}` does not declare the type of its result",
            span,
            "wrap it in udf(…, result_type='BIGINT'), or in udaf for an aggregate function",
        )
    raise SqlError.of(
        "not-a-function",
        f"`{identifier}` is not a function but a value of type {type(found).__name__}",
        span,
        "create a function with udf or udaf",
    )


def _type(given: TypeLike | None, what: str, of: DeclaredFunction, identifier: str, span: Span | None) -> DataType:
    from everfold.sql.dialects.flink import parse_type

    if given is None:
        method = f"get_{what}_type()" if isinstance(of.function, AggregateFunction) else f"udf(…, {what}_type=…)"
        message = f"the Python function `{identifier}` does not declare its {what} type"
        raise SqlError.of("undeclared-type", message, span, f"declare it with {what}_type=… or {method}")
    if isinstance(given, DataType):
        return given
    if not isinstance(given, str):
        message = f"the {what} type of the Python function `{identifier}` is a value of type {type(given).__name__}"
        raise SqlError.of("wrong-type", message, span, "write a type of DataTypes, or its SQL")
    try:
        return parse_type(given)
    except SqlError as error:
        why = error.diagnostics[0]
        message = f"the {what} type `{given}` of the Python function `{identifier}` is invalid: {why.message}"
        raise SqlError.of("wrong-type", message, span, why.help) from None
