"""Which columns identify the rows of a result.

Decided as in Flink, from grouping keys, primary keys and the conditions of joins.
"""

from __future__ import annotations

import pytest

from everfold.connectors.registry import apply_connector
from everfold.plan.keys import unique_key, unique_keys
from everfold.sql.planner import Session, Submit

TABLES = """
CREATE TABLE s (k BIGINT, d DOUBLE, p DECIMAL(6, 2), t TIMESTAMP(3), w VARCHAR(5), v INT) WITH ('connector' = 'datagen');
CREATE TABLE names (id BIGINT, lang STRING, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'filesystem', 'path' = 'names', 'format' = 'csv');
CREATE TABLE plain (id BIGINT, name STRING) WITH ('connector' = 'filesystem', 'path' = 'names', 'format' = 'csv');
"""
BY_K = "(SELECT k, COUNT(*) AS n FROM s GROUP BY k)"


def key_of(query: str) -> tuple[int, ...] | None:
    *_, action = Session(connected=apply_connector).run(TABLES + query)
    assert isinstance(action, Submit)
    return unique_key(action.roots[0].input)


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT COUNT(*) FROM s", ()),
        ("SELECT COUNT(*), k, v FROM s GROUP BY v, k", (2, 1)),
        ("SELECT COUNT(*) FROM s GROUP BY k", None),
        ("SELECT n, k FROM " + BY_K + " WHERE n > 1", (1,)),
        ("SELECT k + 1, COUNT(*) FROM s GROUP BY k", None),
    ],
)
def test_the_grouping_columns_are_a_key(query: str, key: tuple[int, ...] | None) -> None:
    assert key_of(query) == key


@pytest.mark.parametrize(
    ("column", "type", "kept"),
    [
        ("v", "BIGINT", True),
        ("v", "STRING", True),
        ("v", "DOUBLE", True),
        ("v", "DECIMAL(10, 0)", True),
        ("v", "DECIMAL(9, 0)", False),
        ("v", "VARCHAR(10)", False),  # -2147483648 has eleven characters
        ("v", "CHAR(20)", False),
        ("k", "INT", False),
        ("k", "DOUBLE", False),
        ("d", "BIGINT", False),
        ("d", "FLOAT", False),
        ("p", "DECIMAL(8, 3)", True),
        ("p", "DECIMAL(6, 1)", False),
        ("t", "TIMESTAMP(6)", True),
        ("t", "TIMESTAMP(0)", False),
        ("t", "DATE", False),
        ("w", "STRING", True),
        ("w", "VARCHAR(4)", False),
    ],
)
def test_a_cast_keeps_a_key_if_values_stay_distinct(column: str, type: str, kept: bool) -> None:
    assert key_of(f"SELECT CAST({column} AS {type}), COUNT(*) FROM s GROUP BY {column}") == ((0,) if kept else None)


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT k, n, name FROM {} AS g JOIN names ON k = id", (0,)),
        ("SELECT k, n, name FROM {} AS g LEFT JOIN names ON id = k AND lang = 'en'", (0,)),
        ("SELECT k, n, name FROM {} AS g JOIN names ON k > id", None),
        ("SELECT k, n, id FROM {} AS g JOIN names ON k > id", (0, 2)),
        ("SELECT k, n, name FROM {} AS g JOIN plain ON k = id", None),
        ("SELECT k, n, name FROM {} AS g JOIN (SELECT id, MAX(name) AS name FROM plain GROUP BY id) AS p ON k = id", (0,)),
        ("SELECT k, n, most FROM {} AS g CROSS JOIN (SELECT MAX(name) AS most FROM plain) AS p", (0,)),
        ("SELECT k, n FROM {} AS g WHERE k IN (SELECT id FROM plain)", (0,)),
        ("SELECT k, n FROM {} AS g WHERE n > (SELECT AVG(id) FROM plain)", (0,)),
    ],
)  # fmt: skip
def test_a_join_with_a_bounded_table_keeps_a_key(query: str, key: tuple[int, ...] | None) -> None:
    assert key_of(query.format(BY_K)) == key


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ("k, v, n", [(0, 1)]),
        ("ROW(k, v), n", [(0,)]),
        ("ROW(k, v), n, v, k", [(0,), (0, 2), (3, 0), (3, 2)]),
        ("ROW(k, n), v", []),
        ("ROW(k, ROW(v))", [(0,)]),
        ("k, v, k", [(0, 1), (2, 1)]),
    ],
)
def test_a_key_column_may_appear_several_times(columns: str, keys: list[tuple[int, ...]]) -> None:
    *_, action = Session(connected=apply_connector).run(
        f"{TABLES} SELECT {columns} FROM (SELECT k, v, COUNT(*) AS n FROM s GROUP BY k, v)"
    )
    assert isinstance(action, Submit)
    assert list(unique_keys(action.roots[0].input)) == keys
