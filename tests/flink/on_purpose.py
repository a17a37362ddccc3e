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
        "`APPROX_COUNT_DISTINCT … OVER`",
        "`CEIL(date TO DAY)`",
        "`CEIL(… TO WEEK, MONTH, QUARTER or YEAR)` of a time on the first day of the unit",
        "`FLOOR`, `CEIL` of a TIMESTAMP_LTZ to DAY and longer units, in a zone with summer time",
        "`JSON_QUERY`",
        "`JSON_QUOTE` of characters beyond U+FFFF, and of control characters",
        "`OVERLAY(… FOR n)` where `n` is not positive",
        "`OVERLAY`, and `REPLACE` of an empty string, with characters beyond U+FFFF (emoji)",
        "`OVER` by any column over rows that change: an updated row",
        "`OVER` by any column up to the peers, over rows that change, when one of two equal rows leaves",
        "`RANGE` frames by distance that leave out their own row (`BETWEEN 3 PRECEDING AND 1 PRECEDING`), where the order has NULLs",
        "`RANGE` with a DOUBLE distance: `5E-1 PRECEDING`",
        "`TUMBLE_PROCTIME`, `HOP_PROCTIME`, `SESSION_PROCTIME` of windows by event time",
        "`TO_DATE('0')`, `CAST('0000-01-01' AS DATE)` and other strings with the year 0",
        "`TO_TIMESTAMP_LTZ` of a number in the year 0",
        "`MAP['a', 1, k, 2]` where `k` is `'a'`",
        "a NULL key in a `MAP`",
        "`UNIX_TIMESTAMP` of a local time that comes twice",
        "`VAR_SAMP`, `STDDEV_SAMP` of one value of a column that is NOT NULL",
        "Top-N by `PROCTIME() DESC`",
        "`-0.0` and `0.0` as a key of GROUP BY",
        "`LAG(x, n, default)` with a default that is NOT NULL",
        "`LISTAGG(DISTINCT …)` in a window",
        "`LPAD`, `RPAD` with characters beyond U+FFFF (emoji)",
        "`MIN`, `MAX` of FLOAT and DOUBLE with `NaN`",
        "`OVER (w ROWS …)`, where `w` has no frame",
        "`OVER` a `RANGE` of some length by processing time, at the end of bounded input",
        "`OVER` a `RANGE` of some length, late rows",
        "`GROUP BY window_start, window_end` over SESSION by other keys than PARTITION BY, by several sets, or over its groups",
        "`SELECT DISTINCT` over rows that are only inserted",
        "`SUM(DECIMAL)` that overflows 38 digits on the way",
        "`SUM`, `AVG` of DOUBLE after a `NaN` or an infinity was retracted",
        "`TRY_CAST('b' AS DECIMAL(8, 2))`: a string that is not a number, to a DECIMAL of up to 18 digits",
        "`TO_TIMESTAMP('2020-02-30 00:00:00')`",
        "`TUMBLE((SELECT … UNION ALL SELECT …), …)`: a UNION ALL written inside a window function",
        "`WHERE` over an upsert table",
        "`YEAR`, `EXTRACT`, `FLOOR(… TO YEAR)`, `CAST(… AS DATE)` of a TIMESTAMP before 1970 that is not a full day",
        "`canal-json`: rows of one record that changed in different columns",
        "a `NaN` result that stays `NaN`",
        "an object or array of JSON in a STRING column",
        "a value of `upsert-kafka` that cannot be read, with `ignore-parse-errors`",
        "a value retracted from `FIRST_VALUE`, `LISTAGG`, `ARRAY_AGG` and the like before it arrives",
        "changes of one key within a micro-batch",
        "day windows over TIMESTAMP_LTZ in a zone like `Asia/Shanghai`, when the watermark moves row by row",
        "event time after a restart",
    )
)
"""Rows of the table "Answers that differ" that no question can show: the generator makes none,
or only final tables are compared.
"""


def on_purpose(question: Question, mode: Mode, flink: FlinkAnswer, message: str) -> OnPurpose | None:
    """Return why the answers differ, if they differ on purpose."""
    difference = Difference(question, mode, flink, message)
    return next((each for each in ON_PURPOSE if each.explains(difference)), None)
