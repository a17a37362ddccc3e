"""Relations over Arrow tables: when DuckDB runs them, and with which rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everfold.memory.duck import _MAX_PREPARED, Duck
from everfold.plan.expressions import InputRef
from everfold.types import BIGINT, INT, STRING, Field, MapType, Schema

SCHEMA = Schema((Field(name="k", type=STRING), Field(name="n", type=BIGINT)))
SWAPPED = Schema((Field(name="n", type=BIGINT), Field(name="k", type=STRING)))


def table(*rows: tuple[str, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in rows], "n": [n for _, n in rows]})


def test_a_repeated_query_reads_the_tables_of_its_batch() -> None:
    duck = Duck("UTC", 0)
    for rows in ([("a", 1)], [("b", 2), ("c", 3)], []):
        fed = table(*rows) if rows else SCHEMA.arrow.empty_table()
        relation = duck.register_table(fed, SCHEMA)
        assert duck.run(f"SELECT c0, c1 + 1 AS c1 FROM ({relation})").to_pylist() == [
            {"c0": k, "c1": n + 1} for k, n in rows
        ]
        duck.clear_tables()
    assert len(duck._prepared) == 1


def test_a_repeated_query_follows_the_types_of_its_tables() -> None:
    duck = Duck("UTC", 0)
    for of in (pa.int64(), pa.int32(), pa.float64()):
        relation = duck.register_table(pa.table({"k": ["a"], "n": pa.array([1], of)}), SCHEMA)
        assert duck.run(f"SELECT c1 FROM ({relation})").schema.field("c1").type == of
        duck.clear_tables()


def test_few_queries_are_kept() -> None:
    duck = Duck("UTC", 0)
    for at in range(2 * _MAX_PREPARED):
        duck.run(f"SELECT {at} AS c0")
    assert len(duck._prepared) == _MAX_PREPARED


def test_rows_of_a_table_do_not_need_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    duck = Duck("UTC", 0)
    relation = duck.register_table(table(("a", 1)).cast(pa.schema({"k": pa.large_string(), "n": pa.int64()})), SCHEMA)
    columns = [InputRef(type=BIGINT, position=1, name="n"), InputRef(type=STRING, position=0, name="k")]
    swapped = duck.project(relation, columns, 2)
    run = duck.run(swapped)
    assert run.to_pylist() == [{"c0": 1, "c1": "a"}]
    monkeypatch.setattr(Duck, "run", None)
    assert duck.rows(relation, SCHEMA).to_pylist() == [{"c0": "a", "c1": 1}]
    found = duck.rows(swapped, SWAPPED)
    assert found.to_pylist() == run.to_pylist()
    assert found.schema.types == SWAPPED.arrow.types


def test_rows_of_a_table_with_other_types_are_converted_by_duckdb() -> None:
    duck = Duck("UTC", 0)
    schema = Schema((Field(name="m", type=MapType(key=STRING, value=INT)),))
    entries = pa.array([[{"key": "a", "value": 1}]], pa.list_(pa.struct({"key": pa.string(), "value": pa.int32()})))
    found = duck.rows(duck.register_table(pa.table({"m": entries}), schema), schema)
    assert found.to_pylist() == [{"c0": [("a", 1)]}]
