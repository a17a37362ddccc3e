"""Calls of user functions."""

from __future__ import annotations

from collections.abc import Callable

from everfold.errors import Span
from everfold.plan.expressions import Expr, PythonCall
from everfold.plan.nodes import AggCall
from everfold.sql import syntax
from everfold.sql.binder.context import Context
from everfold.sql.binder.names import LEGACY_WINDOWS, OVER_FUNCTIONS, is_aggregate
from everfold.sql.catalog import local_name
from everfold.sql.user_functions import UserFunction


def find_user_function(node: syntax.FunctionCall, context: Context) -> UserFunction | None:
    """Return the user function that a call refers to; None if it is built-in or unknown."""
    functions = context.catalog.functions
    parts = tuple(node.original_name.split("."))
    name = local_name(parts)
    if name is None or node.special:
        return None
    if len(parts) > 1:  # a name with a database is never a built-in function
        return functions.find_other(name)
    return functions.find_system(name) or (None if is_builtin(node.name) else functions.find_other(name))


def is_builtin(name: str) -> bool:
    """Return whether there is a built-in function of that name, in capitals."""
    from everfold.sql.functions import lookup

    return is_aggregate(name) or name in OVER_FUNCTIONS or name in LEGACY_WINDOWS or lookup(name) is not None


def is_aggregate_call(node: syntax.Node, context: Context) -> bool:
    """Return whether a node calls an aggregate function, built-in or of the user."""
    if not isinstance(node, syntax.FunctionCall):
        return False
    function = find_user_function(node, context)
    return is_aggregate(node.name) if function is None else function.is_aggregate


def bind_python_call(function: UserFunction, args: tuple[Expr, ...], span: Span | None) -> PythonCall:
    """Return the typed call of a scalar function. Raises SqlError `wrong-arguments`."""
    taken = function.cast_arguments(args, span)
    name = sql_name(function)
    return PythonCall(function=name, args=taken, type=function.result_type, of=function.python, span=span)


def bind_python_aggregate(
    function: UserFunction,
    node: syntax.FunctionCall,
    bind: Callable[[syntax.Expression], Expr],
    condition: Callable[[syntax.Expression], Expr],
    context: Context,
) -> AggCall:
    """Return the typed call of an aggregate function.

    `bind` binds an argument, `condition` that of FILTER.

    Raises SqlError `wrong-arguments`, UnsupportedFeature `unsupported-clause`.
    """
    for clause, present in (("ORDER BY", node.order), (f"{node.nulls} NULLS", node.nulls)):
        if present:
            raise context.unsupported(
                "unsupported-clause", f"{clause} is not supported in `{function.name}`", node, "leave it out"
            )
    args = function.cast_arguments([bind(each) for each in node.arguments], node.span)
    if not args:
        raise context.error("wrong-arguments", f"`{function.name}` takes an argument", node)
    return AggCall(
        function=sql_name(function),
        args=args,
        type=function.result_type,
        distinct=node.distinct,
        filter=None if node.filter is None else condition(node.filter),
        python=function.python,
        span=node.span,
    )


def sql_name(function: UserFunction) -> str:
    """Return the name of a user function in plans and canonical strings.

    It is in backticks, so that it never equals the name of a built-in function.
    """
    return f"`{function.name}`"
