"""The branches of a plan: the ways by which its rows come from tables and operators.

A branch is a table or an operator with the conditions, joins and windows that its rows pass; UNION
ALL has those of all its inputs. A column has a text in every branch, which refers to the columns of
what the branch reads.

The conditions and the joins of a branch may be written in any order. A table or a collection that
occurs more than once in a branch is numbered, `dim.v#2`: by the text of its join, not by its
position. Windows are numbered from the innermost one, `window_start#2`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from everfold.limits import MAX_TEXT, too_complex_error
from everfold.plan.expression_text import canonical_text, condition_texts
from everfold.plan.expressions import Expr
from everfold.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    Limit,
    Plan,
    Project,
    Scan,
    SetOperation,
    Sort,
    SortKey,
    StatefulNode,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowTableFunction,
    is_stateful,
)
from everfold.plan.walk import tables_of, walk_plan
from everfold.plan.windows import simplify, window_text

_NUMBER = re.compile("\x01(\\d+)\x02")
"""Stands for the number of a joined table after the text of a column: the join's position."""
_SPECIAL = re.compile(r"[\s.,()|#`'\":\[\]]")
"""Characters of a name that have a meaning in canonical texts."""
VALUES = "VALUES"


@dataclass(frozen=True, slots=True)
class Branch:
    """One way by which rows come from a table or an operator.

    source: the name of the table, or the text of the operator or of constant rows.
    operator: the operator, None for a table and for constant rows.
    filters, windows, joins: the canonical texts of the conditions, of window functions without
        state, and of joins and UNNESTs on the way, sorted.
    columns: the canonical text of each column.
    used: how often each table or collection occurs below, by its name.
    window_count: how many windows are nested below.
    """

    source: str
    operator: StatefulNode | None
    filters: tuple[str, ...]
    windows: tuple[str, ...]
    joins: tuple[str, ...]
    columns: tuple[str, ...]
    used: Mapping[str, int]
    window_count: int

    @property
    def rows(self) -> tuple[str, ...]:
        """What identifies the rows of the branch, besides its conditions."""
        return (self.source, *self.windows, *self.joins)

    @property
    def text(self) -> str:
        """The canonical text of its rows."""
        return " ".join([*self.rows, *(f"WHERE {condition}" for condition in self.filters)])


def branches_of(plan: Plan) -> tuple[Branch, ...]:
    """Return the branches of a plan, in the order in which they are written.

    Raises SqlError `too-complex`.
    """
    return plan.remember("branches", lambda node: tuple(_number_joins(path) for path in _paths_of(node)))


def check_length(texts: Sequence[str], plan: Plan) -> None:
    """Raise SqlError `too-complex` if the texts of a node's columns are too long together."""
    length = sum(map(len, texts))
    if length > MAX_TEXT:
        what = f"a step of its query has {length:,} characters when expanded down to the columns of tables"
        raise too_complex_error(what, MAX_TEXT, plan.span, "write the result of a view to a table and read that table")


@dataclass(frozen=True, slots=True)
class _Joined:
    """A join or an UNNEST of a path. names: of the tables or the collection that it reads."""

    text: str
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Path:
    """A branch whose joins have no numbers yet."""

    source: str
    columns: tuple[str, ...]
    operator: StatefulNode | None = None
    filters: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    joins: tuple[_Joined, ...] = ()
    used: Mapping[str, int] | None = None
    window_count: int = 0

    def join(self, joined: _Joined, columns: Sequence[str] = ()) -> _Path:
        """Return the path with a join. columns: those that it appends."""
        return replace(self, joins=(*self.joins, joined), columns=(*self.columns, *columns))


def _paths_of(plan: Plan) -> tuple[_Path, ...]:
    return plan.remember("paths", _find_paths)


def _find_paths(plan: Plan) -> tuple[_Path, ...]:
    match plan:
        case Scan():
            table = plan.table.identity
            columns = tuple(f"{quote_name(table)}.{quote_name(column.identity)}" for column in plan.table.columns)
            return (_Path(table, columns, used={table: 1}),)
        case Values():
            rows = ", ".join(f"({', '.join(canonical_text(value, ()) for value in row)})" for row in plan.rows)
            columns = tuple(f"{VALUES}.{quote_name(field.name)}" for field in plan.fields)
            return (_Path(f"{VALUES} {rows}", columns, used={VALUES: 1}),)
        case WatermarkAssigner():
            return _paths_of(plan.input)
        case Union():
            return tuple(path for branch in plan.inputs for path in _paths_of(branch))
        case Project():
            return tuple(_project(plan, path) for path in _paths_of(plan.input))
        case Filter():
            return tuple(
                replace(path, filters=(*path.filters, *condition_texts(plan.condition, path.columns)))
                for path in _paths_of(plan.input)
            )
        case Unnest():
            return tuple(_unnest(plan, path) for path in _paths_of(plan.input))
        case Join():
            return tuple(_join(plan, path) for path in _paths_of(plan.left))
        case WindowTableFunction() if not is_stateful(plan):
            return tuple(_assign_windows(plan, path) for path in _paths_of(plan.input))
        case Sort():
            return _limit(f"ORDER BY {order_text(plan.keys, column_texts(plan.input))}", [plan.input])
        case Limit():
            return _limit(f"LIMIT {plan.count} OFFSET {plan.offset}", [plan.input])
        case SetOperation():
            return _limit(plan.kind.value, [plan.left, plan.right])
        case _:
            assert is_stateful(plan)
            # Imported late: the texts of an operator need the branches that it reads.
            from everfold.plan.canonical import output_texts, texts_of

            texts = texts_of(plan)
            adds_window = isinstance(plan, WindowAggregate | WindowTableFunction)
            window_count = max(branch.window_count for branch in texts.branches) + adds_window
            used: Counter[str] = Counter()
            for branch in texts.branches:
                used |= Counter(branch.used)
            return (
                _Path(texts.operator_text, output_texts(plan), operator=plan, used=used, window_count=window_count),
            )


def column_texts(plan: Plan) -> tuple[str, ...]:
    """Return the canonical text of each column of a plan.

    It does not include what happens to rows on the way: conditions, joins, order. A column that
    differs between branches has the texts of all of them, in an order of the branches that does not
    depend on how they are written.
    """
    return plan.remember("column-texts", _merge_branches)


def _merge_branches(plan: Plan) -> tuple[str, ...]:
    branches = sorted(branches_of(plan), key=lambda branch: (branch.rows, branch.filters, sorted(branch.columns)))
    texts = tuple(map(join_alternatives, zip(*(branch.columns for branch in branches), strict=True)))
    check_length(texts, plan)
    return texts


def expression_text(plan: Plan, expression: Expr) -> str:
    """Return the canonical text of an expression over a plan's columns, in the same order of its
    branches.
    """
    keyed = [(branch.rows, branch.filters, canonical_text(expression, branch.columns)) for branch in branches_of(plan)]
    return join_alternatives([text for *_, text in sorted(keyed)])


def join_alternatives(texts: Sequence[str]) -> str:
    """Return the text of a value with the given texts in the branches."""
    return texts[0] if all(text == texts[0] for text in texts) else f"({' | '.join(texts)})"


def quote_name(name: str) -> str:
    """Return a name in a canonical text, in backticks if it contains special characters."""
    return f"`{name.replace('`', '``')}`" if _SPECIAL.search(name) else name


def order_text(keys: Sequence[SortKey], names: Sequence[str]) -> str:
    """Return ORDER BY keys with canonical texts."""
    return ", ".join(write_order(canonical_text(key.expression, names), key) for key in keys)


def write_order(text: str, key: SortKey) -> str:
    """Return an ORDER BY key, whose expression has the given text."""
    nulls = "" if key.nulls_first != key.descending else ", NULLs elsewhere"
    return f"{text}{' DESC' if key.descending else ''}{nulls}"


def time_text(node: WindowAggregate | WindowTableFunction, column: str) -> str:
    """Return the clock of a window, and the time zone in which it is aligned.

    column: the text of the time column.
    """
    return f"{column}, {node.time.value}{'' if node.zone is None else f' in {node.zone}'}"


def name_window_columns(number: int) -> tuple[str, str, str]:
    """Return the texts of the columns that a window adds. number: 1 for the innermost window."""
    start, end, time = (f"window_{name}{_suffix(number)}" for name in ("start", "end", "time"))
    return start, end, time


# --- steps of a path ------------------------------------------------------------------------------


def _project(plan: Project, path: _Path) -> _Path:
    columns = tuple(canonical_text(expression, path.columns) for expression in plan.expressions)
    check_length(columns, plan)
    return replace(path, columns=columns)


def _unnest(plan: Unnest, path: _Path) -> _Path:
    collection = f"UNNEST({canonical_text(plan.collection, path.columns)})"
    columns = [f"{collection}[{position}]{_mark(path)}" for position in range(len(plan.fields))]
    text = f"{collection}{' OUTER' * plan.outer}{' WITH ORDINALITY' * plan.ordinality}"
    return path.join(_Joined(text, frozenset([_NUMBER.sub("", collection)])), columns)


def _join(plan: Join, path: _Path) -> _Path:
    columns = [f"{text}{_mark(path)}" for text in column_texts(plan.right)]
    rows = " UNION ALL ".join(sorted(branch.text for branch in branches_of(plan.right)))
    conditions = [] if plan.condition is None else condition_texts(plan.condition, (*path.columns, *columns))
    text = f"{plan.kind.value} JOIN ({rows}) ON {' AND '.join(sorted(conditions))}"
    if plan.kind in (JoinKind.RIGHT, JoinKind.FULL):
        # Other joins and conditions do not commute with these.
        before = [joined.text for joined in path.joins]
        text += f" AFTER {sorted(before)} {sorted(path.filters)}"
    if plan.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return path.join(_Joined(text))
    names = {table.identity for table in tables_of(walk_plan(plan.right))}
    names |= {VALUES for node in walk_plan(plan.right) if isinstance(node, Values)}
    return path.join(_Joined(text, frozenset(names)), columns)


def _assign_windows(plan: WindowTableFunction, path: _Path) -> _Path:
    number = path.window_count + 1
    time = time_text(plan, path.columns[plan.time_column])
    return replace(
        path,
        windows=(*path.windows, f"{window_text(simplify(plan.window))} of {time}"),
        columns=(*path.columns, *name_window_columns(number)),
        window_count=number,
    )


def _limit(text: str, inputs: Sequence[Plan]) -> tuple[_Path, ...]:
    """Return the path of rows that depend on all rows of some inputs."""
    sides = [" UNION ALL ".join(sorted(branch.text for branch in branches_of(side))) for side in inputs]
    columns = tuple(map(join_alternatives, zip(*map(column_texts, inputs), strict=True)))
    used: Counter[str] = Counter()
    for branch in (branch for side in inputs for branch in branches_of(side)):
        used |= Counter(branch.used)
    window_count = max(branch.window_count for side in inputs for branch in branches_of(side))
    return (_Path(f"{text} ({') ('.join(sides)})", columns, used=used, window_count=window_count),)


# --- numbers of joined tables ---------------------------------------------------------------------


def _mark(path: _Path) -> str:
    return f"\x01{len(path.joins)}\x02"


def _number_joins(path: _Path) -> Branch:
    used = Counter(path.used)
    suffixes = [""] * len(path.joins)
    identities = _identify_joins(path.joins)
    for position in sorted(range(len(identities)), key=identities.__getitem__):
        names = path.joins[position].names
        number = 1 + max((used[name] for name in names), default=0)
        used |= Counter(dict.fromkeys(names, number))
        suffixes[position] = _suffix(number)

    def render(text: str) -> str:
        return _NUMBER.sub(lambda mark: suffixes[int(mark[1])], text)

    return Branch(
        source=path.source,
        operator=path.operator,
        filters=tuple(sorted(map(render, dict.fromkeys(path.filters)))),
        windows=tuple(sorted(map(render, path.windows))),
        joins=tuple(sorted(render(joined.text) for joined in path.joins)),
        columns=tuple(map(render, path.columns)),
        used=used,
        window_count=path.window_count,
    )


def _identify_joins(joins: Sequence[_Joined]) -> list[str]:
    """Return texts by which joins are ordered, without the numbers of the joins before them."""
    identities: list[str] = []
    for joined in joins:
        digests = [hashlib.sha256(identity.encode()).hexdigest() for identity in identities]
        identities.append(_NUMBER.sub(lambda mark: [*digests, ""][int(mark[1])], joined.text))  # noqa: B023
    return identities


def _suffix(number: int) -> str:
    return "" if number == 1 else f"#{number}"
