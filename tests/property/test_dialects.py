"""The same query in Flink SQL and in Lenses SQL, each written independently, has the same plan."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everfold.connectors.registry import apply_connector
from everfold.plan.nodes import Root
from everfold.sql.planner import Session, Submit

CALLS = {
    "n": ("COUNT(*)", "COUNT(*)"), "nb": ("COUNT(b)", "COUNT(b)"), "s": ("SUM(b)", "SUM(b)"), "m": ("AVG(c)", "AVG(c)"), "top": ("MAX(c)", "MAXK(c)"),
    "least": ("MIN(b)", "MINK(b, 1)"), "f": ("FIRST_VALUE(c)", "FIRST(c)"), "l": ("LAST_VALUE(b)", "LAST(b)"), "both": ("SUM(b + c)", "SUM(b + c)"),
    "g": ("SUM(GREATEST(b, c, 2))", "SUM(MAX(b, c, 2))"), "d2": ("MAX(c) - MIN(c)", "MAXK_UNIQUE(c, 1) - MINK_UNIQUE(c)"), "t": ("CAST(SUM(b) AS STRING)", "CAST(SUM(b) AS STRING)"),
}  # fmt: skip
"""What is asked, in the syntax of each dialect."""
WINDOWS = {
    "TUMBLE 10s": "TUMBLE({}, INTERVAL '10' SECOND)",
    "HOP 20s 5s": "HOP({}, INTERVAL '5' SECOND, INTERVAL '20' SECOND)",
    "SESSION 3s": "SESSION({}, INTERVAL '3' SECOND)",
}
COLUMNS = "a INT, b INT, c INT, d INT, ts TIMESTAMP(3)"
TABLES = f"""
CREATE TABLE MyTable ({COLUMNS}, WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE Keyed (_key INT, {COLUMNS}, PRIMARY KEY (_key) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'x', 'key.format' = 'json', 'value.format' = 'json');
"""


@dataclass(frozen=True)
class Question:
    """A query in both dialects. keys: of the groups. calls: names of aggregate calls. window:
    in Lenses syntax. grace: in seconds.
    """

    table: bool
    keys: tuple[str, ...]
    calls: tuple[str, ...]
    where: str
    having: str
    window: str
    grace: int

    @property
    def source(self) -> str:
        return "Keyed" if self.table else "MyTable"

    @property
    def target(self) -> str:
        types = {"n": "BIGINT", "nb": "BIGINT", "t": "STRING"}
        bounds = ["window_start TIMESTAMP(3)", "window_end TIMESTAMP(3)"] if self.window else []
        columns = [f"{key} INT" for key in self.keys] + bounds + [f"{name} {types.get(name, 'INT')}" for name in self.calls]  # fmt: skip
        return f"CREATE TABLE answers ({', '.join(columns)}) WITH ('connector' = 'print');"

    def flink(self) -> str:
        window = WINDOWS[self.window].format("ts") if self.window else ""
        kind = self.window.partition(" ")[0]
        arguments = window[len(kind) :]
        bounds = [f"{kind}_START{arguments}", f"{kind}_END{arguments}"] if window else []
        shown = ", ".join([*self.keys, *bounds, *(f"{CALLS[name][0]} AS {name}" for name in self.calls)])
        groups = ", ".join([*self.keys, *([window] if window else [])])
        options = ""
        if window:
            options = (
                "SET 'table.exec.emit.early-fire.enabled' = 'true'; SET 'table.exec.emit.early-fire.delay' = '0 ms';"
            )
        if window and self.grace:
            options += (
                "SET 'table.exec.emit.late-fire.enabled' = 'true'; SET 'table.exec.emit.late-fire.delay' = '0 ms';"
            )
            options += f"SET 'table.exec.emit.allow-lateness' = '{self.grace} s';"
        having = f"HAVING {CALLS[self.having][0]} > 3" if self.having else ""
        return (
            f"{options} INSERT INTO answers SELECT {shown} FROM {self.source} {self.where} GROUP BY {groups} {having};"
        )

    def lenses(self) -> str:
        shown = ", ".join(f"{CALLS[name][1]} AS {name}" for name in self.calls)
        window = f"WINDOW BY {self.window}" if self.window else ""
        if window and self.grace:
            window += f" GRACE BY {self.grace}s"
        having = f"HAVING {self.having} > 3" if self.having else ""
        kind = "TABLE" if self.table else "STREAM"
        return (
            f"SET 'everfold.dialect' = 'lenses'; SET everfold.lenses.exact-tables = true; "
            f"INSERT INTO answers SELECT {kind} {shown} FROM {self.source} {self.where} {window} GROUP BY {', '.join(self.keys)} {having};"
        )

    def plan(self, text: str) -> Root:
        session = Session(connected=apply_connector)
        (submit,) = [each for each in session.run(TABLES + self.target + text) if isinstance(each, Submit)]
        return submit.roots[0]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    table = draw(st.integers(0, 3)) == 0
    calls = draw(st.lists(st.sampled_from(list(CALLS)), min_size=1, max_size=4, unique=True))
    window = "" if table else draw(st.sampled_from(["", *WINDOWS]))
    numbers = [name for name in calls if name != "t"]
    return Question(
        table=table,
        keys=tuple(draw(st.sampled_from([["a"], ["d"], ["a", "d"], ["d", "a"]]))),
        calls=tuple(calls),
        where=draw(st.sampled_from(["", "WHERE b > 0", "WHERE a IS NOT NULL AND c <> 2"])),
        having=draw(st.sampled_from(["", *numbers])),
        window=window,
        grace=draw(st.sampled_from([0, 5])),
    )


@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(questions())
def test_a_query_has_the_same_plan_in_both_dialects(question: Question) -> None:
    assert question.plan(question.flink()) == question.plan(question.lenses())


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(questions())
def test_many_queries_have_the_same_plan_in_both_dialects(question: Question) -> None:
    assert question.plan(question.flink()) == question.plan(question.lenses())
