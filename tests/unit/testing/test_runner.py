"""How cases are run: batches, variants, restarts, errors.

The engine is a fake.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from everfold.errors import EverfoldError, SqlError
from everfold.testing import report, runner
from everfold.testing.casefile import Case, loads
from everfold.testing.engines import EngineName, concat_batches
from everfold.testing.part import Part, StreamResult
from everfold.testing.runner import _split_rows, run

SUITE = """\
tables: CREATE TABLE t (k STRING, n INT);
rows:
  t: |
    k | n
    a | 1
    b | 2
    c | 3
cases:
  - name: all
    modes: [stream, batch]
    sql: SELECT k, n FROM t
    expect: |  # STRING, INT
      k | n
      a | 1
      b | 2
      c | 3
"""


class Echo:
    """Emits its input, as `SELECT k, n FROM t` does, and records the batches that it received."""

    name: EngineName = "memory"

    def __init__(self, *, late_rows: int = 0, spoil: bool = False, error: EverfoldError | None = None) -> None:
        self.received: list[list[list[int]]] = []
        self._late_rows, self._spoil, self._error = late_rows, spoil, error

    def stream(self, parts: Sequence[Part]) -> StreamResult:
        if self._error is not None:
            raise self._error
        sizes = [[batch["t"].num_rows for batch in part.batches] for part in parts]
        self.received.append(sizes)
        one_by_one = sizes[0][0] == 1
        tables = [concat_batches(part.batches)["t"] for part in parts]
        if self._spoil and one_by_one:
            tables[-1] = tables[-1].slice(1)
        return StreamResult(tuple(tables), self._late_rows if one_by_one else 0)

    def batch(self, part: Part) -> pa.Table:
        return concat_batches(part.batches)["t"]

    def close(self) -> None:
        pass


def case(text: str = SUITE) -> Case:
    return loads(text, Path("some.case.yaml")).cases[0]


def test_a_stream_runs_as_written_and_then_in_equivalent_variants() -> None:
    engine = Echo()
    assert run(case(), engine, "stream").message == ""
    assert engine.received == [[[3]], [[1, 1, 1]], [[3]], [[1, 1], [1]]]
    assert run(case(), Echo(), "batch").passed


@pytest.mark.parametrize(
    ("batches", "sizes"), [("one", [[3]]), ("row", [[1, 1, 1]]), ("[1]", [[1, 2]]), ("[1, 0, 2]", [[1, 0, 2]])]
)
def test_batches_are_fed_as_written(batches: str, sizes: list[list[int]]) -> None:
    engine = Echo()
    assert run(case(SUITE.replace("    sql:", f"    batches: {batches}\n    sql:")), engine, "stream").passed
    assert engine.received[0] == sizes


def test_a_case_with_late_rows_depends_on_its_batches() -> None:
    engine = Echo(late_rows=1)
    assert run(case(), engine, "stream").passed
    assert len(engine.received) == 2
    engine = Echo()
    assert run(case(SUITE.replace("    sql:", "    batches: row\n    sql:")), engine, "stream").passed
    assert engine.received == [[[1, 1, 1]], [[1], [1], [1]]]


def many_rows(count: int) -> str:
    rows = "".join(f"{{}}x | {at}\n" for at in range(count))
    head, _, rest = SUITE.partition("    a | 1\n")
    rest = rest[rest.index("cases:") :]
    rest = rest[: rest.index("      a | 1\n")]
    return head + rows.format(*["    "] * count) + rest + rows.format(*["      "] * count)


def test_row_by_row_runs_use_larger_batches_after_the_first_rows() -> None:
    engine = Echo()
    outcome = run(case(many_rows(211)), engine, "stream")
    assert (outcome.message, outcome.capped) == ("", True)
    assert engine.received[1] == [[1] * 200 + [2, 4, 5]]
    assert engine.received[3] == [[1, 1]] * 100 + [[2, 4], [5]]
    assert report.format_summary([outcome]) == (
        "1 ran only the first 200 rows of a step row by row\n1 passed, 0 failed"
    )
    assert '"rows_one_by_one": 200' in report.to_json([outcome])
    engine = Echo()
    outcome = run(case(many_rows(200)), engine, "stream")
    assert (outcome.message, outcome.capped) == ("", False)
    assert engine.received[1] == [[1] * 200]
    assert "rows_one_by_one" not in report.to_json([outcome])


def test_a_failure_of_a_shortened_run_says_so() -> None:
    message = run(case(many_rows(201)), Echo(spoil=True), "stream").message
    assert message.startswith(
        "with one row per batch (the first 200 rows of a step, then batches of 2, 4, 8, … rows):\n"
    )


def test_batches_of_one_row_that_a_case_asks_for_are_never_larger() -> None:
    engine = Echo()
    outcome = run(case(many_rows(211).replace("    sql:", "    batches: row\n    sql:")), engine, "stream")
    assert (outcome.message, outcome.capped) == ("", False)
    assert engine.received == [[[1] * 211], [[1]] * 211]


def test_larger_batches_alternate_between_tables() -> None:
    tables = {"t": pa.table({"c0": list(range(250))}), "u": pa.table({"c0": list(range(3))})}
    batches = _split_rows(tables, 200)
    assert [tuple(batch[name].num_rows for name in "tu") for batch in batches[:7]] == [
        (1, 0),
        (0, 1),
        (1, 0),
        (0, 1),
        (1, 0),
        (0, 1),
        (1, 0),
    ]
    assert [batch["t"].num_rows for batch in batches[200:]] == [2, 4, 8, 16, 23]
    for name in tables:
        assert pa.concat_tables([batch[name] for batch in batches]) == tables[name].combine_chunks()


def test_a_large_case_with_late_rows_as_written_runs_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SINGLE_ROWS", 2)
    engine = Echo(late_rows=1)
    assert run(case(SUITE.replace("    sql:", "    batches: [1, 1, 1]\n    sql:")), engine, "stream").passed
    assert engine.received == [[[1, 1, 1]]]


def test_a_variant_with_another_result_is_reported() -> None:
    message = run(case(), Echo(spoil=True), "stream").message
    assert message == "with one row per batch:\n  k | n\n- a | 1\n  b | 2\n  c | 3"


def test_steps_are_parts_and_are_compared_one_by_one() -> None:
    steps = """\
    sql: SELECT k, n FROM t
    steps:
      - expect: |
          k | n
          a | 1
          b | 2
          c | 3
      - rows:
          t: |
            k | n
            d | 4
        expect: |
          k | n
          d | 5
"""
    head, _, _ = SUITE.partition("    sql:")
    engine = Echo()
    outcome = run(case(head + steps), engine, "stream")
    assert outcome.message == "step 2:\n  k | n\n+ d | 4\n- d | 5"
    assert engine.received == [[[3], [1]]]


WRONG = SqlError.of("unknown-column", "no column is named `x`", help="did you mean `n`?")


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ("error: unknown-column", ""),
        ("error: {words: [no column, DID you mean]}", ""),
        ("error: {code: unknown-column, words: no column is named}", ""),
        ("error: unknown-table", "expected the error (`unknown-table`), but got"),
        ("error: {words: no table}", "expected the error (“no table”), but got"),
        ("not_yet: unknown-column", ""),
        ("not_yet: unknown-table", "expected the error (`unknown-table`), but got"),
        ("not_yet: {stream: unknown-column}", ""),
        ("not_yet: {batch: unknown-column}", "error[unknown-column]"),
    ],
)
def test_expected_errors_are_compared(outcome: str, message: str) -> None:
    text = SUITE.partition("    expect:")[0] + f"    {outcome}\n"
    found = run(case(text), Echo(error=WRONG), "stream").message
    assert found.startswith(message) if message else found == ""


def test_a_missing_error_and_a_closed_gap_are_reported() -> None:
    head = SUITE.partition("    expect:")[0]
    assert "but the query succeeded" in run(case(head + "    error: unknown-column\n"), Echo(), "stream").message
    closed = run(case(SUITE + "    not_yet: unknown-column\n"), Echo(), "stream").message
    assert closed == "the error `unknown-column` no longer occurs: remove `not_yet` from the case"


def test_rows_for_an_unknown_table_or_column_are_an_error_of_the_file() -> None:
    assert "no CREATE TABLE defines it" in run(case(SUITE.replace("  t: |", "  u: |")), Echo(), "stream").message
    message = run(case(SUITE.replace("k | n\n    a", "k | m\n    a")), Echo(), "stream").message
    assert "some.case.yaml:4:" in message
    assert "table `t` has no column `m`; it has k, n" in message
    assert "some.case.yaml:6:" in run(case(SUITE.replace("b | 2", "b | x", 1)), Echo(), "stream").message


def test_a_case_replaces_the_table_of_its_suite() -> None:
    own = "    tables: CREATE TABLE t (k STRING, n INT);\n    sql:"
    assert run(
        case(SUITE.replace("(k STRING, n INT)", "(other INT)", 1).replace("    sql:", own)), Echo(), "stream"
    ).passed


def test_the_report_counts_and_locates_failures() -> None:
    good, bad = run(case(), Echo(), "stream"), run(case(), Echo(spoil=True), "stream")
    assert report.format_summary([good, bad, good]) == "2 passed, 1 failed"
    assert report.format_failure(bad).startswith(
        "some.case.yaml:9: all (memory, stream)\n    with one row per batch:\n"
    )
    assert '"failed": 1' in report.to_json([good, bad])


def test_a_table_with_a_connector_is_checked_and_read(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"k": "z", "n": 9}\n')
    with_connector = "(k STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 't.json', 'format' = 'json');"
    text = SUITE.replace("(k STRING, n INT);", with_connector).replace(
        "rows:\n  t: |\n    k | n\n    a | 1\n    b | 2\n    c | 3\n", ""
    )
    read = loads(text, tmp_path / "some.case.yaml").cases[0]
    assert run(read, Echo(), "batch").message == "  k | n\n- a | 1\n- b | 2\n- c | 3\n+ z | 9"
    wrong = loads(text.replace("'json')", "'jsn')"), tmp_path / "some.case.yaml").cases[0]
    assert "did you mean `json`?" in run(wrong, Echo(), "batch").message
