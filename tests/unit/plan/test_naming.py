"""Operators and sources carry the names under which a job keeps their state."""

from __future__ import annotations

from dataclasses import replace

from everfold.compat.operator_ids import source_notes
from everfold.plan.naming import name_operators, name_sources
from everfold.plan.nodes import Collect, Root, Union
from everfold.plan.parts import map_inputs
from everfold.plan.walk import operators_of, scans_of
from everfold.sql.planner import Session, Submit

TABLES = "CREATE TABLE t (k STRING, v INT); CREATE TABLE t_1 (k STRING, v INT);"
GROUPS = "SELECT k, SUM(v) AS v FROM {} GROUP BY k"


def roots_of(query: str) -> tuple[Root, ...]:
    *_, action = Session().run(TABLES + query)
    assert isinstance(action, Submit)
    return action.roots


def names_of(roots: tuple[Root, ...]) -> list[str]:
    return [node.operator_id for node in operators_of(roots)]


def test_operators_of_a_new_query_are_numbered_as_rows_reach_them() -> None:
    nested = f"SELECT v, COUNT(*) AS n FROM ({GROUPS.format('t')}) GROUP BY v"
    assert names_of(roots_of(f"{nested} UNION ALL {nested}")) == ["w2", "w1", "w4", "w3"]


def test_names_change_neither_the_text_nor_the_meaning_of_a_plan() -> None:
    roots = roots_of(GROUPS.format("t"))
    named = name_sources(name_operators(roots, ["w7"]), ["t_3"])
    assert (names_of(named), [scan.source_name for scan in scans_of(named)]) == (["w7"], ["t_3"])
    assert (named, repr(named), hash(named)) == (roots, repr(roots), hash(roots))


def test_a_node_that_occurs_twice_gets_two_names() -> None:
    (root,) = roots_of(GROUPS.format("t"))
    twice = (Collect(input=Union(inputs=(root.input, root.input))),)
    named = name_sources(name_operators(twice, ["w1", "w2"]), ["t", "t_1"])
    assert (names_of(named), [scan.source_name for scan in scans_of(named)]) == (["w1", "w2"], ["t", "t_1"])


def test_a_changed_node_keeps_its_name() -> None:
    (node,) = operators_of(name_operators(roots_of(GROUPS.format("t")), ["w7"]))
    assert replace(node, span=None).operator_id == map_inputs(node, replace).operator_id == "w7"


def test_sources_are_numbered_without_using_the_name_of_another_table() -> None:
    roots = roots_of("SELECT * FROM t UNION ALL SELECT * FROM t_1 UNION ALL SELECT * FROM t UNION ALL SELECT * FROM t")
    assert [note["name"] for note in source_notes(roots)] == ["t", "t_1", "t_2", "t_3"]
