"""Changed queries of Lenses SQL resume with their state: chosen changes for each rule, and
random changes of random queries.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from property.halves import check_backfill, check_change, make_lenses_plan, rows

from everfold.compat import Verdict

CALLS = {
    "COUNT_n": "COUNT(*)", "COUNT_b": "COUNT(b)", "s": "SUM(b)", "m": "AVG(c)", "f": "FIRST(b)", "l": "LAST(c)", "LIST_c": "COLLECT(c, 4)",
    "LIST_u": "COLLECT_UNIQUE(b, 3)", "LIST_top": "MAXK(b, 2)", "least": "MINK(c)", "LIST_uniquely": "MAXK_UNIQUE(c, 3)", "most": "MINK_UNIQUE(b, 1)",
    "often": "TOPK(b)", "LIST_seldom": "BOTTOMK(c, 2)", "of_key": "SUM(MyTable._key)",
}  # fmt: skip
WINDOWS = ("TUMBLE 10s", "HOP 20s 5s", "SESSION 2s", "TUMBLE 20s GRACE BY 7s")


def query(
    names: list[str], *, kind: str = "STREAM", by: str = "a", window: str = "", where: str = "", having: str = ""
) -> str:
    shown = ", ".join(f"{CALLS[name]} AS {name}" for name in names)
    timed = f"EVENTTIME BY ts {where} WINDOW BY {window}" if window else where
    return f"INSERT INTO t SELECT {kind} {shown} FROM MyTable {timed} GROUP BY {by} {having}"


CHANGES: dict[str, tuple[str, str, Verdict]] = {
    "one more aggregate": (query(["s"]), query(["s", "LIST_top"]), Verdict.PARTIALLY),
    "one aggregate removed": (query(["s", "LIST_c"]), query(["s"]), Verdict.FULLY),
    "aggregates in another order": (query(["s", "LIST_top", "often"]), query(["often", "s", "LIST_top"]), Verdict.FULLY),
    "one aggregate removed under an alias": (query(["s", "l"], by="a AS x"), query(["l"], by="a AS x"), Verdict.FULLY),
    "several fields": (query(["s", "l"], by="a, d"), query(["l", "f", "s"], by="a, d"), Verdict.PARTIALLY),
    "in a window": (query(["s", "LIST_c"], window="TUMBLE 10s"), query(["LIST_c", "most"], window="TUMBLE 10s"), Verdict.PARTIALLY),
    "in a session": (query(["s"], window="SESSION 2s"), query(["s", "LIST_u"], window="SESSION 2s"), Verdict.PARTIALLY),
    "a window": (query(["s"]), query(["s"], window="TUMBLE 10s"), Verdict.INCOMPATIBLE),
    "another window": (query(["s"], window="TUMBLE 10s"), query(["s"], window="TUMBLE 20s"), Verdict.INCOMPATIBLE),
    "another group": (query(["s"]), query(["s"], by="d"), Verdict.INCOMPATIBLE),
    "a condition": (query(["s"]), query(["s"], where="WHERE b > 2"), Verdict.INCOMPATIBLE),
    "a table": (query(["s"]), query(["s"], kind="TABLE"), Verdict.INCOMPATIBLE),
    "one aggregate of a table removed": (query(["s", "LIST_top", "COUNT_b"], kind="TABLE"), query(["LIST_top", "s"], kind="TABLE"), Verdict.FULLY),
    "a column of a table removed": (query(["s", "l"], kind="TABLE"), query(["s"], kind="TABLE"), Verdict.INCOMPATIBLE),
    "one more aggregate of a table": (query(["s"], kind="TABLE"), query(["s", "COUNT_n"], kind="TABLE"), Verdict.INCOMPATIBLE),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_changed_queries_resume_with_their_state(name: str) -> None:
    before, after, verdict = CHANGES[name]
    assert check_change(make_lenses_plan(before), make_lenses_plan(after), rows(0)).verdict is verdict
    check_backfill(make_lenses_plan(before), make_lenses_plan(after), rows(0))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    """Make a query, and one that differs from it in a few parts or not at all."""
    kind = draw(st.sampled_from(["STREAM", "STREAM", "TABLE"]))
    names = draw(st.lists(st.sampled_from(list(CALLS)), min_size=1, max_size=4, unique=True))
    more = draw(st.lists(st.sampled_from(list(CALLS)), max_size=2, unique=True))
    left = [name for name in names if draw(st.integers(0, 3))]
    edited = draw(st.permutations([*left, *(name for name in more if name not in left)])) or names
    like: dict[str, Any] = {
        "kind": kind,
        "by": draw(st.sampled_from(["a", "a, d", "d + 1", "MyTable._key % 3"])),
        "window": "" if kind == "TABLE" else draw(st.sampled_from(["", *WINDOWS])),
        "where": draw(st.sampled_from(["", "WHERE b > 0"])),
    }
    changed = {**like, **draw(st.sampled_from([{}] * 6 + [{"by": "d"}, {"where": "WHERE c > 1"}]))}
    return query(names, **like), query(list(edited), **changed)


@settings(max_examples=8, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs(), st.integers(0, 99))
def test_random_changes_resume_with_their_state(pair: tuple[str, str], seed: int) -> None:
    _check(pair, seed)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs(), st.integers(0, 99))
def test_many_random_changes_resume_with_their_state(pair: tuple[str, str], seed: int) -> None:
    _check(pair, seed)


def _check(pair: tuple[str, str], seed: int) -> None:
    before, after = map(make_lenses_plan, pair)
    event(check_change(before, after, rows(seed)).verdict.value)
    check_backfill(before, after, rows(seed))
