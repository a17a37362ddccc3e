"""Results of the Python API: rows at the end of an updating query, printed and as HTML."""

from __future__ import annotations

import io

import pyarrow as pa

from everfold.plan.changelog import KIND, RowKind
from everfold.table.result import TableResult, concat_rows, string_result
from everfold.types import BIGINT, STRING, Field, Schema

SCHEMA = Schema((Field(name="k", type=STRING), Field(name="n", type=BIGINT)))


def changes(*rows: tuple[RowKind, str | None, int]) -> pa.Table:
    kinds, keys, counts = zip(*rows, strict=True)
    columns = {"c0": pa.array(keys, pa.string()), "c1": pa.array(counts, pa.int64())}
    return pa.table({**columns, KIND: pa.array(map(int, kinds), pa.int8())})


def test_an_updating_query_has_its_rows_at_the_end() -> None:
    first = changes((RowKind.INSERT, "a", 1), (RowKind.INSERT, None, 1), (RowKind.INSERT, "c", 9))
    second = changes(
        (RowKind.UPDATE_BEFORE, "a", 1), (RowKind.UPDATE_AFTER, "a", 2), (RowKind.DELETE, "c", 9)
    )  # fmt: skip
    assert concat_rows([first, second], SCHEMA).to_pylist() == [{"k": "a", "n": 2}, {"k": None, "n": 1}]


def test_a_query_without_rows_has_its_columns() -> None:
    assert concat_rows([], SCHEMA).column_names == ["k", "n"]


def test_a_result_is_printed_as_by_the_sql_client() -> None:
    result = TableResult(pa.table({"k": ["a", None], "n": [1, 22]}), schema=SCHEMA)
    out = io.StringIO()
    result.print(out)
    assert (
        out.getvalue()
        == """\
+--------+----+
|      k |  n |
+--------+----+
|      a |  1 |
| <NULL> | 22 |
+--------+----+
2 rows in set
"""
    )


def test_a_message_is_printed() -> None:
    out = io.StringIO()
    string_result((), (), "OK").print(out)
    assert out.getvalue() == "OK\n"


def test_a_plan_is_shown_without_a_frame() -> None:
    plan = string_result(("result",), [("Collect(columns=[a, b, c, d, e, f])\n└─ Filter(a < 1)",)])
    out = io.StringIO()
    plan.print(out)
    assert out.getvalue() == "Collect(columns=[a, b, c, d, e, f])\n└─ Filter(a < 1)\n"
    assert plan._repr_html_() == "<pre>Collect(columns=[a, b, c, d, e, f])\n└─ Filter(a &lt; 1)</pre>"


def test_html_escapes_values_and_counts_rows() -> None:
    result = TableResult(pa.table({"k": ["<b>"] * 30, "n": [None] * 30}), schema=SCHEMA)
    html = result._repr_html_()
    assert html.count("<td") == 2 * 20
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "<i>NULL</i>" in html
    assert "<p>20 of 30 rows</p>" in html
    assert 'style="text-align: right" title="BIGINT">n<' in html


def test_polars_gets_the_rows() -> None:
    frame = TableResult(pa.table({"k": ["a"], "n": [1]}), schema=SCHEMA).to_polars()
    assert frame.to_dicts() == [{"k": "a", "n": 1}]
