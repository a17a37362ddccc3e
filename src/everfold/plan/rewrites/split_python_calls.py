"""Make every `PythonCall` a whole expression of a projection.

So each call is computed once in any surrounding SQL, and an engine passes rows to Python in one
place. Flink splits its plans in the same way.
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
    calls_python,
    column_references,
    conjunction,
    conjuncts,
    inputs_of,
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
    SortKey,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
)
from everfold.plan.parts import map_inputs
from everfold.types import INT, Field, Schema


def split_python_calls(plan: Plan) -> Plan:
    """Return the plan with each Python call as a whole expression of a projection.

    Before: Filter(f(x) > 1)
            └─ Scan(table=[t], columns=[x])
    After:  Project(x)
            └─ Filter($f > 1)
               └─ Project(x, f(x) AS $f)
                  └─ Scan(table=[t], columns=[x])
    """
    node = map_inputs(plan, split_python_calls)
    match node:
        case Project():
            return _project(node)
        case Filter():
            return _filter(node)
        case WatermarkAssigner():
            extractor = _CallExtractor(node.input)
            (watermark,) = extractor.extract([node.watermark])
            return _first_columns(replace(node, input=extractor.plan, watermark=watermark), node.schema)
        case Unnest():
            extractor = _CallExtractor(node.input)
            (collection,) = extractor.extract([node.collection])
            return _drop_extra_columns(replace(node, input=extractor.plan, collection=collection), node)
        case WindowAggregate() | GroupAggregate():
            extractor = _CallExtractor(node.input)
            keys, calls = extractor.extract(node.keys), tuple(_agg_call(call, extractor) for call in node.calls)
            return replace(node, input=extractor.plan, keys=keys, calls=calls)
        case OverAggregate():
            extractor = _CallExtractor(node.input)
            partition = extractor.extract(node.partition)
            calls = tuple(_agg_call(call, extractor) for call in node.calls)
            order = _sort_keys(node.order, extractor)
            made = replace(node, input=extractor.plan, partition=partition, order=order, calls=calls)
            return _drop_extra_columns(made, node)
        case Rank():
            extractor = _CallExtractor(node.input)
            partition = extractor.extract(node.partition)
            order = _sort_keys(node.order, extractor)
            return _drop_extra_columns(replace(node, input=extractor.plan, partition=partition, order=order), node)
        case Sort():
            extractor = _CallExtractor(node.input)
            sorts = _sort_keys(node.keys, extractor)
            return _first_columns(replace(node, input=extractor.plan, keys=sorts), node.schema)
        case Join():
            return _join(node)
        case Values():
            return _values(node)
        case Scan() | ChangelogNormalize() | Union() | WindowTableFunction() | WindowEmit() | Limit() | SetOperation():
            return node
        case _:
            assert_never(node)


@dataclass(slots=True)
class _CallExtractor:
    """A plan that gets projections on top for the calls extracted from expressions over it.

    Its own columns keep their positions.
    """

    plan: Plan
    _calls: list[PythonCall] = field(default_factory=list)

    def extract(self, expressions: Sequence[Expr], *, keep_alone: bool = False) -> tuple[Expr, ...]:
        """Return the expressions without calls, over the plan as it is afterwards.

        keep_alone: a call that is a whole expression stays.
        """
        while any(map(self._contains_nested_call if keep_alone else calls_python, expressions)):
            expressions = [self._without_innermost(each) for each in expressions]
            schema = self.plan.schema
            self.plan = Project(
                input=self.plan,
                expressions=(*column_references(schema), *self._calls),
                names=(*schema.names, *(f"${call.of.name}" for call in self._calls)),
            )
            self._calls = []
        return tuple(expressions)

    @staticmethod
    def _contains_nested_call(expr: Expr) -> bool:
        parts: Iterable[Expr] = expr.args if isinstance(expr, PythonCall) else (expr,)
        return any(map(calls_python, parts))

    def _without_innermost(self, expression: Expr) -> Expr:
        """Replace the innermost calls of an expression by references to their future columns."""

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
    """Drop the columns of a node beyond those of the schema."""
    if len(node.schema) == len(schema):
        return node
    return Project(input=node, expressions=column_references(schema), names=schema.names)


def _filter(node: Filter) -> Plan:
    """Apply conditions without Python calls first, so that functions see only remaining rows."""
    plain: list[Expr] = []
    calling: list[Expr] = []
    for part in conjuncts(node.condition):
        (calling if calls_python(part) else plain).append(part)
    if not calling:
        return node
    extractor = _CallExtractor(replace(node, condition=conjunction(plain)) if plain else node.input)
    condition = conjunction(extractor.extract(calling))
    return _first_columns(replace(node, input=extractor.plan, condition=condition), node.schema)


def _project(node: Project) -> Project:
    extractor = _CallExtractor(node.input)
    expressions = extractor.extract(node.expressions, keep_alone=True)
    return replace(node, input=extractor.plan, expressions=expressions)


def _sort_keys(keys: Sequence[SortKey], extractor: _CallExtractor) -> tuple[SortKey, ...]:
    expressions = extractor.extract([key.expression for key in keys])
    return tuple(replace(key, expression=each) for key, each in zip(keys, expressions, strict=True))


def _agg_call(call: AggCall, extractor: _CallExtractor) -> AggCall:
    # One after the other: each extraction keeps the positions of the columns before it.
    args = extractor.extract(call.args)
    condition = None if call.filter is None else extractor.extract([call.filter])[0]
    return replace(call, args=args, filter=condition)


def _drop_extra_columns(made: Unnest | OverAggregate | Rank, before: Unnest | OverAggregate | Rank) -> Plan:
    """Drop the extra input columns of a node that appends columns to those of its input."""
    width, wider = len(before.input.schema), len(made.input.schema)
    if width == wider:
        return made
    kept = [*range(width), *range(wider, len(made.schema))]
    columns = column_references(made.schema)
    return Project(input=made, expressions=tuple(columns[at] for at in kept), names=before.schema.names)


def _values(node: Values) -> Plan:
    if not any(calls_python(each) for row in node.rows for each in row):
        return node
    zero = Values(rows=((Literal(type=INT.as_nullable(False), value=0),),), fields=(Field(name="", type=INT),))
    names = node.schema.names
    rows: list[Plan] = [_project(Project(input=zero, expressions=row, names=names)) for row in node.rows]
    return Union(inputs=tuple(rows), span=node.span) if len(rows) > 1 else rows[0]


def _join(node: Join) -> Plan:
    """Move the calls of the condition, one after the other, to the side whose columns they read."""
    call = None if node.condition is None else _innermost(node.condition)
    if call is None:
        return node
    assert node.condition is not None
    width = len(node.left.schema)
    inputs = inputs_of(call)
    if all(at < width for at in inputs):
        column_at, made = width, replace(node, left=_with_column(node.left, call))
    elif all(at >= width for at in inputs):
        over_right = transform(call, lambda part: _shift_reference(part, -width))
        assert isinstance(over_right, PythonCall)
        column_at, made = width + len(node.right.schema), replace(node, right=_with_column(node.right, over_right))
    else:
        raise UnsupportedFeature.of(
            "unsupported-in-join",
            f"the Python function `{call.of.name}` in a join condition reads columns of both sides",
            call.span,
            help="call it in WHERE, or on one side in a subquery",
        )

    def over_wider(part: Expr) -> Expr | None:
        if part == call:
            return InputRef(type=call.type, position=column_at, name=call.of.name, span=call.span)
        return _shift_reference(part, 1 if isinstance(part, InputRef) and part.position >= column_at else 0)

    joined = _join(replace(made, condition=transform(node.condition, over_wider)))
    columns = column_references(joined.schema)
    kept = [*columns[:column_at], *columns[column_at + 1 :]]
    return Project(input=joined, expressions=tuple(kept), names=node.schema.names)


def _innermost(expr: Expr) -> PythonCall | None:
    """Return a call whose arguments contain no calls, None if there is none."""
    found = (part for part in walk(expr) if isinstance(part, PythonCall) and not any(map(calls_python, part.args)))
    return next(found, None)


def _with_column(plan: Plan, call: PythonCall) -> Project:
    schema = plan.schema
    return Project(
        input=plan,
        expressions=(*column_references(schema), call),
        names=(*schema.names, f"${call.of.name}"),
    )


def _shift_reference(part: Expr, by: int) -> Expr | None:
    return replace(part, position=part.position + by) if isinstance(part, InputRef) else None
