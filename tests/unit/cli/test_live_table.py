"""The current rows of a changing result, printed as a table."""

from __future__ import annotations

import io

import pyarrow as pa

from everfold.cli.live_table import LiveTable
from everfold.plan.changelog import KIND, RowKind
from everfold.types import BIGINT, STRING, Field, Schema

SCHEMA = Schema((Field(name="k", type=STRING), Field(name="n", type=BIGINT)))


def test_the_whole_table_is_printed_at_the_end() -> None:
    out = io.StringIO()
    table = LiveTable(out, SCHEMA)
    changes = [
        (RowKind.INSERT, "a", 1),
        (RowKind.INSERT, "b", 1),
        (RowKind.UPDATE_BEFORE, "a", 1),
        (RowKind.UPDATE_AFTER, "a", 2),
    ]
    kinds, keys, counts = zip(*changes, strict=True)
    columns = {"c0": pa.array(keys), "c1": pa.array(counts, pa.int64()), KIND: pa.array(map(int, kinds), pa.int8())}
    table.write(pa.table(columns))
    table.finish()
    assert out.getvalue().endswith("""\
+---+---+
| k | n |
+---+---+
| a | 2 |
| b | 1 |
+---+---+
2 rows in set
""")
