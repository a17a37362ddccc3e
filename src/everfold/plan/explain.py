"""EXPLAIN: a plan as a readable tree, one node per line, with the state of each operator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from everfold.plan.canonical import frame_text
from everfold.plan.changelog import ChangelogMode
from everfold.plan.emitted_changes import changelog_of, is_updating
from everfold.plan.expressions import Call, Expr, InputRef, Literal, Retyped
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Collect,
    Filter,
    GroupAggregate,
    InWindow,
    Join,
    JoinKind,
    Limit,
    OverAggregate,
    Plan,
    Project,
    Rank,
    Root,
    Scan,
    SetOperation,
    Sink,
    Sort,
    SortKey,
    TimeKind,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
)
from everfold.plan.parts import children, streamed_children
from everfold.plan.windows import Session, Tumble, duration, window_text
from everfold.types import BooleanType, IntervalType, StringType, TimestampType


def explain(root: Root, *, streaming: bool = True) -> str:
    """Return the plan as text, sink first.

    In streaming, each line ends with the kinds of changes that the node emits.
    """
    lines = [_line(describe_root(root), root.input, streaming)]
    _tree(root.input, "", True, lines, streaming)
    return "\n".join(lines)


def describe_root(root: Root) -> str:
    """Return the line of a sink or of the result of a query, without its changes."""
    match root:
        case Sink():
            return f"Sink(table=[{root.table.name}], columns=[{', '.join(root.input.schema.names)}])"
        case Collect():
            return f"Collect(columns=[{', '.join(root.schema.names)}])"


def changelog_mode(node: Plan) -> str:
    """Return the kinds of changes of a node as Flink writes them: I, UB (-U), UA (+U), D."""
    match changelog_of(node):
        case ChangelogMode.INSERT_ONLY:
            return "[I]"
        case ChangelogMode.UPSERT:
            return "[I,UA,D]"
        case ChangelogMode.ALL:
            return "[I,UB,UA,D]" if _deletes(node) else "[I,UB,UA]"


def _deletes(node: Plan) -> bool:
    """Return whether rows may be deleted.

    They may if a table's rows are deleted, or if an aggregate of changing rows can become empty.
    """
    return node.remember("deletes", _deletes_of)


def _deletes_of(node: Plan) -> bool:
    below = children(node)
    if not below or isinstance(node, ChangelogNormalize):
        return changelog_of(node) is not ChangelogMode.INSERT_ONLY
    if isinstance(node, Rank) and not node.numbered and node.first < node.last:
        return changelog_of(node) is not ChangelogMode.INSERT_ONLY
    if isinstance(node, GroupAggregate):
        return any(changelog_of(child) is not ChangelogMode.INSERT_ONLY for child in below)
    return any(map(_deletes, streamed_children(node)))


def _line(text: str, node: Plan, streaming: bool) -> str:
    return f"{text} {changelog_mode(node)}" if streaming else text


def _tree(node: Plan, indent: str, last: bool, lines: list[str], streaming: bool) -> None:
    branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
    lines.append(_line(f"{indent}{branch}{describe_node(node)}", node, streaming))
    inputs = children(node)
    if streaming and (kept := state_of(node)) is not None:
        lines.append(f"{indent}{below}{'│  ' if inputs else '   '}state: {kept}")
    for at, child in enumerate(inputs):
        flows = streaming and at < len(streamed_children(node))
        _tree(child, indent + below, at == len(inputs) - 1, lines, flows)


# --- nodes ----------------------------------------------------------------------------------------


def describe_node(node: Plan) -> str:
    """Return the line of a node, without its inputs and changes."""
    match node:
        case Scan():
            connector = f", connector=[{node.table.connector}]" if node.table.connector else ""
            columns = _names(column.name for column in node.table.columns)
            return f"Scan(table=[{node.table.name}], columns=[{columns}]{connector})"
        case WatermarkAssigner():
            names = node.input.schema.names
            return f"WatermarkAssigner(rowtime=[{names[node.column]}], watermark=[{expr_sql(node.watermark, names)}])"
        case ChangelogNormalize():
            return f"ChangelogNormalize(key=[{_names(node.schema.names[at] for at in node.keys)}])"
        case Project():
            names = node.input.schema.names
            pairs = zip(node.expressions, node.names, strict=True)
            return f"Project({_names(_as(expr_sql(each, names), name) for each, name in pairs)})"
        case Filter():
            return f"Filter({expr_sql(node.condition, node.input.schema.names)})"
        case Union():
            return f"UnionAll(inputs=[{len(node.inputs)}])"
        case Values():
            return f"Values(rows=[{len(node.rows)}], columns=[{_names(node.schema.names)}])"
        case Unnest():
            outer = ", outer" if node.outer else ""
            made = _names(field.name for field in node.fields)
            return f"Unnest({expr_sql(node.collection, node.input.schema.names)} AS [{made}]{outer})"
        case WindowTableFunction():
            keys = _names(node.input.schema.names[at] for at in node.partition_keys)
            by = f", partition by=[{keys}]" if keys else ""
            return f"WindowTableFunction({window_text(node.window)}, time=[{_time(node)}]{by}{_zone(node)})"
        case WindowAggregate():
            return f"WindowAggregate({window_text(node.window)}, time=[{_time(node)}]{_grouping(node)}{_zone(node)})"
        case GroupAggregate():
            return f"GroupAggregate({_grouping(node).removeprefix(', ')})"
        case WindowEmit():
            return f"WindowEmit({_emission(node)})"
        case OverAggregate():
            return (
                f"OverAggregate({_over(node)})"
                if node.calls
                else f"Sort({_order(node.order, node.input.schema.names)})"
            )
        case Rank():
            return f"Rank({_rank(node)})"
        case Sort():
            return f"Sort({_order(node.keys, node.input.schema.names)})"
        case Limit():
            return f"Limit(count=[{'all' if node.count is None else node.count}], offset=[{node.offset}])"
        case Join():
            on = "" if node.condition is None else f", on=[{expr_sql(node.condition, _both(node))}]"
            return f"Join(kind=[{node.kind.value}]{on})"
        case SetOperation():
            return f"SetOperation({node.kind.value})"
        case _:
            assert_never(node)


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


def _as(text: str, name: str) -> str:
    return text if text == name else f"{text} AS {name}"


def _both(node: Join) -> tuple[str, ...]:
    if node.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return (*node.left.schema.names, *node.right.schema.names)
    return node.schema.names


def _time(node: WindowTableFunction | WindowAggregate) -> str:
    name = node.input.schema.names[node.time_column]
    return name if node.time is TimeKind.ROWTIME else f"{name}, {node.time.value}"


def _zone(node: WindowTableFunction | WindowAggregate) -> str:
    return f", zone=[{node.zone}]" if node.zone is not None else ""


def _grouping(node: WindowAggregate | GroupAggregate) -> str:
    names = node.input.schema.names
    keys = f", keys=[{_names(expr_sql(key, names) for key in node.keys)}]" if node.keys else ""
    calls = f", calls=[{_names(call_sql(call, names) for call in node.calls)}]" if node.calls else ""
    return keys + calls


def _over(node: OverAggregate) -> str:
    names = node.input.schema.names
    keys = f"partition=[{_names(expr_sql(key, names) for key in node.partition)}], " if node.partition else ""
    order = _order(node.order, names)
    calls = _names(call_sql(call, names) for call in node.calls)
    return f"{keys}order=[{order}], frame=[{frame_text(node.frame)}], calls=[{calls}]"


def _emission(node: WindowEmit) -> str:
    names = node.input.schema.names
    early = "" if node.early_ms is None else f", early=[{duration(node.early_ms)}]"
    late = (
        "" if node.late_ms is None else f", late=[{duration(node.late_ms)} within {duration(node.window.lateness_ms)}]"
    )
    return f"{window_text(node.window.of)}, window=[{names[node.window.end]}]{early}{late}"


def _rank(node: Rank) -> str:
    names = node.input.schema.names
    keys = f", partition=[{_names(expr_sql(key, names) for key in node.partition)}]" if node.partition else ""
    order = f", order=[{_order(node.order, names)}]" if node.order else ""
    window = "" if node.window is None else f", window=[{names[node.window.end]}]"
    return f"rows=[{node.first} to {node.last}]{keys}{order}{window}{', numbered' if node.numbered else ''}"


def _order(keys: Iterable[SortKey], names: tuple[str, ...]) -> str:
    return _names(expr_sql(key.expression, names) + (" DESC" if key.descending else "") for key in keys)


_NULLS = {"RESPECT": "", "IGNORE": " IGNORE NULLS", "NULL": " NULL ON NULL", "ABSENT": " ABSENT ON NULL"}
_WITH_NULLS = ("ARRAY_AGG", "JSON_ARRAYAGG", "JSON_OBJECTAGG")
"""Aggregates whose constant is a NULL clause; `_NULLS` has its SQL."""


def call_sql(call: AggCall, names: tuple[str, ...]) -> str:
    """Return an aggregate call in a readable form close to SQL."""
    values = [*call.args, *call.constants]
    clause = ""
    if call.function in _WITH_NULLS and call.constants:
        values, clause = [*call.args], _NULLS[str(call.constants[0].value)]
    args = _names(expr_sql(value, names) for value in values) or "*"
    distinct = "DISTINCT " if call.distinct else ""
    condition = f" FILTER (WHERE {expr_sql(call.filter, names)})" if call.filter is not None else ""
    function = call.function.strip("`") if call.python is not None else call.function
    return f"{function}({distinct}{args}{clause}){condition}"


def state_of(node: Plan) -> str | None:
    """Return what an operator keeps and how long, None for a node without state."""
    match node:
        case WindowAggregate(window=Session()):
            return f"accumulators per session{_per(node.keys)}, until the gap after its last row has passed"
        case WindowAggregate(window=Tumble()):
            return f"accumulators per window{_per(node.keys)}, until the window has fired"
        case WindowAggregate():
            assert not isinstance(node.window, Session)
            width = duration(node.window.slice_ms)
            return f"accumulators per slice of {width}{_per(node.keys)}, until its last window has fired"
        case WindowTableFunction(window=Session()):
            return "rows of open sessions, until the gap after the last row has passed"
        case ChangelogNormalize():
            return "the last row per key, forever"
        case GroupAggregate(window=InWindow() as window):
            lateness = f"{duration(window.lateness_ms)} after " if window.lateness_ms else ""
            return f"accumulators per window{_per(node.keys)}, until {lateness}it has ended"
        case GroupAggregate():
            return f"accumulators{_per(node.keys)}, forever"
        case WindowEmit():
            return "pending changes"
        case OverAggregate():
            return _over_state(node)
        case Rank():
            return _rank_state(node)
        case _:
            return None


def _over_state(node: OverAggregate) -> str:
    waiting = "" if node.time is TimeKind.PROCTIME else "rows until the watermark has passed them; "
    per = " per partition" if node.partition else ""
    if node.time is TimeKind.BOUNDED:
        return f"all rows{per}, forever"
    if node.frame.first is None:
        return f"{waiting}accumulators{per}, forever"
    if not node.calls:
        return f"{waiting}the last row"
    if node.frame.rows:
        return f"{waiting}the last {max(-node.frame.first, 1)} rows{per}, forever"
    return f"{waiting}the rows of {-node.frame.first * 3 // 2} ms"


def _rank_state(node: Rank) -> str:
    per = " per partition" if node.partition else ""
    if node.window is not None:
        return f"the first {node.last} rows{per}, until the window has ended"
    if is_updating(node.input):
        return f"all rows{per}, forever"
    if node.is_by_arrival:
        return f"the number of rows{per}, forever"
    return f"the first {node.last} rows{per}, forever"


def _per(keys: tuple[Expr, ...]) -> str:
    return " and key" if keys else ""


# --- expressions ----------------------------------------------------------------------------------

INFIX = frozenset(
    {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||", "LIKE", "IS DISTINCT FROM"}
)


def expr_sql(expr: Expr, names: tuple[str, ...]) -> str:
    """Return an expression in a readable form close to SQL."""
    match expr:
        case InputRef():
            return names[expr.position]
        case Literal():
            return _literal(expr)
        case Retyped(args=(operand,)):
            return expr_sql(operand, names)
        case Call(function="CAST" | "TRY_CAST", args=(operand, *_)):
            return f"{expr.function}({expr_sql(operand, names)} AS {expr.type.sql})"
        case Call(function="SHIFT", args=(operand, Literal(value=int(), type=IntervalType()) as by)):
            return f"{_operand(operand, names)} {_shift(by)}"
        case Call(function="FIELD", args=(operand, Literal() as name)):
            return f"{expr_sql(operand, names)}.{name.value}"
        case Call(function="ITEM", args=(operand, index)):
            return f"{expr_sql(operand, names)}[{expr_sql(index, names)}]"
        case Call(args=(left, right)) if expr.function in INFIX:
            return f"{_operand(left, names)} {expr.function} {_operand(right, names)}"
        case Call(args=(operand,)) if expr.function.startswith("IS "):
            return f"{_operand(operand, names)} {expr.function}"
        case Call():
            return f"{expr.function}({', '.join(expr_sql(arg, names) for arg in expr.args)})"


def _operand(expr: Expr, names: tuple[str, ...]) -> str:
    text = expr_sql(expr, names)
    return (
        f"({text})" if isinstance(expr, Call) and (expr.function in INFIX or expr.function.startswith("IS ")) else text
    )


def _shift(by: Literal) -> str:
    assert isinstance(by.value, int)
    assert isinstance(by.type, IntervalType)
    amount = f"{abs(by.value)} MONTH" if by.type.months else duration(abs(by.value))
    return f"{'-' if by.value < 0 else '+'} INTERVAL {amount}"


def _literal(expr: Literal) -> str:
    match expr.value, expr.type:
        case None, _:
            return "NULL"
        case bool(), BooleanType():
            return "TRUE" if expr.value else "FALSE"
        case int(), IntervalType() as of:
            return f"INTERVAL {expr.value} MONTH" if of.months else f"INTERVAL {duration(int(expr.value))}"
        case _, TimestampType():
            return f"TIMESTAMP '{expr.value}'"
        case _, StringType():
            return "'" + str(expr.value).replace("'", "''") + "'"
        case _:
            return str(expr.value)
