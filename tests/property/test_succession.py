"""Changed queries resume with their state: every example of the two seeds, and random changes
of random queries.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from property.halves import PipelineRun, batch, check_backfill, check_change, make_plan, rows, sort_rows

from everfold.compat import REFERENCE, CompatOptions, Verdict
from everfold.errors import SqlError
from everfold.sql.planner import Session

CASES = Path(__file__).parents[1] / "cases" / "compat"


def _seeds() -> Iterable[tuple[str, str, str]]:
    """Yield every example of the two seeds without Python functions: its name, the old and the
    new query.
    """
    for path in sorted(CASES.glob("seed_*.compat.yaml")):
        for query in yaml.safe_load(path.read_text(encoding="utf-8"))["queries"]:
            for change in query["changes"]:
                if "weighted_avg" not in query["old"] + change["new"]:
                    yield f"{path.name.partition('.')[0]}: {change['name']}", query["old"], change["new"]


SEEDS = list(_seeds())


@pytest.mark.parametrize(("name", "old", "new"), SEEDS, ids=[name for name, _, _ in SEEDS])
def test_examples_of_the_seeds_resume_with_their_state(name: str, old: str, new: str) -> None:
    of_c = "STRING" if "substring" in (old + new).lower() else "INT"
    for seed in range(2):
        check_change(make_plan(old, of_c), make_plan(new, of_c), rows(seed, of_c))
        check_backfill(make_plan(old, of_c), make_plan(new, of_c), rows(seed, of_c))


FRAMES = ["", " ROWS 3 PRECEDING", " RANGE BETWEEN INTERVAL '9' SECOND PRECEDING AND CURRENT ROW"]


@pytest.mark.parametrize("frame", FRAMES)
def test_backfill_after_the_end_of_the_input(frame: str) -> None:
    """The end of the input emits all rows.

    The position of each bucket then follows from its own rows, not from the watermark.
    """
    over = f"FROM MyTable WINDOW w AS (PARTITION BY a ORDER BY ts{frame})"
    before = make_plan(f"SELECT a, b, ts, SUM(b) OVER w AS s {over}", delay=15)
    after = make_plan(f"SELECT a, b, ts, SUM(b) OVER w AS s, COUNT(*) OVER w AS n, MAX(b) OVER w AS m {over}", delay=15)
    for seed in range(3):
        first, second = rows(seed)[:30], rows(seed)[30:]
        running, whole = PipelineRun(before), PipelineRun(after)
        running.feed(first, last=True)
        whole.feed(first, last=True)
        given_before = len(whole.rows)
        changed = PipelineRun(after, running.pipeline.change_query(after, 1, history=batch(after, first)))
        for each in (changed, whole):
            each.feed(second, last=True)
        assert sort_rows(changed.rows, changed.names) == sort_rows(whole.rows[given_before:], whole.names)


@pytest.mark.parametrize("order", ["b", "b DESC ROWS UNBOUNDED PRECEDING", "b, d"])
def test_backfill_of_over_by_any_column(order: str) -> None:
    """All rows are in the state and receive the values of a new aggregate.

    The result equals that of a job that always had the aggregate.
    """
    over = f"FROM MyTable WINDOW w AS (PARTITION BY a ORDER BY {order})"
    before = make_plan(f"SELECT a, b, d, SUM(b) OVER w AS s {over}")
    after = make_plan(f"SELECT a, b, d, SUM(b) OVER w AS s, COUNT(*) OVER w AS n, MAX(d) OVER w AS m {over}")
    for seed in range(3):
        first, second = rows(seed)[:30], rows(seed)[30:]
        running, whole = PipelineRun(before), PipelineRun(after)
        running.feed(first)
        whole.feed([*first, *second])
        changed = PipelineRun(after, running.pipeline.change_query(after, 1, history=batch(after, first)))
        changed.folded.update({(*row, "None", "None"): count for row, count in running.now.items()})
        changed.feed(second)
        assert changed.now == whole.now


def test_pending_rows_may_lack_a_column() -> None:
    """Many batches bring rows of one time, before the change and after it, so that pages with
    and without the column are merged.
    """
    over = "FROM MyTable WINDOW w AS (PARTITION BY a ORDER BY ts)"
    before = make_plan(f"SELECT a, ts, SUM(b) OVER w AS s {over}", delay=3600)
    after = make_plan(f"SELECT a, ts, d, SUM(b) OVER w AS s, COUNT(*) OVER w AS n {over}", delay=3600)
    given = [row | {"ts": row["ts"] % 3_000_000} for seed in range(3) for row in rows(seed)]
    running, whole = PipelineRun(before), PipelineRun(before)
    running.feed(given[:90])
    changed = PipelineRun(
        after,
        running.pipeline.change_query(after, 1, Session().settings.with_option("everfold.compat.rules", "extended")),
    )
    changed.feed(given[90:], last=True)
    whole.feed(given, last=True)
    assert sort_rows(changed.rows, ["a", "ts", "s"]) == sort_rows(whole.rows, ["a", "ts", "s"])
    assert sum(row["n"] is not None for row in changed.rows)
    later = [row for row in changed.rows if row["d"] is not None]
    assert len(later) == sum(row["d"] is not None for row in given[90:])


HOP = "FROM HOP(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND) GROUP BY window_start, window_end"
TUMBLE = "FROM TUMBLE(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '15' SECOND) GROUP BY window_start, window_end"
EXTENDED = {
    "keys in another order": ("SELECT a, d, SUM(b), MAX(c) FROM MyTable GROUP BY a, d", "SELECT a, d, SUM(b), MAX(c) FROM MyTable GROUP BY d, a"),
    "keys of a window in another order": (f"SELECT a, d, SUM(b) {HOP}, a, d", f"SELECT a, d, SUM(b) {HOP}, d, a"),
    "one more DISTINCT call": ("SELECT a, SUM(b) FROM MyTable GROUP BY a", "SELECT a, SUM(b), COUNT(DISTINCT b) FROM MyTable GROUP BY a"),
    "a DISTINCT call over the same values": (
        "SELECT a, COUNT(DISTINCT b), SUM(c) FROM MyTable GROUP BY a",
        "SELECT a, SUM(DISTINCT b), COUNT(DISTINCT b), SUM(c) FROM MyTable GROUP BY a",
    ),
    "one DISTINCT call removed": (
        "SELECT a, COUNT(DISTINCT b), SUM(DISTINCT c) FROM MyTable GROUP BY a",
        "SELECT a, SUM(DISTINCT c) FROM MyTable GROUP BY a",
    ),
    "DISTINCT calls in another order": (
        f"SELECT a, COUNT(DISTINCT b), SUM(DISTINCT c) {HOP}, a",
        f"SELECT a, SUM(DISTINCT c), COUNT(DISTINCT b) {HOP}, a",
    ),
    "an average of a summed column": ("SELECT a, SUM(b), STDDEV_POP(c) FROM MyTable GROUP BY a", "SELECT a, AVG(b), VAR_SAMP(c), COUNT(b), COUNT(c), SUM(b) FROM MyTable GROUP BY a"),
    "sums of an averaged column, in windows": (f"SELECT a, AVG(b), MAX(c) {HOP}, a", f"SELECT a, SUM(b), COUNT(b), MAX(c) {HOP}, a"),
    "variances in sessions": (
        "SELECT a, window_start, VAR_POP(b) FROM SESSION(TABLE MyTable PARTITION BY a, DESCRIPTOR(ts), INTERVAL '3' SECOND) GROUP BY a, window_start, window_end",
        "SELECT a, window_start, STDDEV_SAMP(b), COUNT(b) FROM SESSION(TABLE MyTable PARTITION BY a, DESCRIPTOR(ts), INTERVAL '3' SECOND) GROUP BY a, window_start, window_end",
    ),
    "an average over changes": (
        "SELECT m, SUM(n), MAX(a) FROM (SELECT a, MAX(b) AS m, COUNT(*) AS n FROM MyTable GROUP BY a) GROUP BY m",
        "SELECT m, AVG(n), COUNT(n), MAX(a) FROM (SELECT a, MAX(b) AS m, COUNT(*) AS n FROM MyTable GROUP BY a) GROUP BY m",
    ),
    "sums of an averaged column, in frames": (
        "SELECT a, b, AVG(b) OVER w, MAX(b) OVER w FROM MyTable WINDOW w AS (PARTITION BY a ORDER BY ts ROWS 5 PRECEDING)",
        "SELECT a, b, SUM(b) OVER w, COUNT(b) OVER w, MAX(b) OVER w FROM MyTable WINDOW w AS (PARTITION BY a ORDER BY ts ROWS 5 PRECEDING)",
    ),
    "sums of an averaged column, in unbounded frames": (
        "SELECT a, b, AVG(b) OVER w FROM MyTable WINDOW w AS (PARTITION BY a ORDER BY ts)",
        "SELECT a, b, SUM(b) OVER w, COUNT(b) OVER w FROM MyTable WINDOW w AS (PARTITION BY a ORDER BY ts)",
    ),
    "aggregates over changes": (
        "SELECT m, COUNT(*), VAR_POP(n) FROM (SELECT a, MAX(b) AS m, COUNT(*) AS n FROM MyTable GROUP BY a) GROUP BY m",
        "SELECT m, COUNT(*), MIN(n), MAX(a), SUM(n), AVG(a), COUNT(DISTINCT n) FROM (SELECT a, MAX(b) AS m, COUNT(*) AS n FROM MyTable GROUP BY a) GROUP BY m",
    ),
    "other aggregates over changes": (
        "SELECT m, COUNT(*), MIN(n), SUM(DISTINCT n) FROM (SELECT a, MAX(b) AS m, COUNT(*) AS n FROM MyTable GROUP BY a) GROUP BY m",
        "SELECT m, MAX(n), COUNT(DISTINCT n), MIN(n) FILTER (WHERE a > 2) FROM (SELECT a, MAX(b) AS m, COUNT(*) AS n FROM MyTable GROUP BY a) GROUP BY m",
    ),
    "one more table of values over changes": (
        "SELECT a, SUM(b), SUM(DISTINCT c), MAX(b) FROM (SELECT a, d, SUM(b) AS b, MAX(c) AS c FROM MyTable GROUP BY a, d) GROUP BY a",
        "SELECT a, SUM(DISTINCT c), MIN(b), COUNT(DISTINCT b) FROM (SELECT a, d, SUM(b) AS b, MAX(c) AS c FROM MyTable GROUP BY a, d) GROUP BY a",
    ),
    "aggregates over the first rows": (
        "SELECT c, COUNT(*) FROM (SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY d ORDER BY b DESC, c) AS r FROM MyTable WHERE b > 0) WHERE r <= 2) GROUP BY c",
        "SELECT c, COUNT(*), SUM(b), MAX(d) FROM (SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY d ORDER BY b DESC, c) AS r FROM MyTable WHERE b > 0) WHERE r <= 2) GROUP BY c",
    ),
    "columns of OVER added and removed": (
        "SELECT a, b, c, ts, SUM(b) OVER (PARTITION BY a ORDER BY ts ROWS 5 PRECEDING) FROM MyTable",
        "SELECT a, b, d, ts, SUM(b) OVER (PARTITION BY a ORDER BY ts ROWS 5 PRECEDING) FROM MyTable",
    ),
    "TUMBLE of the slices of HOP": (f"SELECT window_start, a, SUM(b), MAX(c), COUNT(DISTINCT b) {HOP}, a", f"SELECT window_start, a, SUM(b), MAX(c), COUNT(DISTINCT b) {TUMBLE}, a"),
    "TUMBLE of two slices": (f"SELECT window_start, a, SUM(b), AVG(c) {HOP}, a", f"SELECT window_start, a, SUM(b), AVG(c) {TUMBLE.replace('15', '10')}, a"),
    "a shorter HOP": (f"SELECT window_start, a, SUM(b), AVG(c) {HOP}, a", f"SELECT window_start, a, SUM(b), AVG(c) {HOP.replace('15', '10')}, a"),
    "HOP by two slices": (f"SELECT window_start, SUM(b) {HOP.replace('15', '20')}", f"SELECT window_start, SUM(b) {HOP.replace('15', '20').replace(chr(39) + '5', chr(39) + '10')}"),
    "the longest window of CUMULATE": (f"SELECT window_start, a, SUM(b), MAX(c) {HOP.replace('HOP', 'CUMULATE')}, a", f"SELECT window_start, a, SUM(b), MAX(c) {TUMBLE}, a"),
    "one more DISTINCT call in a frame": (
        "SELECT a, b, SUM(b) OVER (PARTITION BY a ORDER BY ts) FROM MyTable",
        "SELECT a, b, SUM(b) OVER w, COUNT(DISTINCT b) OVER w FROM MyTable WINDOW w AS (PARTITION BY a ORDER BY ts)",
    ),
    "an expression in an aggregate of a window": (f"SELECT a, SUM(b), MAX(c) {HOP}, a", f"SELECT a, SUM(b), MAX(c + 1) {HOP}, a"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXTENDED)
def test_the_extended_rules_keep_more_state(name: str) -> None:
    before, after = map(make_plan, EXTENDED[name])
    strict = check_change(before, after, rows(0)).verdict
    for seed in range(1, 3):
        found = check_change(before, after, rows(seed), CompatOptions(extended=True)).verdict
        assert found.reuses_state
        assert found is not strict
        assert Verdict.worst([found, strict]) is strict


@pytest.mark.parametrize("call", ["SUM(b)", "ARRAY_AGG(c)", "FIRST_VALUE(c)"])
def test_an_open_session_is_backfilled_from_its_first_row(call: str) -> None:
    """This includes rows that are older than the gap: later rows have kept the session open."""
    query = (
        "SELECT window_start, window_end, a, {} FROM SESSION(TABLE MyTable PARTITION BY a, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
        " GROUP BY window_start, window_end, a"
    )
    before, after = make_plan(query.format("MAX(c)")), make_plan(query.format(f"MAX(c), {call}"))
    for seed in range(3):
        check_backfill(before, after, rows(seed))


def test_backfilled_zeros_are_emitted() -> None:
    """The rows of a group had no such column before: 0 differs from that, and so does an empty
    array.
    """
    before, after = (
        make_plan(f"SELECT a, COUNT(*) AS n{more} FROM MyTable GROUP BY a") for more in ("", ", COUNT(b) AS m")
    )
    past = [{**row, "a": at % 2, "b": None} for at, row in enumerate(rows(0))]

    def backfill() -> PipelineRun:
        running = PipelineRun(before)
        running.feed(past)
        return PipelineRun(after, running.pipeline.change_query(after, 1, history=batch(after, past)))

    changed = backfill()
    changed.feed(past[:7])
    assert {key[0]: (row["n"], row["m"]) for key, row in changed.by_key.items()} == {"0": (34, 0), "1": (33, 0)}
    first = backfill()
    first.feed([{**past[0], "a": 5}])
    assert {key[0]: row["m"] for key, row in first.by_key.items()} == {"0": 0, "1": 0, "5": 0}


def test_a_backfill_below_and_a_refresh_above() -> None:
    """A new call below is backfilled.

    A new call above starts with the current rows, and then reads the backfilled changes.
    """
    before = make_plan("SELECT m, COUNT(*) AS n FROM (SELECT a, MAX(b) AS m FROM MyTable GROUP BY a) GROUP BY m")
    after = make_plan(
        "SELECT m, COUNT(*) AS n, SUM(s) AS s, MIN(s) AS l, COUNT(DISTINCT s) AS d, MIN(t) AS t, COUNT(t) AS e "
        "FROM (SELECT a, MAX(b) AS m, SUM(c) AS s, COUNT(c) AS t FROM MyTable GROUP BY a) GROUP BY m"
    )
    extended = Session().settings.with_option("everfold.compat.rules", "extended")
    for seed in range(3):
        first, second = rows(seed)[:30], rows(seed)[30:]
        running, whole = PipelineRun(before), PipelineRun(after)
        running.feed(first)
        filled = running.pipeline.change_query(after, 1, extended, batch(after, first), refresh=True)
        changed = PipelineRun(after, filled)
        changed.feed(second, last=True)
        whole.feed(first + second, last=True)
        assert changed.now == whole.now


# --- random queries -------------------------------------------------------------------------------

CALLS = (
    "SUM(b)", "MAX(b)", "MIN(b)", "COUNT(*)", "COUNT(b)", "AVG(c)", "MAX(c)", "SUM(b + c)", "COUNT(DISTINCT b)", "SUM(DISTINCT c)",
    "SUM(b) FILTER (WHERE c > 2)", "FIRST_VALUE(c)", "LAST_VALUE(c)", "STDDEV_POP(b)", "ARRAY_AGG(c)",
)  # fmt: skip
PLAIN = tuple(call for call in CALLS if "DISTINCT" not in call)
OVER_CALLS = ("SUM(b)", "MAX(b)", "MIN(c)", "COUNT(*)", "COUNT(c)", "AVG(c)", "LAST_VALUE(b)", "COUNT(DISTINCT b)")
FROM = {
    "group": ("MyTable", ""),
    "tumble": ("TUMBLE(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '{n}' SECOND)", "window_start, window_end"),
    "hop": ("HOP(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '{n}' SECOND)", "window_start, window_end"),
    "cumulate": ("CUMULATE(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '{n}' SECOND)", "window_start, window_end"),
    "session": ("SESSION(TABLE MyTable PARTITION BY a, DESCRIPTOR(ts), INTERVAL '{n}' SECOND)", "window_start, window_end"),
}  # fmt: skip
RANDOM_FRAMES = (
    "",
    "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN INTERVAL '9' SECOND PRECEDING AND CURRENT ROW",
    "ROWS UNBOUNDED PRECEDING",
)


def aggregation(kind: str, keys: list[str], calls: list[str], size: int, where: str, having: str, inner: bool) -> str:
    """Return an aggregation. inner: over another aggregation."""
    source, window = FROM[kind]
    by = ", ".join([*([window] if window else []), *keys])
    shown = ", ".join([*([window] if window else []), *keys, *calls])
    source = source.format(n=size)
    if inner:
        source = "(SELECT a, d, SUM(b) AS b, MAX(c) AS c FROM MyTable GROUP BY a, d)"
    return " ".join(
        [
            "SELECT",
            shown or "1",
            "FROM",
            source,
            where,
            f"GROUP BY {by}" if by else "",
            f"HAVING {having}" if having else "",
        ]
    )


def over(keys: list[str], calls: list[str], frame: str, columns: list[str]) -> str:
    window = f"(PARTITION BY {', '.join(keys)} ORDER BY ts {frame})"
    return f"SELECT {', '.join([*columns, *(f'{call} OVER {window}' for call in calls)])} FROM MyTable"


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    """Make a query, and one that differs from it in a few parts or not at all."""
    if draw(st.integers(0, 3)) == 0:
        calls = draw(st.lists(st.sampled_from(OVER_CALLS), min_size=1, max_size=3, unique=True))
        parts = [["a"], calls, draw(st.sampled_from(RANDOM_FRAMES)), ["a", "b", "c", "ts"]]
        changed = [
            draw(st.sampled_from([["a"], ["a"], ["a"], ["a", "d"]])),
            _edit(draw, calls, OVER_CALLS),
            draw(st.sampled_from([parts[2]] * 4 + [*RANDOM_FRAMES])),
            draw(st.sampled_from([parts[3], parts[3], ["c", "ts", "b", "a"], [*parts[3], "d"]])),
        ]
        return over(*parts), over(*changed)  # type: ignore[arg-type]
    kind = draw(st.sampled_from(["group", "group", "group", *FROM]))
    inner = kind == "group" and draw(st.integers(0, 3)) == 0
    keys = draw(st.sampled_from([["a"]] if kind == "session" else [["a"], ["a", "d"], []]))
    every = CALLS if draw(st.integers(0, 3)) == 0 else PLAIN
    if inner:
        # An inner aggregate that is no longer read emits no changes: rows reach the outer one in
        # another order.
        every = tuple(call for call in every if not call.startswith(("FIRST", "LAST", "ARRAY")))
    calls = draw(
        st.lists(st.sampled_from(every), min_size=draw(st.sampled_from([0, 2, 2, 2])), max_size=4, unique=True)
    )
    size = draw(st.sampled_from([10, 20]))
    where = draw(st.sampled_from(["", "", "WHERE b > 0"]))
    changed_keys = draw(st.sampled_from([keys] * 5 + [[*keys, "c"]])) if kind != "session" else keys
    edited = _edit(draw, calls, every)
    # A condition over a new aggregate excludes rows of kept ones, which is not a loss of state.
    conditions = [f"{call} IS NULL OR {call} IS NOT NULL" for call in edited if call in calls]
    return (
        aggregation(kind, keys, calls, size, where, "", inner),
        aggregation(
            kind,
            changed_keys,
            edited,
            draw(st.sampled_from([size] * 5 + [10])),
            draw(st.sampled_from([where] * 5 + ["WHERE c > 1"])),
            draw(st.sampled_from(["", "", *conditions])),
            inner,
        ),
    )


def _edit(draw: st.DrawFn, calls: list[str], every: tuple[str, ...]) -> list[str]:
    """Drop some of the calls, add some, and possibly reorder them."""
    left = [call for call in calls if draw(st.integers(0, 3))]
    more = draw(st.lists(st.sampled_from(every), max_size=2, unique=True))
    together = [*left, *(call for call in more if call not in left)]
    return draw(st.permutations(together)) if draw(st.booleans()) else together


@settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs(), st.integers(0, 99))
def test_random_changes_resume_with_their_state(pair: tuple[str, str], seed: int) -> None:
    _check(pair, seed)


@pytest.mark.slow
@pytest.mark.parametrize("fifth", range(5))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs(), st.integers(0, 99))
def test_many_random_changes_resume_with_their_state(fifth: int, pair: tuple[str, str], seed: int) -> None:
    """Run five times a hundred examples, for as many workers."""
    _check(pair, seed)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs(), st.integers(0, 99))
def test_many_random_changes_by_the_extended_rules(pair: tuple[str, str], seed: int) -> None:
    _check(pair, seed, CompatOptions(extended=True))


def _check(pair: tuple[str, str], seed: int, terms: CompatOptions = REFERENCE) -> None:
    try:
        before, after = map(make_plan, pair)
    except SqlError:
        event("refused SQL")
        return
    event(check_change(before, after, rows(seed), terms).verdict.value)
    if not terms.extended:
        check_backfill(before, after, rows(seed))
