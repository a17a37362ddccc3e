"""The effect of a change on the columns and the rows of a result: what happens to the state behind
a column, and whether the column still means the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from everfold.compat.reuse import starts_complete
from everfold.compat.rules import Change
from everfold.compat.shape import (
    CallShape,
    ColumnShape,
    ConditionShape,
    QueryShape,
    describe_text,
    reads_column,
)
from everfold.errors import Span


class Status(StrEnum):
    """The effect of a change on the state behind a column.

    KEPT: it covers the same rows as before.
    MIXED: it is computed from aggregates that cover different rows.
    STARTS: it covers the rows from the restart on.
    BACKFILLED: it is new, and covers the past rows, too.
    DROPPED: the new query has no such column.
    LOST: the job cannot resume.
    """

    KEPT = "kept"
    MIXED = "mixed"
    STARTS = "starts at the restart"
    BACKFILLED = "backfilled"
    DROPPED = "dropped"
    LOST = "not reusable"


class Meaning(StrEnum):
    """The effect of a change on the meaning of a column with this name."""

    SAME = "unchanged"
    CHANGED = "expression changed"
    RENAMED = "renamed"
    NEW = "new"
    GONE = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnJudgement:
    """The effect of a change on a column of the result.

    sink: the table, `` for a bare SELECT.
    expression: the column in a form close to SQL, over the columns of tables.
    was: of a renamed column, its old name; of a changed expression, the old one.
    since: the version of the job since which it covers rows, 0 for the beginning; None if it starts
        with the change or is gone.
    """

    name: str
    status: Status
    reason: str
    sink: str = ""
    meaning: Meaning = Meaning.SAME
    expression: str = ""
    was: str = ""
    since: int | None = 0

    @property
    def label(self) -> str:
        """The status and, if the meaning has changed, how."""
        if self.status is Status.KEPT and self.meaning is Meaning.CHANGED:
            return f"kept (expression changed: {self.expression})"
        if self.meaning is Meaning.RENAMED and self.status in (Status.KEPT, Status.MIXED):
            return f"{self.status.value} (was column {self.was})"
        return self.status.value


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEffect:
    """Rows of the result that a change affects although their columns are kept."""

    condition: str
    message: str
    sink: str = ""
    span: Span | None = None

    @property
    def location(self) -> Span | None:
        """The location of the condition in the new query, if it can be shown."""
        return self.span if self.span is not None and self.span.text else None


_GROUPS = {"WindowAggregate": "windows", "OverAggregate": "partitions"}
"""What rows are grouped by, for each kind of operator."""
_EFFECT_ON_OLD_GROUPS = {
    (False, False): "they are left out unless the condition is TRUE over the later rows",
    (False, True): "they are joined by its value over the later rows",
    (True, False): "their rows in the table stay until the condition is TRUE over the later rows",
    (True, True): "their rows in the table stay until the join finds a match for its value over the later rows",
}
"""By whether the rows may change, and whether the condition is a join."""
_EFFECT_OF_JOIN = "rows stay in the table until they change; only a rebuild removes those that no longer exist"
_EFFECT_OF_NEW = {
    False: "rows that it excludes stay in the table; --refresh removes them",
    True: _EFFECT_OF_JOIN,
}
_EFFECT_OF_DROPPED = {
    False: "rows that it excluded appear when they change; --refresh emits them all",
    True: _EFFECT_OF_JOIN,
}
_TABLE, _JOINED = re.compile(r"(\w+)`?\."), re.compile(r"(?: JOIN \(| UNION ALL )`?(\w+)")
"""The names of tables in canonical texts of columns, and of joins."""
_SEVERITY = (Status.KEPT, Status.BACKFILLED, Status.STARTS, Status.MIXED)
_NOW, _FILLED = -1, -2
"""The version since which an aggregate covers rows, if it starts with the change, without or with
a backfill.
"""


@dataclass(frozen=True)
class ColumnJudge:
    """Judges the columns of the result of a pair of queries whose change reuses state.

    matching: the position of each kept operator in the old query, by that in the new one.
    changes: the changes of these operators, by the same position.
    is_backfilled: whether new aggregates are computed from past input, too.
    """

    old: QueryShape
    new: QueryShape
    matching: Mapping[int, int]
    changes: Mapping[int, Change]
    is_backfilled: bool

    @cached_property
    def _meanings(self) -> _Meanings:
        return _Meanings(self.old, self.new)

    def judge_columns(self) -> Iterator[ColumnJudgement]:
        """Yield the columns of the new query, then the dropped ones: columns of the old query whose
        name and meaning are both missing in the new one.
        """
        for column in self.new.columns:
            status, reason, since = self._judge_state(column)
            meaning, was = self._meanings.compare(column)
            yield ColumnJudgement(
                name=column.name,
                status=status,
                reason=reason,
                sink=self._sink,
                meaning=meaning,
                expression=describe_text(column.text, self.new.operators),
                was=was,
                since=since,
            )
        yield from drop_columns(self.old, self.new)

    def find_row_effects(self) -> Iterator[RowEffect]:
        """Yield the effects of conditions on the result that have changed."""
        old = {(condition.text, frozenset(condition.origins)): condition for condition in self.old.conditions}
        new = {(condition.text, self._find_old_origins(condition)): condition for condition in self.new.conditions}
        for key, condition in new.items():
            new_calls = self._list_new_calls(condition)
            if new_calls:
                verb, groups = _verb(new_calls, "has", "have"), self._describe_groups(condition)
                message = (
                    f"reads {_join(new_calls)}, which {verb} no value for {groups} from before the restart until they"
                    " get a row: "
                )
                message += _EFFECT_ON_OLD_GROUPS[condition.updating, condition.is_join]
            elif key not in old and condition.updating:
                message = f"is new: {_EFFECT_OF_NEW[condition.is_join]}"
            else:
                continue
            yield RowEffect(
                condition=_describe_condition(condition, self.new),
                message=message,
                sink=self._sink,
                span=condition.span,
            )
        for key, condition in old.items():
            if key not in new and condition.updating:
                text = _describe_condition(condition, self.old)
                message = f"no longer applies: {_EFFECT_OF_DROPPED[condition.is_join]}"
                yield RowEffect(condition=text, message=message, sink=self._sink)

    def _find_old_origins(self, condition: ConditionShape) -> frozenset[tuple[int | None, str | None]]:
        """Return the origins of a condition, with positions in the old query."""
        return frozenset((self.matching.get(position), call) for position, call in condition.origins)

    @property
    def _sink(self) -> str:
        return self.new.sink or self.old.sink

    # --- the state behind a column ----------------------------------------------------------------

    def _judge_state(self, column: ColumnShape) -> tuple[Status, str, int | None]:
        """Return the status of a column, the reason, and the version since which it counts."""
        for position, _ in column.origins:
            if position not in self.matching and not self._starts_complete(position):
                return Status.STARTS, f"{self.new.operators[position].label} is new", None
        by_branch = [self._judge_branch(column, branch) for branch in column.branches]
        return max(by_branch, key=lambda judged: _SEVERITY.index(judged[0]))

    def _judge_branch(
        self, column: ColumnShape, branch: Collection[tuple[int, str | None, bool]]
    ) -> tuple[Status, str, int | None]:
        added = [each for each in self._added_columns if reads_column(column.text, each)]
        since = self._count_since(branch)
        if added:
            since.setdefault(_NOW, []).append(f"`{added[0]}`")
        new_calls, filled = since.pop(_NOW, []), since.pop(_FILLED, [])
        if filled:
            since.setdefault(0, []).extend(filled)
            if not new_calls and len(since) == 1:
                return Status.BACKFILLED, f"{_join(filled)} {_verb(filled, 'is', 'are')} new", 0
        if new_calls and not since:
            return Status.STARTS, f"{_join(new_calls)} {_verb(new_calls, 'is', 'are')} new", None
        if new_calls:
            known = [label for labels in since.values() for label in labels]
            covers, does = _verb(known, "covers", "cover"), _verb(new_calls, "does", "do")
            reason = f"{_join(known)} {covers} earlier rows, {_join(new_calls)} {does} not"
            remedy = "a rebuild" if since.keys() - {0} else "a backfill"
            begin = f"{self._describe_groups(column)} that begin after the restart"
            return Status.MIXED, f"{reason}: right for {begin}; {remedy} makes it right at once", None
        if len(since) > 1:
            parts = [f"{_join(labels)} {_describe_since(version)}" for version, labels in sorted(since.items())]
            begin = f"{self._describe_groups(column)} that begin after version {max(since)} started"
            reason = f"{'; '.join(parts)}: right for {begin}; a rebuild makes it right at once"
            return Status.MIXED, reason, max(since)
        (version,) = since or (0,)
        if not column.origins:
            return Status.KEPT, "computed from each row alone", 0
        is_changed = self._meanings.compare(column)[0] in (Meaning.CHANGED, Meaning.NEW)
        reason = "computed from state that is kept" if is_changed else "computed as before"
        if self._meanings.reads_changed_join(column):
            reason = "read from rows that another condition joins"
        return Status.KEPT, f"{reason}, {_describe_since(version)}" if version else reason, version

    def _count_since(self, origins: Collection[tuple[int, str | None, bool]]) -> dict[int, list[str]]:
        """Return the labels of the calls behind a column, by the version since which they count.

        What the argument of a call covers does not matter, unless the call is computed from the
        current rows below.
        """
        since: dict[int, list[str]] = {}
        arguments = [(position, text, True) for position, text, is_direct in origins if not is_direct]
        for position, text, is_direct in origins:
            if text is None or not is_direct:
                continue
            label, version = self._find_call(position, text).label, self._find_version(position, text)
            counted = self._count_since(arguments) or {0: [label]} if version is None else {version: [label]}
            for number, labels in counted.items():
                since.setdefault(number, []).extend(labels)
        return since

    def _find_call(self, position: int, text: str) -> CallShape:
        return self._calls[position][text]

    @cached_property
    def _calls(self) -> list[dict[str, CallShape]]:
        return [{call.text: call for call in operator.calls} for operator in self.new.operators]

    def _find_version(self, position: int, text: str) -> int | None:
        """Return the version since which a call counts, None if it starts with the current rows
        below.
        """
        if position not in self.matching:
            return None
        change = self.changes[position]
        call = self._find_call(position, text)
        if call in self._new_calls[position]:
            return _FILLED if self.is_backfilled or (change.is_history and not call.counts_since) else _NOW
        source = change.derived_calls.get(call) or change.find_old(call)
        return None if source is None else source.counts_since

    @cached_property
    def _new_calls(self) -> dict[int, frozenset[CallShape]]:
        return {position: frozenset(change.added_calls) for position, change in self.changes.items()}

    def _list_new_calls(self, condition: ConditionShape) -> list[str]:
        return self._count_since([(position, call, True) for position, call in condition.origins]).get(_NOW, [])

    def _starts_complete(self, position: int) -> bool:
        return starts_complete(self.new, position, frozenset(self.matching))

    @cached_property
    def _added_columns(self) -> list[str]:
        """The columns that were added to the rows of operators."""
        return [
            column
            for change in self.changes.values()
            if change.tolerates_column_changes
            for column in change.added_columns
        ]

    def _describe_groups(self, part: ColumnShape | ConditionShape) -> str:
        kinds = [self.new.operators[position].kind for position, call in part.origins if call is not None]
        return _GROUPS.get(kinds[0], "groups") if kinds else "groups"


def lose_columns(old: QueryShape, new: QueryShape, reason: str) -> Iterator[ColumnJudgement]:
    """Yield the columns of a pair of queries of a job that cannot resume."""
    meanings = _Meanings(old, new)
    for column in new.columns:
        meaning, was = meanings.compare(column)
        yield ColumnJudgement(
            name=column.name,
            status=Status.LOST,
            reason=reason,
            sink=new.sink or old.sink,
            meaning=meaning,
            expression=describe_text(column.text, new.operators),
            was=was,
            since=None,
        )
    yield from drop_columns(old, new)


def drop_columns(old: QueryShape, new: QueryShape) -> Iterator[ColumnJudgement]:
    """Yield the columns of the old query whose name and meaning are both missing in the new one."""
    texts, names = {column.text for column in new.columns}, {column.name for column in new.columns}
    for column in old.columns:
        if column.text not in texts and column.name not in names:
            yield ColumnJudgement(
                name=column.name,
                status=Status.DROPPED,
                reason="the new query has no such column",
                sink=new.sink or old.sink,
                meaning=Meaning.GONE,
                expression=describe_text(column.text, old.operators),
                since=None,
            )


class _Meanings:
    """Compares the meaning of columns of the new query with that of the old query's columns."""

    def __init__(self, old: QueryShape, new: QueryShape) -> None:
        self._operators = old.operators
        joins = [{join.text for join in query.conditions if join.is_join} for query in (old, new)]
        self._changed_tables = {table for text in joins[0] ^ joins[1] for table in _JOINED.findall(text)}
        self._texts = {column.name: column.text for column in reversed(old.columns)}
        unchanged = {(column.name, column.text) for column in new.columns}
        self._old_names = {
            column.text: column.name for column in reversed(old.columns) if (column.name, column.text) not in unchanged
        }

    def compare(self, column: ColumnShape) -> tuple[Meaning, str]:
        """Return the meaning of a column, with the old name of a renamed one, or the old expression
        of a changed one.
        """
        same_name = self._texts.get(column.name)
        if not self.reads_changed_join(column):
            if same_name == column.text:
                return Meaning.SAME, ""
            if column.text in self._old_names:
                return Meaning.RENAMED, self._old_names[column.text]
        if same_name is not None:
            return Meaning.CHANGED, describe_text(same_name, self._operators)
        return Meaning.NEW, ""

    def reads_changed_join(self, column: ColumnShape) -> bool:
        """Return whether a column is read from a table whose join has changed."""
        return not self._changed_tables.isdisjoint(_TABLE.findall(column.text))


def _describe_condition(condition: ConditionShape, query: QueryShape) -> str:
    text = describe_text(condition.text, query.operators)
    kind, join, rest = text.partition(" JOIN ")
    return f"{kind.upper()}{join}{rest}" if condition.is_join and join else text


def _describe_since(version: int) -> str:
    return f"counts since version {version}" if version else "counts from the beginning"


def _join(labels: Collection[str]) -> str:
    return ", ".join(dict.fromkeys(labels))


def _verb(labels: Collection[str], one: str, several: str) -> str:
    return one if len(dict.fromkeys(labels)) == 1 else several
