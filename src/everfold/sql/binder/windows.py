"""Window TVFs, and how a GROUP BY over one becomes a window aggregate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from everfold.errors import SqlError, suggest_or_list_names
from everfold.plan.expressions import Expr, InputRef, Literal, column_references, conjuncts, inputs_of, substitute
from everfold.plan.nodes import Filter, Plan, Project, TimeKind, Union, Unnest, WindowAggregate, WindowTableFunction
from everfold.plan.walk import walk_plan
from everfold.plan.windows import Cumulate, Hop, Session, Tumble, Window
from everfold.sql import syntax
from everfold.sql.binder.context import Context, quote_names
from everfold.sql.binder.literals import bind_literal
from everfold.sql.binder.scope import Relation
from everfold.types import IntervalType, TimestampType, with_article

START, END, TIME = "window_start", "window_end", "window_time"


# --- the function ---------------------------------------------------------------------------------


def bind_window_function(node: syntax.WindowTvf, relation: Relation, context: Context) -> WindowTableFunction:
    """Bind TUMBLE, HOP, CUMULATE or SESSION over a relation."""
    window = build_window(node.kind, node.by_role, context)
    column = _column(node.time_column, relation, context, f"the time column of {node.kind}")
    time = time_kind(node.kind, node.time_column, relation.plan, column, context)
    of = relation.plan.schema[column].type
    assert isinstance(of, TimestampType)
    keys = tuple(_column(each, relation, context, "a PARTITION BY column") for each in node.partition_by)
    return WindowTableFunction(
        input=relation.plan,
        window=window,
        time_column=column,
        time=time,
        partition_keys=tuple(dict.fromkeys(keys)),
        zone=context.settings.local_time_zone if of.local_zone else None,
        span=node.span,
    )


def _column(path: syntax.ColumnPath, relation: Relation, context: Context, what: str) -> int:
    found = [column for column in relation.visible_columns if column.name == path.names[-1]]
    if len(path.names) > 1 or not found:
        known = [column.name for column in relation.visible_columns]
        raise context.error(
            "unknown-column",
            f"no column is named `{'.'.join(path.names)}`: {what} must be one",
            path,
            suggest_or_list_names(path.names[-1], known),
        )
    if len(found) > 1:
        raise context.error(
            "ambiguous-column",
            f"`{path.names[-1]}` can be {len(found)} columns",
            path,
            "rename one of them with AS where it is defined",
        )
    return found[0].position


def time_kind(kind: str, node: syntax.Expression, plan: Plan, column: int, context: Context) -> TimeKind:
    """Return the clock of a window of that kind over a column, which `node` names.

    Raises SqlError `no-time-attribute`.
    """
    field = plan.schema[column]
    name = field.name
    if not isinstance(field.type, TimestampType):
        raise context.error(
            "no-time-attribute",
            f"`{name}` is {with_article(field.type)}, and {kind} takes a TIMESTAMP or TIMESTAMP_LTZ",
            node,
            "compute one in the table: ts AS TO_TIMESTAMP(…)",
        )
    if field.time == "proctime":
        if not context.streaming:
            raise context.unsupported(
                "proctime-in-batch",
                f"`{name}` is processing time, and batch has none",
                node,
                "use a column of the data as the time",
            )
        return TimeKind.PROCTIME
    if not context.streaming:
        return TimeKind.BOUNDED
    if field.time == "rowtime":
        return TimeKind.ROWTIME
    origin = extract_window(plan)
    if origin is not None and origin.kind_of(origin.columns[column]) in (START, END):
        raise context.error(
            "no-time-attribute",
            f"`{name}` is the {origin.kind_of(origin.columns[column])} of a window: "
            "a plain timestamp, not a time attribute",
            node,
            "group by window_time too, and use that as the time column",
        )
    raise context.error(
        "no-time-attribute",
        f"`{name}` is not a time attribute, and {kind} needs one in streaming",
        node,
        _missing_watermark(plan, name),
    )


def _missing_watermark(plan: Plan, name: str) -> str:
    if any(field.time for below in walk_plan(plan) for field in below.schema if field.name == name):
        if any(isinstance(below, Union) for below in walk_plan(plan)):
            return "all sides of UNION ALL must have it as their time attribute"
        return "an expression over a time attribute is not one: select the column unchanged"
    if any(field.time == "rowtime" for field in plan.schema):
        return "the time attribute here is " + quote_names(
            field.name for field in plan.schema if field.time == "rowtime"
        )
    return f"declare it in CREATE TABLE: WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND"


def build_window(kind: str, given: Mapping[str, syntax.Expression], context: Context) -> Window:
    """Build a window of a kind (TUMBLE, HOP, CUMULATE, SESSION) from its sizes, by role."""
    sizes = {role: _milliseconds(kind, role, given[role], context) for role in given}
    for role, value in sizes.items():
        if role != "OFFSET" and value <= 0:
            raise context.error(
                "window-size", f"the {role.lower()} of {kind} must be positive, not {value} ms", given[role]
            )
    offset = sizes.get("OFFSET", 0)
    match kind:
        case "TUMBLE":
            if abs(offset) >= sizes["SIZE"]:
                raise context.error(
                    "window-offset",
                    f"the offset of TUMBLE must be shorter than its size: {offset} ms against {sizes['SIZE']} ms",
                    given["OFFSET"],
                )
            return Tumble(size_ms=sizes["SIZE"], offset_ms=offset)
        case "HOP":
            return Hop(slide_ms=sizes["SLIDE"], size_ms=sizes["SIZE"], offset_ms=offset)
        case "CUMULATE":
            if sizes["SIZE"] % sizes["STEP"]:
                message, help_ = _not_a_multiple(kind, "step", sizes["SIZE"], sizes["STEP"])
                raise context.error("window-size", message, given["SIZE"], help_)
            return Cumulate(step_ms=sizes["STEP"], size_ms=sizes["SIZE"], offset_ms=offset)
        case _:
            return Session(gap_ms=sizes["GAP"])


def check_size(source: WindowTableFunction, context: Context) -> None:
    """Reject a stream's aggregation over a HOP whose size is not a multiple of its slide.

    Flink rejects it too. A group window and a batch may have such a size.
    """
    window = source.window
    if context.streaming and isinstance(window, Hop) and not window.is_whole_slides:
        message, help_ = _not_a_multiple("HOP", "slide", window.size_ms, window.slide_ms)
        help_ = help_ or "write GROUP BY HOP(ts, slide, size), which takes any size"
        raise SqlError.of("window-size", message, source.span, help_)


def _not_a_multiple(kind: str, role: str, size: int, part: int) -> tuple[str, str | None]:
    """Return message and help for a window whose size is not a multiple of its slide or step."""
    message = f"the size of {kind} must be a multiple of its {role}: {size} ms against {part} ms"
    swapped = part > size and part % size == 0
    return message, f"{kind} takes the {role} first, then the size" if swapped else None


def _milliseconds(kind: str, role: str, value: syntax.Expression, context: Context) -> int:
    literal = bind_literal(value, context)
    if literal is None or not isinstance(literal.type, IntervalType):
        help_ = (
            "write the minus inside the quotes: INTERVAL '-1' MINUTE"
            if isinstance(value, syntax.Negative)
            else "such as INTERVAL '10' MINUTES"
        )
        raise context.error("window-size", f"the {role.lower()} of {kind} must be a constant INTERVAL", value, help_)
    if literal.type.months:
        raise context.error(
            "window-size",
            f"the {role.lower()} of {kind} must be of fixed length, and months are not",
            value,
            "use DAY, HOUR, MINUTE or SECOND",
        )
    assert isinstance(literal.value, int)
    return literal.value


# --- the aggregate over it ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedWindow:
    """A relation whose window function was extracted from under its projections and filters.

    `source` is the window function. Each of `columns` is an expression over `inner`, followed by
    window_start, window_end and window_time. `window_conditions` are conditions over only these
    three. `is_entangled`: a condition compares a column with the window, so the function cannot be
    extracted.
    """

    source: WindowTableFunction | WindowAggregate
    inner: Plan
    columns: tuple[Expr, ...]
    window_conditions: tuple[Expr, ...] = ()
    is_entangled: bool = False

    @property
    def width(self) -> int:
        """The number of columns of `inner`; the three window columns follow them."""
        return len(self.inner.schema)

    def kind_of(self, expr: Expr) -> str | None:
        """Return which of the three window columns an expression is."""
        if isinstance(expr, InputRef) and expr.position >= self.width:
            return (START, END, TIME)[expr.position - self.width]
        return None

    def column_use(self, expr: Expr) -> tuple[bool, bool]:
        """Return whether an expression reads columns of `inner`, and whether the window."""
        read = inputs_of(expr)
        return any(at < self.width for at in read), any(at >= self.width for at in read)


def extract_window(plan: Plan) -> ExtractedWindow | None:
    """Return the window function whose rows are the plan's, one to one; None if there is none."""
    match plan:
        case WindowTableFunction():
            return ExtractedWindow(source=plan, inner=plan.input, columns=column_references(plan.schema))
        case WindowAggregate():
            # The rest are its own columns; nothing below could be the input of another window.
            keys, calls = len(plan.keys), len(plan.calls)
            rest = Project(
                input=plan,
                expressions=column_references(plan.schema)[: keys + calls],
                names=plan.schema.names[: keys + calls],
            )
            return ExtractedWindow(source=plan, inner=rest, columns=column_references(plan.schema))
        case Project():
            below = extract_window(plan.input)
            return (
                None
                if below is None
                else replace(below, columns=tuple(substitute(each, below.columns) for each in plan.expressions))
            )
        case Filter():
            below = extract_window(plan.input)
            return None if below is None else _add_filter(below, plan)
        case Unnest():
            below = extract_window(plan.input)
            return None if below is None else _add_unnest(below, plan)
        case _:
            return None


def _add_filter(below: ExtractedWindow, plan: Filter) -> ExtractedWindow:
    inner, late, entangled = below.inner, list(below.window_conditions), below.is_entangled
    for part in conjuncts(substitute(plan.condition, below.columns)):
        of_rows, of_window = below.column_use(part)
        if of_window and of_rows:
            entangled = True
        elif of_window:
            late.append(part)
        else:
            inner = Filter(input=inner, condition=part, span=plan.span)
    return replace(below, inner=inner, window_conditions=tuple(late), is_entangled=entangled)


def _add_unnest(below: ExtractedWindow, plan: Unnest) -> ExtractedWindow:
    collection = substitute(plan.collection, below.columns)
    of_window = below.column_use(collection)[1]
    width, more = below.width, len(plan.fields)
    moved = tuple(
        InputRef(type=field.type, position=at if at < width else at + more, name=field.name)
        for at, field in enumerate((*below.inner.schema, *below.source.schema.fields[-3:]))
    )
    if of_window:  # the UNNEST stays above the window: only the width of `inner` counts
        collection = Literal(type=collection.type, value=None)
    inner = replace(plan, input=below.inner, collection=collection)
    appended = column_references(inner.schema)[width:]
    return replace(
        below,
        inner=inner,
        is_entangled=below.is_entangled or of_window,
        columns=(*(substitute(each, moved) for each in below.columns), *appended),
        window_conditions=tuple(substitute(each, moved) for each in below.window_conditions),
    )
