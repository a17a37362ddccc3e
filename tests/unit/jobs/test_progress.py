"""The totals of the reports of buckets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from everfold.compat.shape import CallShape, InputShape, OperatorShape
from everfold.jobs.batch_report import SourceReports
from everfold.jobs.progress import Reports
from everfold.jobs.sources import OpenedSource
from everfold.operators.protocol import Stats
from everfold.storage import local

SHAPE = OperatorShape(
    kind="GroupAggregate",
    calls=(CallShape("SUM(v)", label="SUM(v)"), CallShape("COUNT(v)", label="COUNT(v)", since=2)),
    input=InputShape((), (), (), (), updating=False),
)


def test_totals_replace_and_events_add_up() -> None:
    reports = Reports({"w1": SHAPE})
    for batch in (1, 2):
        reports.take(
            [
                Stats("w1", 100 * batch, late_rows=batch, state_rows=10 * batch, rows_out=3, retractions=1),
                Stats(
                    "w1", 100 * batch, late_rows=1, state_rows=5, ignored_rows=2, splits={"t/0": 100 * batch, "w0": 9}
                ),
                Stats("w0", 50, state_rows=1),
                Stats("w3", 50, state_rows=2 - batch),
            ]
        )
    w1, w0, _ = reports.list_operators()
    assert [name for name in ("w0", "w1", "w2", "w3") if reports.has_state(name)] == ["w0", "w1"]
    assert (w1.watermark_ms, w1.late_rows, w1.state_rows, w1.ignored_rows) == (200, 3, 25, 2)
    assert (w1.rows_out, w1.retractions, w1.splits) == (6, 2, {"t/0": 200})
    assert (w0.state_rows, w0.state_bytes) == (1, None)
    assert (reports.watermark_ms, reports.late_rows, reports.state_rows, reports.ignored_rows) == (50, 3, 26, 2)


def test_sizes_are_those_of_the_pages_per_row() -> None:
    reports = Reports({"w1": SHAPE})
    columns = {"k": 40, "SUM(v)|sum": 80, "SUM(v)|nonnull": 80, "COUNT(v)|count since 2": 20, "COUNT(v)|count": 7}
    reports.take([Stats("w1", state_rows=30, page_rows=10, page_bytes=500, column_bytes=columns)])
    (found,) = reports.list_operators()
    assert (found.state_bytes, found.aggregate_bytes) == (1500, {"SUM(v)": 480, "COUNT(v)": 60})
    reports.take([Stats("w1", state_rows=30, page_rows=10, page_bytes=100)])
    assert reports.list_operators()[0].state_bytes == 900


def make_report(*sources: tuple[str, int, str | None, str | None]) -> Any:
    names = ("description", "numInputRows", "latestOffset", "endOffset")
    return SimpleNamespace(sources=[SimpleNamespace(**dict(zip(names, each, strict=True))) for each in sources])


class Lagging:
    """A source whose offsets are numbers."""

    reads_files = False

    def find_lag(self, latest: int, end: int) -> dict[str, int]:
        return {"split": latest - end}


def open_table(table: str, *, is_stream: bool = True) -> OpenedSource:
    return OpenedSource(f"{table}_1", table, False, is_stream, cast(Any, Lagging()))


def test_rows_belong_to_tables_not_to_control_files() -> None:
    opened = (open_table("a"), open_table("lookup", is_stream=False), open_table("b"), open_table("a"))
    reports = SourceReports(opened, local("/jobs/one") / "control")
    report = make_report(
        ("FileStreamSource[file:/data/control/a]", 3, "null", "None"),
        ("FileStreamSource[file:/jobs/one/control]", 100, None, None),
        ("KafkaV2[Subscribe[b]]", 4, "9", "7"),
        ("KafkaV2[Subscribe[a]]", 5, "20", "10"),
    )
    assert reports.count_rows(report) == {"a": 8, "b": 4}
    found = reports.describe(report, {"a": 80, "b": 40})
    assert [(each.table, each.rows, each.lag) for each in found] == [("a", 80, {"split": 10}), ("b", 40, {"split": 2})]


def test_sources_that_cannot_be_told_apart() -> None:
    report = make_report(("Memory", 3, None, None), ("Memory", 4, None, None))
    assert SourceReports((open_table("view"),), local("/jobs/one")).count_rows(report) == {"(several tables)": 7}
