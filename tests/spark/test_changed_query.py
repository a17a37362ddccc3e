"""A job whose query changes resumes with its state: on Spark, from files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from spark.running import Done, runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Run: TypeAlias = Callable[..., Done]
TABLE = (
    "CREATE TABLE t (k STRING, x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
    "WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');\n"
)


def put(folder: Path, name: str, rows: list[tuple[str, int, str]]) -> None:
    (folder / "in").mkdir(exist_ok=True)
    lines = (json.dumps({"k": k, "x": x, "ts": f"2020-01-01 00:{at}"}) for k, x, at in rows)
    (folder / "in" / name).write_text("\n".join(lines) + "\n")


@pytest.fixture
def run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a query over the table `t` as a job, in the folder `job` unless another one is given."""
    monkeypatch.chdir(tmp_path)
    run = runner(spark, monkeypatch, capsys)

    def one(query: str, *options: str, state: str = "job") -> Done:
        Path("job.sql").write_text(TABLE + query)
        return run("--state", state, "--format", "json", *options)

    return one


def read_changes(done: Done) -> list[dict[str, Any]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def find_current_rows(changes: list[dict[str, Any]], key: str = "k") -> dict[Any, dict[str, Any]]:
    """Return the current rows by key, after changes."""
    found: dict[Any, dict[str, Any]] = {}
    for row in changes:
        kind = row.pop("op", "+I")
        if kind in ("+I", "+U"):
            found[row[key]] = row
    return found


def test_a_group_keeps_the_state_of_kept_aggregates(run: Run, tmp_path: Path) -> None:
    old = "SELECT k, SUM(x) AS s, MAX(x) AS m FROM t GROUP BY k;"
    new = "SELECT k, SUM(x) AS s, COUNT(*) AS n FROM t GROUP BY k;"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "00:03")])
    assert find_current_rows(read_changes(run(old))) == {
        "a": {"k": "a", "s": 6, "m": 5},
        "b": {"k": "b", "s": 9, "m": 9},
    }
    put(tmp_path, "2.json", [("a", 2, "00:04"), ("c", 3, "00:05")])
    refused = run(new)
    assert refused.code == 1
    assert "error[partial-change]" in refused.err
    assert "AGG006  COUNT(*) is new: it starts at the restart" in refused.err
    changed = find_current_rows(read_changes(run(new, "--on-change", "accept")))
    assert changed == {"a": {"k": "a", "s": 8, "n": 1}, "c": {"k": "c", "s": 3, "n": 1}}
    put(tmp_path, "3.json", [("a", 4, "00:06"), ("b", 1, "00:07")])
    again = find_current_rows(read_changes(run(old, "--on-change", "accept")))
    # MAX was dropped and added again: it has lost the earlier rows.
    assert again == {"a": {"k": "a", "s": 12, "m": 4}, "b": {"k": "b", "s": 10, "m": 1}}


def test_open_windows_keep_their_state(run: Run, tmp_path: Path) -> None:
    window = "FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k;"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "00:03")])
    assert read_changes(run(f"SELECT k, SUM(x) AS s, MAX(x) AS m {window}", "--suspend")) == []
    put(tmp_path, "2.json", [("a", 2, "00:30"), ("c", 3, "00:40")])
    swapped = run(f"SELECT k, MAX(x) AS m, SUM(x) AS s, MIN(x) AS l {window}", "--on-change", "accept")
    rows = sorted(read_changes(swapped), key=lambda row: row["k"])
    assert rows == [
        {"k": "a", "m": 5, "s": 8, "l": 2},
        {"k": "b", "m": 9, "s": 9, "l": None},
        {"k": "c", "m": 3, "s": 3, "l": 3},
    ]


def test_the_old_query_resumes_after_an_incompatible_change(run: Run, tmp_path: Path) -> None:
    query = "SELECT k, x, SUM(x) OVER (PARTITION BY k ORDER BY ts) AS s FROM t;"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("a", 5, "00:03")])
    assert [row["s"] for row in read_changes(run(query))] == [1, 6]
    put(tmp_path, "2.json", [("a", 2, "00:04")])
    refused = run(query.replace("PARTITION BY k ", ""))
    assert refused.code == 1
    assert "error[incompatible-change]" in refused.err
    assert [row["s"] for row in read_changes(run(query))] == [8]


def test_a_reset_counts_only_new_rows(run: Run, tmp_path: Path) -> None:
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02")])
    assert len(read_changes(run("SELECT k, SUM(x) AS s FROM t GROUP BY k;"))) == 2
    put(tmp_path, "2.json", [("a", 2, "00:04"), ("a", 3, "00:05")])
    other = "SELECT x, COUNT(*) AS n FROM t GROUP BY x;"
    refused = run(other, "--on-change", "accept")
    assert refused.code == 1
    assert "error[incompatible-change]" in refused.err
    assert find_current_rows(read_changes(run(other, "--on-change", "reset")), "x") == {
        2: {"x": 2, "n": 1},
        3: {"x": 3, "n": 1},
    }
    put(tmp_path, "3.json", [("a", 2, "00:06"), ("a", 1, "00:07")])
    assert find_current_rows(read_changes(run(other)), "x") == {2: {"x": 2, "n": 2}, 1: {"x": 1, "n": 1}}


def test_a_backfill_computes_new_aggregates_from_the_beginning(run: Run, tmp_path: Path) -> None:
    old = "SELECT k, SUM(x) AS s FROM t GROUP BY k;"
    new = "SELECT k, SUM(x) AS s, COUNT(*) AS n, FIRST_VALUE(x) AS f FROM t GROUP BY k;"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "00:03")])
    put(tmp_path, "2.json", [("a", 2, "00:04")])
    assert len(find_current_rows(read_changes(run(old)))) == 2
    put(tmp_path, "3.json", [("c", 3, "00:05"), ("a", 7, "00:06")])
    changed = run(new, "--on-change", "backfill")
    assert "COUNT(*), FIRST_VALUE(x): computed from the beginning, over 4 rows" in changed.err
    assert find_current_rows(read_changes(changed)) == {
        "a": {"k": "a", "s": 15, "n": 4, "f": 1},
        "b": {"k": "b", "s": 9, "n": 1, "f": 9},
        "c": {"k": "c", "s": 3, "n": 1, "f": 3},
    }
    put(tmp_path, "4.json", [("b", 1, "00:07")])
    assert find_current_rows(read_changes(run(new))) == {"b": {"k": "b", "s": 10, "n": 2, "f": 9}}


@pytest.mark.slow
def test_a_backfill_keeps_the_row_order_of_a_large_file(run: Run, tmp_path: Path) -> None:
    rows = [("ab"[at % 2], at, "00:01") for at in range(240_000)]
    put(tmp_path, "1.json", rows)
    assert (tmp_path / "in" / "1.json").stat().st_size > 12_000_000
    run("SELECT k, COUNT(*) AS n FROM t GROUP BY k;")
    put(tmp_path, "2.json", [("c", 0, "00:02")])
    new = "SELECT k, COUNT(*) AS n, FIRST_VALUE(x) AS f, LAST_VALUE(x) AS l FROM t GROUP BY k;"
    assert find_current_rows(read_changes(run(new, "--on-change", "backfill"))) == {
        "a": {"k": "a", "n": 120_000, "f": 0, "l": 239_998},
        "b": {"k": "b", "n": 120_000, "f": 1, "l": 239_999},
        "c": {"k": "c", "n": 1, "f": 0, "l": 0},
    }


def test_a_backfill_fills_open_windows_and_frames(run: Run, tmp_path: Path) -> None:
    window = "FROM HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE) GROUP BY window_start, window_end, k;"
    over = "SELECT k, x, SUM(x) OVER w AS s{new} FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS 2 PRECEDING);"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "01:03")])
    assert len(read_changes(run(f"SELECT k, SUM(x) AS s {window}", "--suspend"))) == 2
    put(tmp_path, "2.json", [("a", 2, "01:30"), ("c", 3, "01:40")])
    changed = run(f"SELECT k, SUM(x) AS s, MIN(x) AS l {window}", "--on-change", "backfill")
    rows = sorted(read_changes(changed), key=lambda row: (row["k"], row["s"]))
    assert rows == [
        {"k": "a", "s": 7, "l": 2},
        {"k": "a", "s": 8, "l": 1},
        {"k": "b", "s": 9, "l": 9},
        {"k": "c", "s": 3, "l": 3},
        {"k": "c", "s": 3, "l": 3},
    ]
    for file in (tmp_path / "in").iterdir():
        file.unlink()
    put(tmp_path, "3.json", [("a", 1, "00:01"), ("a", 5, "00:02"), ("a", 3, "00:03")])

    def answers(query: str, *options: str) -> list[dict[str, Any]]:
        return read_changes(run(query, *options, state="other"))

    assert [row["s"] for row in answers(over.format(new=""), "--suspend")] == [1, 6, 9]
    put(tmp_path, "4.json", [("a", 4, "00:04")])
    found = answers(over.format(new=", MAX(x) OVER w AS m"), "--on-change", "backfill")
    assert [(row["s"], row["m"]) for row in found] == [(12, 5)]


def test_a_refresh_reemits_the_whole_result(run: Run, tmp_path: Path) -> None:
    group = "SELECT k, SUM(x) AS s, COUNT(*) AS n FROM t GROUP BY k"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "00:03"), ("c", 3, "00:03")])
    old = read_changes(run(f"{group} HAVING SUM(x) > 4;"))
    assert find_current_rows(old) == {"a": {"k": "a", "s": 6, "n": 2}, "b": {"k": "b", "s": 9, "n": 1}}
    put(tmp_path, "2.json", [("d", 7, "00:04")])
    looser = run(f"{group} HAVING SUM(x) < 8;")
    assert "the result: rows stay as they are until they change; --refresh re-emits them all" in looser.err
    assert find_current_rows(read_changes(looser)) == {"d": {"k": "d", "s": 7, "n": 1}}
    put(tmp_path, "3.json", [("d", 1, "00:05")])
    found = read_changes(run(f"{group} HAVING SUM(x) < 8;", "--refresh"))
    kinds = {(row["op"], row["k"]) for row in found}
    assert kinds == {("+U", "a"), ("-D", "b"), ("+U", "c"), ("+U", "d"), ("-U", "d")}
    assert ("-U", "d") in [(row["op"], row["k"]) for row in found][1:], "the old row is emitted before it is retracted"
    put(tmp_path, "4.json", [("b", -5, "00:06")])
    assert find_current_rows(read_changes(run(f"{group} HAVING SUM(x) < 8;"))) == {"b": {"k": "b", "s": 4, "n": 2}}


@pytest.mark.slow
def test_new_aggregates_over_changes_are_computed_from_the_rows_below(run: Run, tmp_path: Path) -> None:
    extended = "SET 'everfold.compat.rules' = 'extended';\n"
    inner = "FROM (SELECT k, MAX(x) AS m FROM t GROUP BY k) GROUP BY m % 2"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "00:03"), ("c", 4, "00:03")])
    read_changes(run(f"SELECT m % 2 AS k, COUNT(*) AS n {inner};"))
    new = f"SELECT m % 2 AS k, COUNT(*) AS n, SUM(m) AS s, MAX(m) AS h, COUNT(DISTINCT m) AS d {inner};"
    put(tmp_path, "2.json", [("b", 10, "00:04")])
    assert "error[incompatible-change]" in run(new, "--on-change", "accept").err
    assert find_current_rows(read_changes(run(extended + new))) == {
        1: {"k": 1, "n": 1, "s": 5, "h": 5, "d": 1},
        0: {"k": 0, "n": 2, "s": 14, "h": 10, "d": 2},
    }
    put(tmp_path, "3.json", [("c", 6, "00:05"), ("b", 11, "00:06")])
    assert find_current_rows(read_changes(run(extended + new))) == {
        0: {"k": 0, "n": 1, "s": 6, "h": 6, "d": 1},
        1: {"k": 1, "n": 2, "s": 16, "h": 11, "d": 2},
    }


@pytest.mark.slow
def test_operators_that_change_positions_keep_their_state(run: Run, tmp_path: Path) -> None:
    sides = [
        "SELECT 's' AS what, k, SUM(x) AS v FROM t GROUP BY k",
        "SELECT 'm' AS what, k, MAX(x) AS v FROM t GROUP BY k",
    ]
    rows = [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "00:03")]
    put(tmp_path, "1.json", rows)
    assert len(read_changes(run(" UNION ALL ".join(sides) + ";"))) == 4
    for number, row in enumerate((("a", 7, "00:04"), ("b", 1, "00:05")), 2):
        put(tmp_path, f"{number}.json", [row])
        rows.append(row)
        sides.reverse()
        found = read_changes(run(" UNION ALL ".join(sides) + ";"))
        values = [x for k, x, _ in rows if k == row[0]]
        now = {each["what"]: each["v"] for each in found if each["op"] in ("+I", "+U")}
        assert now == {"s": sum(values)} | ({"m": max(values)} if max(values) > max(values[:-1]) else {})


@pytest.mark.slow
def test_a_removed_insert_leaves_the_state_of_the_others(run: Run, tmp_path: Path) -> None:
    tables = "".join(
        f"CREATE TABLE {name} (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = 'json');\n"
        for name in ("sums", "counts", "copies")
    )
    window = "FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k;"
    sums, counts = f"INSERT INTO sums SELECT k, SUM(x) {window}", f"INSERT INTO counts SELECT k, COUNT(*) {window}"
    copies = "INSERT INTO copies SELECT k, x FROM t;"

    def run_inserts(*inserts: str, options: tuple[str, ...] = ()) -> None:
        script = f"{tables}EXECUTE STATEMENT SET BEGIN\n{' '.join(inserts)}\nEND;"
        done = run(f"SET 'everfold.compat.rules' = 'extended';\n{script}", *options)
        assert done.code == 0, done.err

    def read_table(table: str) -> list[tuple[str, int]]:
        rows = [
            json.loads(line) for file in (tmp_path / table).glob("*.json") for line in file.read_text().splitlines()
        ]
        return sorted((row["k"], row["v"]) for row in rows)

    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02")])
    run_inserts(sums, counts, copies, options=("--suspend",))
    put(tmp_path, "2.json", [("a", 5, "00:03")])
    run_inserts(counts, options=("--suspend",))
    put(tmp_path, "3.json", [("a", 7, "00:04")])
    run_inserts(counts, copies)
    assert read_table("counts") == [("a", 3), ("b", 1)]
    assert read_table("sums") == []
    # Rows that came while the INSERT was absent are copied when it returns, none of them twice.
    assert read_table("copies") == [("a", 1), ("a", 5), ("a", 7), ("b", 9)]
