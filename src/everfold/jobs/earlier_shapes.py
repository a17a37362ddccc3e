"""Shapes and state of jobs of releases before format 7 of the manifest.

Their shapes do not tell which parts of a query belong together, and their state is named by the
texts of those releases (`earlier_texts`). A query that can be planned again gives both: its shape,
and the earlier names of its state, which the job keeps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from everfold.compat.shape import BranchShape, CallShape, OperatorShape, QueryShape, shape_of
from everfold.compat.state_schema import NamedShape
from everfold.connectors.registry import apply_connector
from everfold.errors import EverfoldError
from everfold.jobs.earlier_texts import EarlierNames, write_call, write_columns, write_expression
from everfold.operators.state_names import StateNames
from everfold.plan.canonical import KINDS, call_text, texts_of
from everfold.plan.expressions import Expr, column_references, conjuncts
from everfold.plan.naming import number_operators
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Filter,
    GroupAggregate,
    OverAggregate,
    Plan,
    Rank,
    Root,
    Scan,
    Sink,
    StatefulNode,
    TimeKind,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
    is_stateful,
)
from everfold.plan.parts import map_streamed_inputs
from everfold.plan.walk import operators_of, walk_to_operators
from everfold.plan.windows import Tumble
from everfold.secrets import redact_script
from everfold.sql.planner import Session, Submit

BindStatement: TypeAlias = Callable[[str], Sequence[Root]]
"""Binds a statement with the declarations of a script. Raises EverfoldError."""


def is_earlier(shape: QueryShape) -> bool:
    """Whether a shape was stored by a release before format 7."""
    return any(not operator.input.branches for operator in shape.operators)


def compute_earlier_fingerprint(roots: Sequence[Root], zone: str) -> str:
    """Return the digest by which the releases before format 7 recognized a query."""
    parts = [f"{root.table.name}<-{root.input!r}" if isinstance(root, Sink) else repr(root.input) for root in roots]
    return hashlib.sha256("\n".join([zone, *parts]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PlannedAgain:
    """Plans that the query of a stored version may have.

    is_declared_as_then: whether they read the tables as the version declared them.
    """

    roots: Sequence[Root]
    is_declared_as_then: bool = False


def complete_shapes(shapes: Sequence[QueryShape], planned: PlannedAgain) -> list[QueryShape] | None:
    """Return the shapes of plans, with the versions and the names of the state in stored ones.

    None if the plans are not those of the stored shapes.
    """
    if len(shapes) != len(planned.roots):
        return None
    completed = [
        _complete(shape, root, planned.is_declared_as_then) for shape, root in zip(shapes, planned.roots, strict=True)
    ]
    return None if None in completed else [shape for shape in completed if shape is not None]


def read_alone(shape: QueryShape) -> QueryShape:
    """Return a stored shape with the branches of its operators, which each read one table or
    operator.

    The shape itself if what it stores may have another meaning.
    """
    if not all(_is_plain(shape, operator) for operator in shape.operators):
        return shape
    return replace(shape, operators=tuple(map(_add_branch, shape.operators)))


def _is_plain(shape: QueryShape, operator: OperatorShape) -> bool:
    read = operator.input
    texts = [*operator.keys, *operator.order, *operator.columns, *(call.text for call in operator.calls)]
    below = [shape.operators[position] for position in operator.below]
    return (
        len(operator.scans) == 1
        and len([*read.tables, *operator.below]) == 1
        and not read.others
        and not any(" | " in text for text in texts)
        and not ((read.windows or operator.window) and any(each.window or each.input.windows for each in below))
    )


def _add_branch(operator: OperatorShape) -> OperatorShape:
    read = operator.input
    (table,) = read.tables or ("",)
    below = None if read.tables else operator.below[0]
    branch = BranchShape(table, below, read.filters, read.windows, ())
    return replace(operator, input=replace(read, branches=(branch,)))


def plan_stored_script(sql: str, script: str, zone: str) -> Iterator[PlannedAgain]:
    """Yield the plans that a stored statement may have by the script that was stored with it."""
    for dialect in ("flink", "lenses"):
        with suppress(EverfoldError):
            session = Session(
                {"everfold.dialect": dialect, "table.local-time-zone": zone},
                connected=apply_connector,
                lenient=True,
            )
            submits = [action for action in session.run(script) if isinstance(action, Submit)]
            same = (submit for submit in submits if redact_script(submit.text).strip() == sql)
            yield from (PlannedAgain(submit.roots, is_declared_as_then=True) for submit in same)


def plan_with_new_script(sql: str, roots: Sequence[Root], bind: BindStatement | None) -> Iterator[PlannedAgain]:
    """Yield the plans that a stored statement may have by the script that is to continue the job.

    roots: the plans of the new query. bind: binds with the declarations of the script.
    """
    if bind is not None:
        with suppress(EverfoldError):
            yield PlannedAgain(number_operators(bind(sql)))
    if all(map(_is_unambiguous, operators_of(roots))):
        yield PlannedAgain(roots)


def _is_unambiguous(node: StatefulNode) -> bool:
    """Whether the earlier texts of an operator and of its input had one meaning only."""
    branches = texts_of(node).branches
    return len(branches) == 1 and not branches[0].joins and branches[0].window_count < 2


def _complete(shape: QueryShape, root: Root, is_declared_as_then: bool) -> QueryShape | None:
    nodes = operators_of([root])
    if (len(nodes), len(root.input.schema)) != (len(shape.operators), len(shape.columns)):
        return None
    if not all(map(_is_shape_of, shape.operators, nodes)):
        return None
    stored_operators = iter(shape.operators)

    def keep_state(node: Plan) -> Plan:
        if is_stateful(node):
            node = _keep_state(node, next(stored_operators))
        return map_streamed_inputs(node, keep_state)

    completed = shape_of(replace(root, input=keep_state(root.input)))
    operators = []
    for operator, stored, node in zip(completed.operators, shape.operators, nodes, strict=True):
        operator = _keep_types(operator, stored, node)
        if stored.positions is not None and not is_declared_as_then:
            operator = replace(operator, positions=stored.positions)
        if stored.kind != operator.kind:
            operator = replace(
                operator, kind=stored.kind, keys=_restore_keys(operator, stored, node), window="", time=""
            )
        operators.append(operator)
    return replace(completed, operators=tuple(operators))


def _restore_keys(operator: OperatorShape, stored: OperatorShape, node: StatefulNode) -> tuple[str, ...]:
    """Return the keys of a stored operator; those that its plan no longer has are as stored."""
    written = dict(zip((_write(key, node.input) for key in _keys(node)), operator.keys, strict=True))
    return tuple(written.get(key, key) for key in stored.keys)


def _keep_types(operator: OperatorShape, stored: OperatorShape, node: StatefulNode) -> OperatorShape:
    """Return the shape of an operator with the stored types and coverage of its state."""
    names = zip(_list_names(node, StateNames(node)), _list_names(node, EarlierNames(node)), strict=True)
    earlier_texts = {name.partition(" ")[2]: earlier.partition(" ")[2] for name, earlier in names}
    types = {each.text: each.type for each in (*stored.kept.columns, *stored.kept.expressions)}

    def restore_types(named: tuple[NamedShape, ...]) -> tuple[NamedShape, ...]:
        return tuple(
            replace(each, type=types.get(earlier_texts.get(each.text, each.text), each.type)) for each in named
        )

    def restore_call(call: CallShape, stored_call: CallShape) -> CallShape:
        return replace(call, args=stored_call.args, counts_since=stored_call.counts_since)

    stored_calls = {call.text: call for call in stored.calls}
    calls = _calls_of(node)
    earlier_calls = {call_text(node, call): write_call(call, node.input) for call in calls}
    return replace(
        operator,
        kept=replace(
            operator.kept,
            columns=restore_types(operator.kept.columns),
            expressions=restore_types(operator.kept.expressions),
        ),
        calls=tuple(restore_call(call, stored_calls[earlier_calls[call.text]]) for call in operator.calls),
    )


def _calls_of(node: StatefulNode) -> Sequence[AggCall]:
    return node.calls if isinstance(node, GroupAggregate | WindowAggregate | OverAggregate) else ()


def _keep_state(node: StatefulNode, shape: OperatorShape) -> StatefulNode:
    """Return a node with the versions since which its calls count, and the names of its state."""
    names = _pair_names(_list_names(node, StateNames(node)), _list_names(node, EarlierNames(node)))
    if isinstance(node, GroupAggregate | WindowAggregate | OverAggregate):
        since = {call.text: call.since for call in shape.calls}
        calls = tuple(replace(call, since=since[write_call(call, node.input)]) for call in node.calls)
        node = replace(node, calls=calls)
    return replace(node, state_names=names)


def _pair_names(names: Sequence[str], earlier: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the earlier name of each name that differs.

    Two names that had the same earlier name did not have a state of their own: the second one
    starts without state.
    """
    pairs: dict[str, str] = {}
    taken: set[str] = set()
    for name, earlier_name in zip(names, earlier, strict=True):
        if name not in pairs:
            free = (each for each in (earlier_name, name, f"{name} #2") if each not in taken)
            pairs[name] = next(free)
            taken.add(pairs[name])
    return tuple((name, earlier_name) for name, earlier_name in pairs.items() if name != earlier_name)


def _list_names(node: StatefulNode, names: StateNames) -> list[str]:
    match node:
        case GroupAggregate():
            return [*names.name_keys(node.keys), *_list_call_names(node.calls, names)]
        case WindowAggregate():
            return [*names.name_keys(node.keys), *map(names.name_call, node.calls)]
        case OverAggregate():
            calls = map(names.name_call, node.calls)
            return [*names.name_keys(node.partition), *names.name_columns(), *_list_order_names(node, names), *calls]
        case Rank():
            return [*names.name_keys(node.partition), *names.name_columns(), *_list_order_names(node, names)]
        case WindowTableFunction() | WindowEmit() | ChangelogNormalize():
            return names.name_columns()


def _list_call_names(calls: Sequence[AggCall], names: StateNames) -> Iterator[str]:
    for call in calls:
        yield names.name_call(call)
        if call.args:
            table, columns = names.name_values(call.args)
            yield from (table, *columns, names.name_count(call))


def _list_order_names(node: OverAggregate | Rank, names: StateNames) -> list[str]:
    return [names.name_order(key.expression) for key in node.order]


# --- whether a plan has a stored shape ------------------------------------------------------------


def _is_shape_of(shape: OperatorShape, node: StatefulNode) -> bool:
    """Whether a stored shape is that of an operator, as far as earlier releases recorded it."""
    rows = node.input
    if isinstance(node, OverAggregate) and node.time is not TimeKind.BOUNDED:
        while isinstance(rows, OverAggregate):
            rows = rows.input
    calls = _calls_of(node)
    stores_rows = not isinstance(node, GroupAggregate | WindowAggregate | WindowEmit)
    passed = list(walk_to_operators(rows))
    filters = [
        _write(part, each.input) for each in passed if isinstance(each, Filter) for part in conjuncts(each.condition)
    ]
    keys = tuple(_write(key, node.input) for key in _keys(node))
    return (
        (shape.kind, shape.keys) == (KINDS[type(node)], keys)
        or (_groups_sessions(shape, node) and {*keys} <= {*shape.keys})
    ) and (
        {call.text for call in shape.calls} == {write_call(call, node.input) for call in calls}
        and shape.columns == (tuple(sorted(write_columns(rows))) if stores_rows else ())
        and shape.input.tables == tuple(sorted(each.table.name for each in passed if isinstance(each, Scan)))
        and shape.input.filters == tuple(sorted(filters))
    )


def _groups_sessions(shape: OperatorShape, node: StatefulNode) -> bool:
    """Whether a plan now has windows instead of stored groups: those of complete sessions."""
    return shape.kind == "GroupAggregate" and isinstance(node, WindowAggregate) and node.window == Tumble(size_ms=1)


def _write(expression: Expr, plan: Plan) -> str:
    return write_expression(expression, write_columns(plan))


def _keys(node: StatefulNode) -> Sequence[Expr]:
    columns = column_references(node.input.schema)
    match node:
        case GroupAggregate() | WindowAggregate():
            return node.keys
        case OverAggregate() | Rank():
            return node.partition
        case WindowTableFunction():
            return [columns[position] for position in node.partition_keys]
        case ChangelogNormalize() | WindowEmit():
            return [columns[position] for position in node.keys]
