"""Python functions apart from everything else: a rewrite after which a `PythonCall` stands only by itself in a projection.

So each call is computed once, whatever SQL is written around it, and an engine hands rows to Python in one place. `f(x) > 1` in a WHERE becomes a
projection with f(x) as one more column, the condition over that, and a projection that drops it. Flink splits its plans likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from everfold.errors import UnsupportedFeature
from everfold.plan.expressions import (
    Expr,
    InputRef,
    Literal,
    PythonCall,
    conjunction,
    conjuncts,
    inputs_of,
    references,
    transform,
    walk,
)
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Filter,
    GroupAggregate,
    Join,
    Limit,
    OverAggregate,
    Plan,
    Project,
    Rank,
    Scan,
    SetOperation,
    Sort,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
    children,
    with_children,
)
from everfold.types import INT, Field, Schema


def split_python_calls(node: Plan) -> Plan:
    """The plan with each Python call by itself in a projection."""
    node = with_children(node, tuple(split_python_calls(child) for child in children(node)))
    match node:
        case Project():
            return _project(node)
        case Filter():
            return _filter(node)
        case WatermarkAssigner():
            apart = _Apart(node.input)
            (watermark,) = apart.all([node.watermark])
            return _first_columns(replace(node, input=apart.plan, watermark=watermark), node.schema)
        case Unnest():
            apart = _Apart(node.input)
            (collection,) = apart.all([node.collection])
            return _appended(replace(node, input=apart.plan, collection=collection), node)
        case WindowAggregate() | GroupAggregate():
            apart = _Apart(node.input)
            keys, calls = apart.all(node.keys), tuple(_agg_call(call, apart) for call in node.calls)
            return replace(node, input=apart.plan, keys=keys, calls=calls)
        case OverAggregate():
            apart = _Apart(node.input)
            partition, calls = apart.all(node.partition), tuple(_agg_call(call, apart) for call in node.calls)
            sorts = apart.all([key.expression for key in node.order])
            order = tuple(replace(key, expression=made) for key, made in zip(node.order, sorts, strict=True))
            made = replace(node, input=apart.plan, partition=partition, order=order, calls=calls)
            return _appended(made, node)
        case Rank():
            apart = _Apart(node.input)
            partition, sorts = apart.all(node.partition), apart.all([key.expression for key in node.order])
            order = tuple(replace(key, expression=made) for key, made in zip(node.order, sorts, strict=True))
            return _appended(replace(node, input=apart.plan, partition=partition, order=order), node)
        case Sort():
            apart = _Apart(node.input)
            sorts = apart.all([key.expression for key in node.keys])
            keyed = tuple(replace(key, expression=made) for key, made in zip(node.keys, sorts, strict=True))
            return _first_columns(replace(node, input=apart.plan, keys=keyed), node.schema)
        case Join():
            return _join(node)
        case Values():
            return _values(node)
        case Scan() | ChangelogNormalize() | Union() | WindowTableFunction() | WindowEmit() | Limit() | SetOperation():
            return node
        case _:
            assert_never(node)


def calls_python(expr: Expr) -> bool:
    """Whether a Python function is called somewhere in the expression."""
    return any(isinstance(part, PythonCall) for part in walk(expr))


@dataclass(slots=True)
class _Apart:
    """A plan that gets projections on top for the calls that are taken out of expressions over it. What it had keeps its place."""

    plan: Plan
    _calls: list[PythonCall] = field(default_factory=list)

    def all(self, expressions: Sequence[Expr], *, keep_alone: bool = False) -> tuple[Expr, ...]:
        """The expressions without calls, over the plan as it is then. keep_alone: a call that is a whole expression stays."""
        while any(map(self._nested if keep_alone else calls_python, expressions)):
            expressions = [self._without_innermost(each) for each in expressions]
            schema = self.plan.schema
            self.plan = Project(
                input=self.plan,
                expressions=(*references(schema), *self._calls),
                names=(*schema.names, *(f"${call.of.name}" for call in self._calls)),
            )
            self._calls = []
        return tuple(expressions)

    @staticmethod
    def _nested(expr: Expr) -> bool:
        parts: Iterable[Expr] = expr.args if isinstance(expr, PythonCall) else (expr,)
        return any(map(calls_python, parts))

    def _without_innermost(self, expression: Expr) -> Expr:
        """The expression with its calls over arguments without calls replaced by the columns that they will be."""

        def change(part: Expr) -> Expr | None:
            if isinstance(part, PythonCall) and not any(map(calls_python, part.args)):
                return self._column(part)
            return None

        return transform(expression, change)

    def _column(self, call: PythonCall) -> Expr:
        if call.of.deterministic and call in self._calls:
            at = self._calls.index(call)
        else:
            at = len(self._calls)
            self._calls.append(call)
        return InputRef(type=call.type, position=len(self.plan.schema) + at, name=call.of.name, span=call.span)


def _first_columns(node: Plan, schema: Schema) -> Plan:
    """The node with the columns that it has beyond the schema's dropped."""
    if len(node.schema) == len(schema):
        return node
    return Project(input=node, expressions=references(schema), names=schema.names)


def _filter(node: Filter) -> Plan:
    """What a condition asks without Python is asked first, so that functions see only the rows that are left by then."""
    plain: list[Expr] = []
    calling: list[Expr] = []
    for part in conjuncts(node.condition):
        (calling if calls_python(part) else plain).append(part)
    if not calling:
        return node
    apart = _Apart(replace(node, condition=conjunction(plain)) if plain else node.input)
    condition = conjunction(apart.all(calling))
    return _first_columns(replace(node, input=apart.plan, condition=condition), node.schema)


def _project(node: Project) -> Project:
    apart = _Apart(node.input)
    expressions = apart.all(node.expressions, keep_alone=True)
    return replace(node, input=apart.plan, expressions=expressions)


def _agg_call(call: AggCall, apart: _Apart) -> AggCall:
    # One after the other: each taking out leaves the columns before it in their places.
    args = apart.all(call.args)
    condition = None if call.filter is None else apart.all([call.filter])[0]
    return replace(call, args=args, filter=condition)


def _appended(made: Unnest | OverAggregate | Rank, before: Unnest | OverAggregate | Rank) -> Plan:
    """A node that appends columns to those of its input, without what that has more than before."""
    width, wider = len(before.input.schema), len(made.input.schema)
    if width == wider:
        return made
    kept = [*range(width), *range(wider, len(made.schema))]
    columns = references(made.schema)
    return Project(input=made, expressions=tuple(columns[at] for at in kept), names=before.schema.names)


def _values(node: Values) -> Plan:
    if not any(calls_python(each) for row in node.rows for each in row):
        return node
    zero = Values(rows=((Literal(type=INT.as_nullable(False), value=0),),), fields=(Field(name="", type=INT),))
    names = node.schema.names
    rows: list[Plan] = [_project(Project(input=zero, expressions=row, names=names)) for row in node.rows]
    return Union(inputs=tuple(rows), span=node.span) if len(rows) > 1 else rows[0]


def _join(node: Join) -> Plan:
    """One call after the other goes to the side whose columns it takes."""
    call = None if node.condition is None else _innermost(node.condition)
    if call is None:
        return node
    assert node.condition is not None
    width = len(node.left.schema)
    inputs = inputs_of(call)
    if all(at < width for at in inputs):
        place, made = width, replace(node, left=_with_column(node.left, call))
    elif all(at >= width for at in inputs):
        over_right = transform(call, lambda part: _moved(part, -width))
        assert isinstance(over_right, PythonCall)
        place, made = width + len(node.right.schema), replace(node, right=_with_column(node.right, over_right))
    else:
        raise UnsupportedFeature.of(
            "unsupported-in-join",
            f"the Python function `{call.of.name}` in a join's condition takes columns of both sides",
            call.span,
            help="call it in WHERE, or over one side in a subquery",
        )

    def over_wider(part: Expr) -> Expr | None:
        if part == call:
            return InputRef(type=call.type, position=place, name=call.of.name, span=call.span)
        return _moved(part, 1 if isinstance(part, InputRef) and part.position >= place else 0)

    joined = _join(replace(made, condition=transform(node.condition, over_wider)))
    columns = references(joined.schema)
    kept = [*columns[:place], *columns[place + 1 :]]
    return Project(input=joined, expressions=tuple(kept), names=node.schema.names)


def _innermost(expr: Expr) -> PythonCall | None:
    """A call over arguments without calls."""
    found = (part for part in walk(expr) if isinstance(part, PythonCall) and not any(map(calls_python, part.args)))
    return next(found, None)


def _with_column(plan: Plan, call: PythonCall) -> Project:
    schema = plan.schema
    return Project(
        input=plan,
        expressions=(*references(schema), call),
        names=(*schema.names, f"${call.of.name}"),
    )


def _moved(part: Expr, by: int) -> Expr | None:
    return replace(part, position=part.position + by) if isinstance(part, InputRef) else None
