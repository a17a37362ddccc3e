"""Keys: columns that identify the rows of a plan.

A sink that keeps one row per key accepts a changing result only if no two rows of the result have
the same key. The decision is the same as in Flink (the metadata of unique keys): it is based on
grouping keys, declared primary keys and join conditions.
"""

from __future__ import annotations

from itertools import islice, product

from everfold.plan import nodes
from everfold.plan.expressions import Call, Expr, InputRef, Retyped, conjuncts, inputs_of
from everfold.types import (
    AnyType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    RowType,
    StringType,
    TimestampType,
)

_MAX_ALTERNATIVES = 16
"""Maximum number of equivalent keys of a result, which differ only in the columns that show
them."""


def unique_key(plan: nodes.Plan) -> tuple[int, ...] | None:
    """Return columns in which no two rows agree at the same time, None if unknown.

    An empty tuple means that there is at most one row.
    """
    return next(iter(unique_keys(plan)), None)


def unique_keys(plan: nodes.Plan) -> tuple[tuple[int, ...], ...]:
    """Return all keys equivalent to `unique_key`.

    They differ if a column occurs twice, or both alone and in a ROW.
    """
    return plan.remember("unique-keys", _unique_keys)


def _unique_keys(plan: nodes.Plan) -> tuple[tuple[int, ...], ...]:
    match plan:
        case nodes.Scan():
            names = [column.name for column in plan.table.columns]
            return _one(tuple(map(names.index, plan.table.primary_key)) or None)
        case nodes.GroupAggregate():
            return _one(tuple(range(len(plan.keys))))
        case nodes.ChangelogNormalize():
            return _one(plan.keys)
        case nodes.WindowEmit():
            # The window's end determines window_time.
            return _one(tuple(at for at in plan.keys if at != plan.time_column))
        case nodes.Filter() | nodes.WatermarkAssigner() | nodes.OverAggregate() | nodes.Sort() | nodes.Limit():
            return unique_keys(plan.input)
        case nodes.Rank():
            return _one(_rank_key(plan))
        case nodes.Project():
            return _project_keys(plan)
        case nodes.Join():
            return _one(_join_key(plan))
        case _:
            return ()


def _one(key: tuple[int, ...] | None) -> tuple[tuple[int, ...], ...]:
    return () if key is None else (key,)


def _rank_key(plan: nodes.Rank) -> tuple[int, ...] | None:
    """Return the key of a Rank.

    A partition has one row per number, and changes are by number. Without numbers they are by the
    input's key.
    """
    single = plan.first == plan.last
    if not single and not plan.numbered:
        return unique_key(plan.input)
    if not all(isinstance(each, InputRef) for each in plan.partition):
        return None
    columns = [each.position for each in plan.partition if isinstance(each, InputRef)]
    return tuple(columns) if single else (*columns, len(plan.input.schema))


def _project_keys(plan: nodes.Project) -> tuple[tuple[int, ...], ...]:
    found: dict[tuple[int, ...], None] = {}
    for below in unique_keys(plan.input):
        shown: dict[int, list[int]] = {at: [] for at in below}
        for at, each in enumerate(plan.expressions):
            parts = column_parts(each)
            if parts is not None and parts <= shown.keys():
                for part in parts:
                    shown[part].append(at)
        alternatives = islice(product(*(shown[at] for at in below)), _MAX_ALTERNATIVES)
        found |= {tuple(dict.fromkeys(each)): None for each in alternatives}
    return tuple(found)


def column_parts(expr: Expr) -> frozenset[int] | None:
    """Return the columns that an expression consists of, None if it contains anything else.

    That is one column as it is, or the fields of a ROW.
    """
    match strip_injective_casts(expr):
        case InputRef(position=at):
            return frozenset((at,))
        case Call(function="ROW", args=args):
            parts = [column_parts(each) for each in args]
            return None if None in parts else frozenset().union(*(each for each in parts if each is not None))
        case _:
            return None


def strip_injective_casts(expr: Expr) -> Expr:
    """Return the operand of casts that keep different values different."""
    while isinstance(expr, Call) and expr.function == "CAST":
        if not isinstance(expr, Retyped) and not _is_injective_cast(expr.args[0].type, expr.type):
            break
        expr = expr.args[0]
    return expr


def _is_injective_cast(source: DataType, target: DataType) -> bool:
    """Return whether different values of a type remain different after the conversion."""
    if source.same_as(target):
        return True
    match source, target:
        case (AnyType(), _):  # of a query that is checked and never run
            return True
        case (IntegerType(), IntegerType()):
            return source.bits <= target.bits
        case (IntegerType(), DecimalType()):
            return source.digits <= target.precision - target.scale
        case (IntegerType(), DoubleType()):
            return source.bits <= 32
        case (DecimalType(), DecimalType()):
            whole = source.precision - source.scale, target.precision - target.scale
            return source.scale <= target.scale and whole[0] <= whole[1]
        case (FloatType(), DoubleType()):
            return True
        case (StringType(), StringType()):
            # A CHAR is padded with blanks, and another string may end with blanks.
            return not target.fixed and source.length <= target.length
        case (BytesType(), BytesType()):  # a BINARY is padded with zeros
            return not target.fixed and source.length <= target.length
        case (IntegerType(), StringType()):
            return not target.fixed and source.digits + 1 <= target.length
        case (DateType() | BooleanType(), StringType()):
            return not target.fixed and target.length >= len("-9999-12-31")
        case (TimestampType(), TimestampType()):
            return source.local_zone == target.local_zone and source.precision <= target.precision
        case (DateType(), TimestampType()):
            return not target.local_zone
        case (RowType(), RowType()):
            pairs = zip(source.fields, target.fields, strict=True)
            return all(_is_injective_cast(one.type, other.type) for one, other in pairs)
    return False


def _join_key(plan: nodes.Join) -> tuple[int, ...] | None:
    left = unique_key(plan.left)
    if plan.kind in (nodes.JoinKind.SEMI, nodes.JoinKind.ANTI):
        return left
    right = unique_key(plan.right)
    if left is None or right is None or plan.kind in (nodes.JoinKind.RIGHT, nodes.JoinKind.FULL):
        return None
    width = len(plan.left.schema.fields)
    if set(right) <= _fixed_by_left(plan.condition, width):
        return left
    return (*left, *(width + at for at in right))


def _fixed_by_left(condition: Expr | None, width: int) -> set[int]:
    """Return the right columns that a condition equates with a left expression or a constant."""
    found: set[int] = set()
    for part in conjuncts(condition) if condition is not None else ():
        if not (isinstance(part, Call) and part.function == "="):
            continue
        for one, other in (part.args, part.args[::-1]):
            of = strip_injective_casts(one)
            if isinstance(of, InputRef) and of.position >= width and all(at < width for at in inputs_of(other)):
                found.add(of.position - width)
    return found
