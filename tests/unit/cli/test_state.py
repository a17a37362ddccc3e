"""`everfold state`: what it prints and writes, without Spark.

`tests/spark/test_state.py` checks that the state is read correctly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from property.queries import Query

from everfold.cli import state as command
from everfold.cli.main import main
from everfold.compat import shape_of
from everfold.inspection.job_state import AggregateStart, Inspection, JobState, NamedOperator, OperatorState
from everfold.inspection.reader import read_tables
from everfold.inspection.sizes import sizes_of
from everfold.inspection.tables import to_state_table
from everfold.jobs.manifest import Version

SELECT = "CREATE TABLE e (k STRING, v INT, p DECIMAL(4, 2), t TIME); SELECT k, SUM(p), COUNT(DISTINCT v), MAX(t) FROM e GROUP BY k"
RunState = Callable[..., tuple[int, str, str]]


def job_state(rows: int) -> JobState:
    """Return the state of a job in its second version, after `rows` rows with as many keys."""
    query = Query(SELECT)
    pipeline = query.pipeline()
    made = [{"k": f"k{n:03}", "v": n, "p": Decimal("1.10"), "t": 3_600_000} for n in range(rows)]
    pipeline.feed(query.input(e=made), now_ms=0)
    (shape,) = shape_of(query.root).operators
    stores = pipeline._stages["w1"].stores
    tables = tuple(to_state_table(shape, each) for each in read_tables(shape, stores, 0))
    sizes = sizes_of(shape, [page for store in stores for page in store.pages.items()])
    since = (
        AggregateStart("SUM(p)", 0, "2026-01-01T00:00:00Z"),
        AggregateStart("MAX(t)", 1, "2026-02-01T00:00:00Z", True),
    )
    version = Version(
        number=1, epoch=1, fingerprint="", zone="UTC", sql="", plan="", shapes=(), created="2026-02-01T00:00:00Z"
    )
    return JobState(version, 7, (OperatorState(NamedOperator("w1", shape.label, shape), since, tables, sizes),))


@pytest.fixture
def run_state(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> RunState:
    """Return a function that runs `everfold state job` with more arguments, on a job with `rows`
    groups.
    """
    monkeypatch.chdir(tmp_path)

    def run(rows: int, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(Inspection, "__post_init__", lambda self: None)
        monkeypatch.setattr(Inspection, "read", lambda self, start: job_state(rows))
        monkeypatch.setattr(sys, "argv", ["everfold", "state", "job", *arguments])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        assert isinstance(code, int)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_tables_are_printed_with_the_start_of_their_aggregates(run_state: RunState) -> None:
    code, out, _ = run_state(2)
    assert code == 0
    assert (
        out
        == """\
after batch 7 of version 1

w1  GROUP BY k
groups
+------+------------+-------------------+----------+
|    k | SUM(p) sum | COUNT(DISTINCT v) |   MAX(t) |
+------+------------+-------------------+----------+
| k000 |       1.10 |                 1 | 01:00:00 |
| k001 |       1.10 |                 1 | 01:00:00 |
+------+------------+-------------------+----------+
2 rows in set
values e.v
+------+---+-------+
|    k | v | count |
+------+---+-------+
| k000 | 0 |     1 |
| k001 | 1 |     1 |
+------+---+-------+
2 rows in set
  SUM(p): since the beginning, 2026-01-01T00:00:00Z
  MAX(t): since version 1 and backfilled, 2026-02-01T00:00:00Z
"""
    )


def test_internal_slots_are_shown_on_request(run_state: RunState) -> None:
    _, out, _ = run_state(2, "--internal")
    assert "| SUM(p) sum | SUM(p) nonnull |" in out
    _, out, _ = run_state(2, "--where", '"SUM(p) nonnull" = 1')
    assert "2 rows in set" in out
    assert "nonnull" not in out


def test_at_most_100_rows_are_printed_by_default(run_state: RunState) -> None:
    for arguments, shown, last_line in (
        ((), 100, "100 of 120 rows in set: --limit 0 shows all"),
        (("--limit", "3"), 3, "3 of 120 rows in set: --limit 0 shows all"),
        (("--limit", "0"), 120, "120 rows in set"),
        (("--limit", "120"), 120, "120 rows in set"),
    ):
        _, out, _ = run_state(120, *arguments)
        groups = out.partition("values")[0]
        assert sum(line.startswith("| k") for line in groups.splitlines()) == shown
        assert groups.splitlines()[-1] == last_line
        _, out, _ = run_state(120, "--format", "json", *arguments)
        table = json.loads(out)["operators"][0]["tables"][0]
        assert (table["count"], len(table["rows"])) == (120, shown)
    assert command.DEFAULT_LIMIT == 100


def test_a_condition_selects_the_tables_that_have_its_columns(run_state: RunState) -> None:
    _, out, _ = run_state(120, "--where", "k > 'k117'")
    assert out.count("2 rows in set") == 2
    _, out, _ = run_state(120, "--where", "v > 117")
    assert "values e.v" in out
    assert "groups" not in out
    _, out, _ = run_state(120, "--where", '"COUNT(DISTINCT v)" > 5')
    assert "groups\nEmpty set\n" in out


def test_a_wrong_condition_is_refused(run_state: RunState) -> None:
    code, out, err = run_state(2, "--where", "nobody = 1")
    assert (code, out) == (2, "")
    assert err.startswith("error[wrong-condition]: the condition `nobody = 1` cannot be evaluated: Referenced column")
    assert "= help: the columns are `k`, `SUM(p) sum`, " in err
    code, _, err = run_state(2, "--where", "k = ")
    assert (code, err.partition(":")[0]) == (2, "error[wrong-condition]")


def test_json_has_exact_values_sizes_and_start_times(run_state: RunState) -> None:
    _, out, _ = run_state(2, "--format", "json")
    assert '{"k": "k000", "SUM(p) sum": 1.10, "COUNT(DISTINCT v)": 1, "MAX(t)": "01:00:00"}' in out
    found = json.loads(out)
    (operator,) = found.pop("operators")
    assert found == {"version": 1, "created": "2026-02-01T00:00:00Z", "batch": 7, "zone": "UTC"}
    assert (operator["name"], operator["operator"]) == ("w1", "GROUP BY k")
    assert operator["aggregates"][1] == {
        "aggregate": "MAX(t)",
        "since": 1,
        "created": "2026-02-01T00:00:00Z",
        "backfilled": True,
    }
    assert operator["sizes"]["bytes"] == sum(operator["sizes"]["parts"].values())
    assert operator["tables"][1]["columns"][1:] == [{"name": "v", "type": "INT"}, {"name": "count", "type": "BIGINT"}]
    empty = json.loads(run_state(0, "--format", "json")[1])["operators"][0]["tables"]
    assert empty == [{"table": name, "columns": [], "count": 0, "rows": []} for name in ("groups", "values e.v")]
    _, out, _ = run_state(2, "--format", "json", "--sizes")
    assert [[*each] for each in json.loads(out)["operators"][0]["tables"]] == [["table", "columns", "count"]] * 2


def test_sizes_replace_rows(run_state: RunState) -> None:
    _, out, _ = run_state(2, "--sizes")
    sizes = job_state(2).operators[0].sizes
    lines = out.splitlines()
    assert lines[2:4] == [
        "w1  GROUP BY k",
        f"{sizes.bytes} bytes in 3 pages: the largest has {sizes.largest}, the median {sizes.median}",
    ]
    assert "|                          MAX(t) |     8 |" in lines
    assert "k000" not in out


def test_parquet_writes_one_file_per_table_with_all_rows(run_state: RunState, tmp_path: Path) -> None:
    code, out, _ = run_state(120, "--format", "parquet", "--out", "there/files")
    assert code == 0
    assert out == "there/files/w1-groups.parquet: 120 rows\nthere/files/w1-values-e-v.parquet: 120 rows\n"
    table = pq.read_table(tmp_path / "there" / "files" / "w1-groups.parquet")
    assert str(table.schema.field("MAX(t)").type) == "time32[ms]"
    assert str(table["SUM(p) sum"][119]) == "1.10"
    facts = json.loads(table.schema.metadata[b"everfold"])
    assert facts == {"operator": "GROUP BY k", "table": "groups", "batch": 7, "since": {"SUM(p)": 0, "MAX(t)": 1}}
    _, out, _ = run_state(120, "--format", "parquet", "--out", "less", "--limit", "5", "--where", "v > 3")
    assert out == "less/w1-values-e-v.parquet: 5 rows\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--format", "parquet"), "--format parquet and --out go together"),
        (("--out", "x"), "--format parquet and --out go together"),
        (("--format", "parquet", "--out", "x", "--sizes"), "use --format json"),
        (("--format", "parquet", "--out", "job/x"), "error[folder-of-job]"),
        (("--limit", "-1"), "-1 is not in the range"),
        (("--conf", "x"), "error[wrong-option-value]"),
    ],
)
def test_wrong_arguments_are_refused(run_state: RunState, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run_state(1, *arguments)
    assert (code, out) == (2, "")
    assert words in err
