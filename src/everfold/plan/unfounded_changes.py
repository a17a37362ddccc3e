"""Whether a plan may retract rows that the operator above has not received.

A table can be read from the middle of its changes, an operator discards rows after its TTL, and an
expression can have another value when a row is retracted than when it was added.
"""

from __future__ import annotations

from everfold.plan.emitted_changes import is_updating
from everfold.plan.expressions import Call, Expr, PythonCall, walk
from everfold.plan.nodes import Join, Plan, Scan, WindowTableFunction, is_stateful
from everfold.plan.parts import expressions_of, streamed_children

_RANDOM = frozenset({"RAND", "RAND_INTEGER"})


def may_retract_unknown_rows(operator: Plan) -> bool:
    """Return whether the input of an operator may retract rows that it does not have."""
    return _has_ttl(operator) or _varies(operator) or any(map(_may_retract, streamed_children(operator)))


def _may_retract(plan: Plan) -> bool:
    if not is_updating(plan):
        return False
    if is_stateful(plan):
        # The rows of SESSION are passed on with their changes, without late ones.
        return isinstance(plan, WindowTableFunction) or _has_ttl(plan)
    if isinstance(plan, Scan | Join):  # rows of a joined table change, too
        return True
    return _varies(plan) or any(map(_may_retract, streamed_children(plan)))


def _has_ttl(plan: Plan) -> bool:
    return bool(getattr(plan, "ttl_ms", 0))


def _varies(plan: Plan) -> bool:
    """Return whether an expression of a node may have different values for equal rows."""
    return any(map(_is_variable, (part for expression in expressions_of(plan) for part in walk(expression))))


def _is_variable(expression: Expr) -> bool:
    match expression:
        case PythonCall():
            return not expression.of.deterministic
        case Call():
            return not expression.args or expression.function in _RANDOM
    return False
