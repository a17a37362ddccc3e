"""Records of Debezium and Canal, and the changes that Flink 2.3 reads from them (asked 2026-11).

The Spark tests and the Python tests share this table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from unit.connectors.tables import table

from everfold.types import INT, STRING, DecimalType

ROWS = table("t", id=INT, name=STRING, price=DecimalType(precision=38, scale=5))
GOOD = '{"before":null,"after":{"id":9,"name":"ok"},"op":"c"}'
GOOD_OF_CANAL = '{"data":[{"id":"9","name":"ok"}],"type":"INSERT"}'
_KEPT = ("+I", 9, "ok", None)

Change = tuple[str, int | None, str | None, str | None]
"""Kind, id, name, and price as a string."""


@dataclass(frozen=True)
class Sample:
    """A sequence of records, and the changes that they produce.

    `wrong` is part of the error that stops the job at the last record. With errors ignored, the
    result is `ignored`.
    """

    name: str
    format: str
    records: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    wrong: str | None = None
    ignored: tuple[Change, ...] = (_KEPT,)

    @property
    def expected(self) -> list[tuple[object, ...]]:
        """Return the changes as values."""
        return [to_values(each) for each in self.changes]

    @property
    def expected_when_ignored(self) -> list[tuple[object, ...]]:
        """Return the changes with errors ignored, as values."""
        return [to_values(each) for each in self.ignored]


def to_values(change: Change) -> tuple[object, ...]:
    kind, id_, name, price = change
    exact = None if price is None else Decimal(price).quantize(Decimal("1.00000"))
    return (id_, name, exact, ("+I", "-U", "+U", "-D").index(kind))


def _bad(name: str, record: str, words: str, ignored: tuple[Change, ...] = (_KEPT,)) -> Sample:
    return Sample(name, "debezium-json", (GOOD, record), wrong=words, ignored=ignored)


def _bad_of_canal(name: str, record: str, words: str, ignored: tuple[Change, ...] = (_KEPT,)) -> Sample:
    return Sample(name, "canal-json", (GOOD_OF_CANAL, record), wrong=words, ignored=ignored)


_CANAL = (
    '{"data":[{"id":"101","name":"scooter","price":"3.14"},{"id":"102","name":"car","price":"8.1"}],"database":"inventory","isDdl":false,"old":null,"pkNames":["id"],"sqlType":{"id":4},"table":"products","ts":1600000000000,"type":"INSERT"}',
    '{"data":[{"id":"101","name":"scooter","price":"5"}],"old":[{"price":"3.14"}],"database":"inventory","table":"products","type":"UPDATE"}',
    '{"data":[{"id":"103","name":"n","price":"1"}],"old":[{"price":null}],"database":"other","table":"products","type":"UPDATE"}',
    '{"data":[{"id":"102","name":"bus","price":null}],"old":null,"database":"inventory","table":"products2","type":"DELETE"}',
    '{"data":null,"database":"inventory","table":"products","type":"CREATE","sql":"create table x"}',
)
_INSERTED: tuple[Change, ...] = (("+I", 101, "scooter", "3.14"), ("+I", 102, "car", "8.1"))
_UPDATED: tuple[Change, ...] = (("-U", 101, "scooter", "3.14"), ("+U", 101, "scooter", "5"))
_OTHER: tuple[Change, ...] = (("-U", 103, "n", None), ("+U", 103, "n", "1"))
_DELETED: tuple[Change, ...] = (("-D", 102, "bus", None),)

SAMPLES = (
    Sample(
        "all that Debezium writes",
        "debezium-json",
        (
            '{"before": null, "after": {"id": 1, "name": "a", "price": 1.5}, "op": "c", "ts_ms": 1600000000000, "source": {"db": "d"}}',
            '{"before": {"id": 1, "name": "a", "price": 1.5}, "after": {"id": 1, "name": "b", "price": 2.5}, "op": "u"}',
            '{"before": null, "after": {"id": 2, "name": "x", "price": 12345678901234567890.12345}, "op": "r"}',
            '{"before": {"id": 2, "name": "x", "price": 1}, "after": null, "op": "d"}',
            "",
            '{"after": {"id": 3, "name": "only after"}, "op": "c"}',
            '{"before": {"id": 3}, "op": "d"}',
            '{"before": {"id": 5, "name": "q", "price": "12345678901234567890.12345"}, "after": {"id": 6, "name": "q", "price": 12345678901234567890.54321}, "op": "u"}',
        ),
        (
            ("+I", 1, "a", "1.5"), ("-U", 1, "a", "1.5"), ("+U", 1, "b", "2.5"), ("+I", 2, "x", "12345678901234567890.12345"),
            ("-D", 2, "x", "1"), ("+I", 3, "only after", None), ("-D", 3, None, None), ("-U", 5, "q", "12345678901234567890.12345"),
            ("+U", 6, "q", "12345678901234567890.54321"),
        ),
    ),
    Sample(
        "with its schema",
        "debezium-json",
        (
            '{"schema": {"type": "struct"}, "payload": {"before": null, "after": {"id": 1, "name": "a", "price": 1.5}, "op": "c"}}',
            '{"payload": {"before": {"id": 1, "name": "a", "price": 12345678901234567890.54321}, "after": null, "op": "d"}}',
        ),
        (("+I", 1, "a", "1.5"), ("-D", 1, "a", "12345678901234567890.54321")),
        {"schema-include": "true"},
    ),
    Sample(
        # As doubles, the values would be 1.5, 5E-6 (rounded up) and 4.000000001E7. Flink keeps the
        # digits of a DECIMAL and the original string of a STRING.
        "numbers as they are written", "debezium-json",
        ('{"after": {"id": 1, "name": 1.50, "price": 0.000004999999999999999999}, "op": "c"}', '{"after": {"id": 2, "name": 1e2, "price": 4000000000.1000049999999999e-2}, "op": "c"}'),
        (("+I", 1, "1.50", "0.00000"), ("+I", 2, "1e2", "40000000.00100")),
    ),
    Sample("a wrong value that is in no row", "debezium-json", ('{"before":{"id":"x"},"after":{"id":1},"op":"c"}',), (("+I", 1, None, None),)),
    Sample("no schema where one is said to be", "debezium-json", (GOOD,), options={"schema-include": "true"}, wrong="no `payload`", ignored=()),
    Sample("a schema that nobody spoke of", "debezium-json", ('{"payload": ' + GOOD + "}",), wrong="schema-include", ignored=()),
    _bad("an update without before", '{"before": null, "after": {"id": 1}, "op": "u"}', "REPLICA IDENTITY must be FULL"),
    _bad("a delete without before", '{"before": null, "after": null, "op": "d"}', "`before` of a delete is null"),
    _bad("an insert without after", '{"before": null, "after": null, "op": "c"}', "`after` is null"),
    _bad("an update without after", '{"before": {"id": 1}, "after": null, "op": "u"}', "`after` is null"),
    _bad("an unknown op", '{"before": null, "after": {"id": 1}, "op": "t"}', "`op` is `t`"),
    _bad("an op that is a number", '{"before": null, "after": {"id": 1}, "op": 1}', "`op` is `1`"),
    _bad("no op", '{"before": null, "after": {"id": 1}}', "no `op`"),
    _bad("a wrong value", '{"after": {"id": "x", "name": "a"}, "op": "c"}', "field `after.id` is not an INT: `x`", (_KEPT, ("+I", None, "a", None))),
    _bad("a text for a row", '{"before": "zz", "after": {"id": 1, "name": "a"}, "op": "c"}', "field `before`", (_KEPT, ("+I", 1, "a", None))),
    _bad("no JSON", "{oops", "not JSON"),
    _bad("null", "null", "it is null"),
    Sample(
        "all that Canal writes", "canal-json",
        (*_CANAL, "", '{"data":[],"type":"INSERT"}', '{"data":[{"id":"1","name":"a","price":1.5}],"old":[{"price":12345678901234567890.54321}],"type":"UPDATE"}'),
        (*_INSERTED, *_UPDATED, *_OTHER, *_DELETED, ("-U", 1, "a", "12345678901234567890.54321"), ("+U", 1, "a", "1.5")),
    ),
    Sample("a database of Canal's", "canal-json", _CANAL, (*_INSERTED, *_UPDATED, *_DELETED), {"database.include": "inven.*"}),
    Sample("a table of Canal's", "canal-json", _CANAL, (*_INSERTED, *_UPDATED, *_OTHER), {"table.include": "products"}),
    Sample(
        "a wrong value of another table", "canal-json", ('{"data":[{"id":"x"}],"table":"orders","type":"INSERT"}', *_CANAL),
        (*_INSERTED, *_UPDATED, *_OTHER), {"table.include": "products"},
    ),
    Sample("no table by that pattern", "canal-json", _CANAL, (), {"table.include": "product"}),
    Sample(
        # Flink looks for a column in all of `old`: it has NULL for the price of 101 and the name of
        # 103.
        "rows that changed in different columns", "canal-json",
        ('{"data":[{"id":101,"name":null,"price":5},{"id":102,"name":"bus","price":null},{"id":103,"name":"x","price":1}],"old":[{"name":"scooter"},{"price":8.1,"name":"car"},{"price":null}],"type":"UPDATE"}',),
        (("-U", 101, "scooter", "5"), ("+U", 101, None, "5"), ("-U", 102, "car", "8.1"), ("+U", 102, "bus", None), ("-U", 103, "x", None), ("+U", 103, "x", "1")),
    ),
    _bad_of_canal("an unknown type", '{"data":[{"id":1}],"type":"TRUNCATE"}', "`type` is `TRUNCATE`"),
    _bad_of_canal("a change of the table", '{"data":null,"type":"ALTER"}', "`type` is `ALTER`"),
    _bad_of_canal("no type", '{"data":[{"id":1}]}', "no `type`"),
    _bad_of_canal("no data", '{"type":"INSERT"}', "`data` is not a list"),
    _bad_of_canal("a null among data", '{"data":[null],"type":"INSERT"}', "`data` is not a list"),
    _bad_of_canal("no old", '{"data":[{"id":1}],"type":"UPDATE"}', "`old`"),
    _bad_of_canal("too little old", '{"data":[{"id":1},{"id":2}],"old":[{"name":"z"}],"type":"UPDATE"}', "`old`"),
    _bad_of_canal("too much old", '{"data":[{"id":1}],"old":[{"name":"z"},{"name":"y"}],"type":"UPDATE"}', "`old`"),
    _bad_of_canal("a wrong value of Canal's", '{"data":[{"id":"x"}],"type":"INSERT"}', "field `data[].id` is not an INT: `x`", (_KEPT, ("+I", None, None, None))),
)  # fmt: skip
