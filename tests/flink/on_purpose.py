"""Intended differences from Flink: each is a row of docs/differences.md, by its first cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flink.process import FlinkAnswer
from flink.questions import Question

from everfold.testing.casefile import Mode

ORDERED = r"(LISTAGG|FIRST_VALUE|LAST_VALUE|ARRAY_AGG|JSON_ARRAYAGG)\("
"""Aggregates that depend on the order of rows."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The known facts about two answers that differ."""

    question: Question
    mode: Mode
    flink: FlinkAnswer
    message: str

    def has(self, pattern: str) -> bool:
        """Return whether the query matches."""
        return re.search(pattern, self.question.sql) is not None

    @property
    def partition(self) -> list[str]:
        """Return the columns of the query's PARTITION BY."""
        found = re.search(r"PARTITION BY ([\w, ]+?) ORDER BY", self.question.sql)
        return [] if found is None else found[1].split(", ")

    def shows(self, columns: Sequence[str]) -> bool:
        """Return whether the first SELECT names all of these columns."""
        return all(self.has(rf"^SELECT [^\n]*\b{column}\b") for column in columns)

    def flink_says(self, words: str) -> bool:
        """Return whether one of Flink's errors contains these words."""
        return any(words in error for error in self.flink.errors)

    @property
    def differs(self) -> bool:
        """Return whether both engines answer, with different rows."""
        return not self.flink.errors and not self.message.startswith(("error[", "internal error", "types", "columns"))

    @property
    def answered_by_everfold_only(self) -> bool:
        """Return whether Flink refuses or fails, and everfold answers."""
        return bool(self.flink.errors) and self.message.startswith("expected an error")


@dataclass(frozen=True, slots=True)
class OnPurpose:
    """A row of docs/differences.md, and the differences that it explains."""

    title: str
    explains: Callable[[Difference], bool]


ON_PURPOSE = (
    OnPurpose("`SUM(FLOAT)`", lambda it: it.differs and "FLOAT" in it.flink.types and it.has(r"SUM\(")),
    OnPurpose(
        "`VAR_SAMP`, `STDDEV_SAMP` of a constant over one row",
        lambda it: it.differs and it.has(r"(VAR|STDDEV)_SAMP\((DISTINCT )?-?[\d.]+(e\d+)?\)"),
    ),
    OnPurpose(
        "`IF` of arrays, maps, rows and intervals",
        lambda it: it.answered_by_everfold_only and it.flink_says("Cannot apply 'IF' to arguments"),
    ),
    OnPurpose(
        "variances and deviations of integers",
        lambda it: it.differs and it.has(r"(VAR_POP|STDDEV_SAMP)\(") and bool({"INT", "BIGINT"} & set(it.flink.types)),
    ),
    OnPurpose(
        "`AVG`, variances and deviations of integers with OVER",
        lambda it: it.differs and it.has(r"(AVG|VAR_\w+|STDDEV_\w+)\(.*OVER"),
    ),
    OnPurpose(
        "`RANK`, `DENSE_RANK` of rows of one time in a stream",
        lambda it: it.differs and it.mode == "stream" and it.has(r"RANK\(\) OVER \([^()]*ORDER BY at_\)"),
    ),
    OnPurpose(
        "`RANK`, `DENSE_RANK` in a stream by any other column",
        lambda it: it.differs and it.mode == "stream" and it.has(r"RANK\(\) OVER \([^()]*ORDER BY (?!at_|id\b)\w+\)"),
    ),
    OnPurpose(
        "Top-N from a number above 1, over rows that change",
        lambda it: (
            it.differs and it.has(r"rn BETWEEN 2|OFFSET") and any(table.changing for table in it.question.tables)
        ),
    ),
    OnPurpose(
        "Top-1 by several columns that does not show its number or its partition, over rows that stay",
        lambda it: (
            it.differs
            and it.mode == "stream"
            and it.has(r"rn <?= 1$")
            and (not it.shows(["rn"]) or not it.shows(it.partition))
            and not any(table.changing for table in it.question.tables)
        ),
    ),
    OnPurpose(
        "`LISTAGG` and other functions of order in `GROUP BY HOP(…)`",
        lambda it: it.differs and it.has(r"GROUP BY HOP\(") and it.has(ORDERED),
    ),
    OnPurpose(
        "`FIRST_VALUE`, `LAST_VALUE`, `JSON_ARRAYAGG` in HOP, CUMULATE and SESSION windows; `SUM(DISTINCT …)` in HOP",
        lambda it: (
            it.answered_by_everfold_only
            and it.has(r"(FROM|GROUP BY) (HOP|CUMULATE|SESSION)\(")
            and (it.flink_says("merge") or it.flink_says("SumWithRetractAggFunction"))
        ),
    ),
    OnPurpose(
        "`SESSION` with GROUPING SETS, ROLLUP or CUBE",
        lambda it: (
            (it.differs or it.answered_by_everfold_only)
            and it.has(r"FROM SESSION\(")
            and it.has(r"GROUPING SETS|ROLLUP|CUBE")
            and (
                it.has(r"(?s)\b(\w+)\b.*PARTITION BY \1\b|PARTITION BY (\w+)\b.*\b\2\b")
                or ((it.has(r"\nWHERE ") or it.flink_says("Type mismatch")) and not it.has("PARTITION BY"))
            )
        ),
    ),
    OnPurpose(
        "several different `OVER` windows in one query on a stream",
        lambda it: it.answered_by_everfold_only and it.mode == "stream" and it.flink_says("OVER windows"),
    ),
    OnPurpose(
        "queries for which Flink generates a program that does not compile",
        lambda it: it.answered_by_everfold_only and it.flink_says("This is a bug. Please file an issue"),
    ),
    OnPurpose(
        "`COLLECT` next to a DISTINCT aggregate in batch",
        lambda it: it.answered_by_everfold_only and it.flink_says("function does not support type: ''MULTISET''"),
    ),
    OnPurpose(
        "UNION of a time attribute and a plain TIMESTAMP",
        lambda it: (
            it.answered_by_everfold_only and it.flink_says("Union fields with time attributes requires same types")
        ),
    ),
    OnPurpose(
        "`RANGE UNBOUNDED PRECEDING` with several columns in ORDER BY",
        lambda it: it.answered_by_everfold_only and it.flink_says("RANGE clause cannot be used with compound ORDER BY"),
    ),
    OnPurpose(
        "DISTINCT aggregates in group windows, in batch",
        lambda it: (
            it.answered_by_everfold_only
            and it.mode == "batch"
            and it.has(r"GROUP BY (TUMBLE|HOP)\(")
            and it.flink_says("DISTINCT aggregates are currently not supported")
        ),
    ),
    OnPurpose(
        "`WHERE EXISTS (SELECT … WHERE u.w = t.k)`: a subquery that depends on the outer row",
        lambda it: it.message.startswith("error[correlated-subquery]") and it.has(r"EXISTS"),
    ),
    OnPurpose(
        "`SESSION` in batch",
        lambda it: it.answered_by_everfold_only and it.mode == "batch" and it.has(r"(FROM|GROUP BY) SESSION\("),
    ),
)


NOT_ASKED = frozenset(
    (
        "a value retracted from `FIRST_VALUE`, `LISTAGG`, `ARRAY_AGG` and the like before it arrives",
        "day windows over TIMESTAMP_LTZ in a zone like `Asia/Shanghai`, when the watermark moves row by row",
        "changes of one key within a micro-batch",
        "`SUM`, `AVG` of DOUBLE after a `NaN` or an infinity was retracted",
        "a `NaN` result that stays `NaN`",
        "`GROUP BY window_start, window_end` over SESSION by other keys than PARTITION BY, by several sets, or over its groups",
        "`SELECT DISTINCT` over rows that are only inserted",
        "`WHERE` over an upsert table",
        "a value of `upsert-kafka` that cannot be read, with `ignore-parse-errors`",
        "an object or array of JSON in a STRING column",
        "`canal-json`: rows of one record that changed in different columns",
        "`OVER` by any column up to the peers, over rows that change, when one of two equal rows leaves",
        "`OVER` by any column over rows that change: an updated row",
        "`OVER` a `RANGE` of some length, late rows",
        "`OVER` a `RANGE` of some length by processing time, at the end of bounded input",
        "Top-N by `PROCTIME() DESC`",
        "event time after a restart",
        "ORDER BY in a view whose rows are the result of a statement in a stream",
        "`CROSS JOIN UNNEST(ARRAY[1, 2])` below a window",
        "a join of a stream with a bounded table",
        "`FOR SYSTEM_TIME AS OF s.proc` of a table of files, VALUES or a DataFrame",
        "`window_time` of sessions as a time attribute after `GROUP BY window_start, window_end, window_time` without all PARTITION BY columns",
        "the first row of each key by event time",
        "`OVER` by event time over rows that change",
        "`debezium-json`, `canal-json`: a wrong value in a part of the record that holds no row of the change, as `before` of an insert",
        "`GROUP BY TUMBLE(…)`, `HOP(…)`, `SESSION(…)` over TIMESTAMP_LTZ, in batch",
        "an `upsert-kafka` table in batch, and on the bounded side of a join",
        "`TIMESTAMP(7)` to `TIMESTAMP(9)`, `TIMESTAMP_LTZ(7)` to `(9)`",
        "`DECIMAL(39, …)`, `TIMESTAMP(10)`, `CHAR(0)` in DDL",
        "an unknown option in `SET`, a value that an option does not take",
        "an option given twice in `WITH`",
        "a record without a key in a topic of `upsert-kafka`",
        "`canal-json`: an UPDATE with more rows in `old` than in `data`",
        "JSON with a character that is longer in UTF-8 than it must be (`C0 80`) or beyond U+10FFFF (`F4 90 80 80`)",
        "a `url` of `jdbc` with a password in it",
        "`WATERMARK FOR ts AS SOURCE_WATERMARK()`",
    )
)
"""Rows of the page that have no case yet: this set only shrinks.

Many need several steps, a certain order of arrival, an error of a connector, or a sink.
"""


def on_purpose(question: Question, mode: Mode, flink: FlinkAnswer, message: str) -> OnPurpose | None:
    """Return why the answers differ, if they differ on purpose."""
    difference = Difference(question, mode, flink, message)
    return next((each for each in ON_PURPOSE if each.explains(difference)), None)
