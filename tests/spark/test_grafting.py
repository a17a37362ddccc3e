"""New operators in a job, next to operators that resume and above them: on Spark, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from manifests import newest_manifest
from spark.test_changed_query import Run, find_current_rows, put, read_changes, run
from spark.test_rules_on_spark import Job, batch, fold_changes, make_plan, part

from everfold.jobs.change import OnChange
from everfold.jobs.rollback import roll_back
from everfold.memory.pipeline import MemoryPipeline
from everfold.storage import local

if TYPE_CHECKING:
    from broker import KafkaBroker
    from pyspark.sql import SparkSession

__all__ = ["run"]
pytestmark = pytest.mark.spark
ACCEPT = ("--on-change", "accept")
RULES = "SET 'everfold.compat.rules' = 'extended';\n"
MINUTES = "FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k"


def test_a_new_group_next_to_a_resumed_one(run: Run, tmp_path: Path) -> None:
    sums, most = (f"SELECT '{call}' AS what, k, {call}(x) AS v FROM t GROUP BY k" for call in ("SUM", "MAX"))

    def run_query(query: str, *options: str) -> dict[tuple[str, str], int]:
        changes = read_changes(run(f"{RULES}{query};", *options))
        return {(row["what"], row["k"]): row["v"] for row in changes if row["op"] in ("+I", "+U")}

    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "00:03")])
    assert run_query(sums) == {("SUM", "a"): 6, ("SUM", "b"): 9}
    put(tmp_path, "2.json", [("a", 2, "00:04"), ("c", 3, "00:05")])
    together = f"{most} UNION ALL {sums}"
    assert run_query(together, *ACCEPT) == {("SUM", "a"): 8, ("SUM", "c"): 3, ("MAX", "a"): 2, ("MAX", "c"): 3}
    put(tmp_path, "3.json", [("a", 1, "00:04"), ("b", 4, "00:05")])
    assert run_query(together) == {("SUM", "a"): 9, ("SUM", "b"): 13, ("MAX", "b"): 4}


@pytest.mark.slow
def test_a_new_group_above_resumed_windows(run: Run, tmp_path: Path) -> None:
    windows = f"SELECT window_start, window_end, k, SUM(x) AS s {MINUTES}"
    query = f"{RULES}SELECT k, COUNT(*) AS n, SUM(s) AS s FROM ({windows}) GROUP BY k;"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "01:03")])
    assert len(read_changes(run(f"{RULES}{windows};", "--suspend"))) == 2
    put(tmp_path, "2.json", [("a", 2, "01:04"), ("c", 3, "02:05")])
    # The window of a that is open when the query changes is emitted in full.
    assert find_current_rows(read_changes(run(query, *ACCEPT, "--suspend"))) == {"a": {"k": "a", "n": 1, "s": 7}}
    put(tmp_path, "3.json", [("a", 2, "02:06"), ("c", 4, "04:05")])
    assert find_current_rows(read_changes(run(query))) == {
        "a": {"k": "a", "n": 2, "s": 9},
        "c": {"k": "c", "n": 2, "s": 7},
    }


TABLES = "".join(
    f"CREATE TABLE {name} (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = 'json');\n"
    for name in ("sums", "counts", "most")
)
OTHER = (
    "CREATE TABLE u (k STRING, x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
    "WITH ('connector' = 'filesystem', 'path' = 'other', 'format' = 'json');\n"
)


@pytest.mark.slow
def test_a_new_insert_before_another(run: Run, tmp_path: Path) -> None:
    sums, counts = f"INSERT INTO sums SELECT k, SUM(x) {MINUTES};", f"INSERT INTO counts SELECT k, COUNT(*) {MINUTES};"
    most = f"INSERT INTO most SELECT k, MAX(x) {MINUTES.replace('TABLE t', 'TABLE u')};"

    def run_query(*inserts: str, options: tuple[str, ...] = ("--suspend",)) -> None:
        script = f"{TABLES}{OTHER}EXECUTE STATEMENT SET BEGIN\n{' '.join(inserts)}\nEND;"
        done = run(f"{RULES}{script}", *options)
        assert done.code == 0, done.err

    def read_table(table: str) -> list[tuple[str, int]]:
        rows = [
            json.loads(line) for file in (tmp_path / table).glob("*.json") for line in file.read_text().splitlines()
        ]
        return sorted((row["k"], row["v"]) for row in rows)

    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02")])
    # The end of the input closes what is open. Operators added later must not take it for the end
    # of their input.
    run_query(sums, options=())
    assert read_table("sums") == [("a", 1), ("b", 9)]
    put(tmp_path, "2.json", [("a", 5, "01:03")])
    run_query(sums)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "1.json").write_text((tmp_path / "in" / "1.json").read_text())
    put(tmp_path, "3.json", [("a", 7, "01:04"), ("b", 2, "01:05")])
    run_query(counts, most, sums, options=(*ACCEPT, "--suspend"))
    manifest = json.loads(newest_manifest(tmp_path / "job").read_text())
    assert [version["operators"] for version in manifest["versions"]] == [["w1"], ["w2", "w3", "w1"]]
    assert [[note["name"] for note in version["sources"]] for version in manifest["versions"]] == [
        ["t"],
        ["t_1", "u", "t"],
    ]
    put(tmp_path, "4.json", [("a", 1, "01:06")])
    run_query(counts, most, sums)
    run_query(most, sums)
    put(tmp_path, "5.json", [("b", 1, "01:07")])
    run_query(sums, counts, most, options=ACCEPT)
    assert read_table("sums") == [("a", 1), ("a", 13), ("b", 3), ("b", 9)]
    assert read_table("most") == [("a", 1), ("b", 9)]
    # The INSERT was removed and added again, so it starts from scratch.
    assert read_table("counts") == [("b", 1)]


@pytest.mark.slow
def test_a_rollback_over_a_new_operator(run: Run, tmp_path: Path) -> None:
    sums, counts = "SELECT k, SUM(x) AS v FROM t GROUP BY k", "SELECT k, COUNT(*) AS v FROM t GROUP BY k, x"
    both = f"SELECT 'n' AS what, * FROM ({counts}) UNION ALL SELECT 's' AS what, * FROM ({sums})"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02")])
    alone = f"{RULES}SELECT 's' AS what, * FROM ({sums});"
    read_changes(run(alone))
    put(tmp_path, "2.json", [("a", 5, "00:03")])

    def run_both(query: str, *options: str) -> list[tuple[str, str, int]]:
        return sorted(
            (row["what"], row["k"], row["v"]) for row in read_changes(run(query, *options)) if row["op"] in ("+I", "+U")
        )

    assert run_both(f"{RULES}{both};", *ACCEPT) == [("n", "a", 1), ("s", "a", 6)]
    roll_back(local(tmp_path / "job"), 0, duplicates=True, say=lambda _: None)
    put(tmp_path, "3.json", [("b", 1, "00:04")])
    assert run_both(alone) == [("s", "a", 6), ("s", "b", 10)]
    put(tmp_path, "4.json", [("b", 1, "00:05"), ("c", 1, "00:06")])
    assert run_both(f"{RULES}{both};", *ACCEPT) == [("n", "b", 1), ("n", "c", 1), ("s", "b", 11), ("s", "c", 1)]
    roll_back(local(tmp_path / "job"), 1, duplicates=True, say=lambda _: None)
    assert run_both(f"{RULES}{both};") == [("n", "b", 2), ("n", "c", 1), ("s", "b", 11), ("s", "c", 1)]


@pytest.mark.slow
def test_a_new_operator_has_no_state_of_another(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    old = "SELECT k, SUM(x) AS v FROM t GROUP BY k"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02")])
    read_changes(run(f"{RULES}{old};"))
    put(tmp_path, "2.json", [("c", 3, "00:04")])
    read_changes(
        run(f"{RULES}SELECT CAST(x AS STRING) AS k, COUNT(*) AS v FROM t GROUP BY x UNION ALL {old};", *ACCEPT)
    )
    checkpoint = tmp_path / "job/checkpoints/1"
    for at, name in enumerate(("w2", "w1")):
        metadata = json.loads(
            max((checkpoint / f"state/{at}/_metadata/v2").glob("[0-9]*")).read_text().partition("\n")[2]
        )
        assert f"pages_{name}" in json.dumps(metadata)
    assert "pages_w1" not in json.dumps(
        json.loads(max((checkpoint / "state/0/_metadata/v2").glob("[0-9]*")).read_text().partition("\n")[2])
    )


@pytest.mark.slow
def test_a_new_group_above_groups_starts_with_their_results(run: Run, tmp_path: Path) -> None:
    groups = "SELECT k, SUM(x) AS s FROM t GROUP BY k"
    query = f"{RULES}SELECT s, COUNT(*) AS n FROM ({groups}) GROUP BY s;"

    def find_held_rows(*options: str) -> dict[int, int]:
        changes = read_changes(run(query, *options))
        for row in changes:
            result[row["s"]] = result.get(row["s"], 0) + (row["n"] if row["op"] in ("+I", "+U") else -row["n"])
        return {s: n for s, n in result.items() if n}

    result: dict[int, int] = {}
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 6, "00:02"), ("a", 5, "00:03"), ("c", 3, "00:03")])
    assert len(find_current_rows(read_changes(run(f"{RULES}{groups};")))) == 3
    put(tmp_path, "2.json", [("a", 2, "00:04"), ("d", 6, "00:05")])
    assert find_held_rows() == {8: 1, 6: 2, 3: 1}
    put(tmp_path, "3.json", [("b", 2, "00:06"), ("c", 3, "00:07")])
    assert find_held_rows() == {8: 2, 6: 2}


@pytest.mark.slow
def test_a_new_insert_without_operators_before_a_resumed_one(run: Run, tmp_path: Path) -> None:
    sums, copies = f"INSERT INTO sums SELECT k, SUM(x) {MINUTES};", "INSERT INTO counts SELECT k, x FROM t;"

    def run_query(*inserts: str, options: tuple[str, ...] = ("--suspend",)) -> None:
        done = run(f"{TABLES}EXECUTE STATEMENT SET BEGIN\n{' '.join(inserts)}\nEND;", *options)
        assert done.code == 0, done.err

    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02")])
    run_query(sums)
    put(tmp_path, "2.json", [("a", 5, "00:03")])
    run_query(copies, sums, options=())
    rows = {
        table: sorted(
            (row["k"], row["v"])
            for file in (tmp_path / table).glob("*.json")
            for row in map(json.loads, file.read_text().splitlines())
        )
        for table in ("sums", "counts")
    }
    # All rows are copied, as before; operators that resume keep their state.
    assert rows == {"sums": [("a", 6), ("b", 9)], "counts": [("a", 1), ("a", 5), ("b", 9)]}


@pytest.mark.slow
def test_a_reset_to_other_operators(run: Run, tmp_path: Path) -> None:
    sums, counts = f"SELECT k, SUM(x) AS v {MINUTES}", "SELECT k, COUNT(*) AS v FROM t GROUP BY k"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02")])
    read_changes(run(f"{sums};", "--suspend"))
    put(tmp_path, "2.json", [("a", 5, "00:03")])
    both = f"{counts} UNION ALL {sums}"
    assert sorted(row["v"] for row in read_changes(run(f"{both};", "--on-change", "reset"))) == [1, 5]
    put(tmp_path, "3.json", [("c", 2, "02:04")])
    assert read_changes(run("SELECT k, x AS v FROM t;", "--on-change", "reset")) == [{"k": "c", "v": 2}]


@pytest.mark.slow
def test_new_operators_next_to_and_above_resumed_ones_from_kafka(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kept = "SELECT a, d, SUM(b) AS s FROM MyTable GROUP BY a, d"
    before = make_plan(kept)
    after = make_plan(
        f"SELECT 1, d, MAX(c) AS s FROM MyTable GROUP BY d UNION ALL SELECT a, 2, MAX(s) FROM ({kept}) GROUP BY a"
    )
    job, first, second = Job(spark, tmp_path, kafka_broker), part(7, 0, 40), part(7, 40, 40)
    job.settings = job.settings.with_option("everfold.compat.rules", "extended")
    job.put(first)
    memory = MemoryPipeline(before, job.settings, buckets=2)
    assert job.run(before) == fold_changes([memory.feed(batch(before, first), now_ms=0)], 3)
    job.put(second)
    memory = memory.change_query(after, 1, job.settings)
    assert job.run(after, OnChange.ACCEPT) == fold_changes([memory.feed(batch(after, second), now_ms=0)], 3)
    third = part(7, 80, 40)
    job.put(third)
    assert job.run(after) == fold_changes([memory.feed(batch(after, third), now_ms=0)], 3)
