"""Damaged records of every format and column type:

Spark and the local decoder read the same rows and stop at the same records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from unit.connectors import mutations
from unit.connectors.tables import table

from everfold.connectors.contract import Role, SourceContext
from everfold.connectors.formats.format import (
    BAD,
    Format,
    RecordColumn,
    RecordLocation,
    find_bad_record,
    raise_bad_record,
)
from everfold.connectors.formats.json import SESSION, _elements
from everfold.connectors.formats.registry import format_of
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.registry import connector_of
from everfold.connectors.validate import check_table
from everfold.engine_literals import spark_identifier
from everfold.plan.changelog import KIND
from everfold.spark.batch_metrics import count_skipped_rows
from everfold.spark.session import create_session
from everfold.storage import local
from everfold.types import STRING, ArrayType, DataType, FloatingType, MapType, RowType, StringType, physical_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = 1
COUNT = 2_000
REFUSED = 3
"""For how many refused records the test checks that Spark stops at them; each check takes a
query.
"""
SETTINGS = {"csv": {"csv.null-literal": "n/a", "csv.allow-comments": "true"}}
Rows = list[list[Any]]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    made = create_session(spark, 2)
    for key, value in SESSION.items():
        made.conf.set(key, value)
    return made


class Reading:
    """Records of a format, read locally and by Spark as they come from a topic."""

    def __init__(self, session: SparkSession, form: str, fields: Sequence[tuple[str, DataType]], **options: str):
        self.session = session
        self.columns = [RecordColumn(name, at, of) for at, (name, of) in enumerate(fields)]
        options_of_table = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "b:9092", "scan.startup.mode": "earliest-offset"}  # fmt: skip
        of = table("t", **dict(fields)).with_options({**options_of_table, "format": form, **options})
        self.format: Format = format_of(form, of, connector_of(of).check(of, Role.SOURCE), f"{form}.")
        self._decode = self.format.decoder(self.columns)

    def spark(self, records: Sequence[bytes]) -> tuple[dict[int, Rows], set[int]]:
        """Return the rows of each record, and the records that are not readable in full."""
        form, location = self.format, RecordLocation("t", (("at", "at"),))
        partly = [sql for each in self.columns if (sql := form.is_bad(each, spark_identifier(each.name)))]
        values = [
            f"{form.value(each, spark_identifier(each.name), location)} AS {physical_name(each.position)}"
            for each in self.columns
        ]
        frame = self._parse(records).selectExpr(
            "at",
            f"{form.is_unreadable(self.columns)} AS lost",
            " OR ".join([f"{BAD} IS NOT NULL", *partly]) + " AS bad",
            *values,
            *([KIND] if form.is_changelog else []),
        )
        rows: dict[int, Rows] = {}
        bad = set()
        for found in frame.toArrow().to_pylist():
            at, lost = found.pop("at"), found.pop("lost")
            if found.pop("bad") or lost:
                bad.add(at)
            if not lost:
                rows.setdefault(at, []).append(list(found.values()))
        return rows, bad

    def strictly(self, records: Sequence[bytes]) -> dict[int, Rows]:
        """Return the rows of each record. Raise at a record that is not readable in full."""
        form, location = self.format, RecordLocation("t", (("at", "at"),))
        values = [
            f"{form.value(each, spark_identifier(each.name), location)} AS {physical_name(each.position)}"
            for each in self.columns
        ]
        frame = self._parse(records).where(
            f"CASE WHEN {BAD} IS NULL THEN true ELSE {raise_bad_record(location, None, BAD)} END"
        )
        rows: dict[int, Rows] = {}
        for found in frame.selectExpr("at", *values, *([KIND] if form.is_changelog else [])).toArrow().to_pylist():
            rows.setdefault(found.pop("at"), []).append(list(found.values()))
        return rows

    def _parse(self, records: Sequence[bytes]) -> DataFrame:
        import pyarrow as pa

        given = pa.table({"at": pa.array(range(len(records)), pa.int32()), "raw": pa.array(records, pa.binary())})
        return self.format.from_text(self.session.createDataFrame(given), self.columns, "raw")

    def locally(self, record: bytes) -> Rows:
        """Return the rows of a record; none if it cannot be read."""
        import pyarrow as pa

        rows: Rows = []
        try:
            decoded = list(self._decode(record))
        except BadValue:
            return rows
        for row in decoded:
            values = [pa.array([row[at]], each.type.arrow)[0].as_py() for at, each in enumerate(self.columns)]
            rows.append([*values, *row[len(self.columns) :]])
        return rows

    def refuses(self, record: bytes) -> bool:
        """Return whether the local decoder stops at a record."""
        try:
            list(self._decode(record))
        except BadValue:
            return True
        return False


def compare(session: SparkSession, form: str, fields: Sequence[tuple[str, DataType]], records: list[bytes], **options: str) -> None:  # fmt: skip
    ignore = {} if form in ("raw", "avro") else {f"{form}.ignore-parse-errors": "true"}
    strict, lenient = (Reading(session, form, fields, **options, **more) for more in ({}, ignore))
    rows, bad = lenient.spark(records)
    types = [of for _, of in fields]
    local = [lenient.locally(record) for record in records]
    refused = {at for at, record in enumerate(records) if strict.refuses(record)}
    for at, record in enumerate(records):
        if not same_rows(local[at], rows.get(at, []), types):
            pytest.fail(f"{record!r} is {local[at]}, and to Spark {rows.get(at, [])}")
        if (at in bad) != (at in refused):
            pytest.fail(f"{record!r} is readable in full to {'Spark' if at in refused else 'the local decoder'} alone")
    sound = [at for at in range(len(records)) if at not in bad]
    rows = strict.strictly([records[at] for at in sound])
    for number, at in enumerate(sound):
        if not same_rows(local[at], rows.get(number, []), types):
            pytest.fail(f"{records[at]!r} is {local[at]}, and to Spark, which may stop, {rows.get(number, [])}")
    for at in Random(SEED).sample(sorted(refused), min(REFUSED, len(refused))):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            strict.strictly([records[at]])
        assert find_bad_record(str(caught.value), "t"), f"{records[at]!r}: {caught.value}"


def same_rows(local: Rows, spark: Rows, types: Sequence[DataType]) -> bool:
    """Return whether rows are equal.

    A STRING made of a JSON object or array from a topic is written without spaces.
    """
    width = len(types)
    return len(local) == len(spark) and all(
        one[width:] == other[width:] and all(map(same, one, other, types)) for one, other in zip(local, spark, strict=True)
    )  # fmt: skip


def same(one: Any, other: Any, of: DataType) -> bool:
    if one is None or other is None:
        return one is other
    match of:
        case FloatingType():
            return bool(one == other or (one != one and other != other))
        case StringType():
            return bool(one == other) or (_as_json(one) is not None and _as_json(one) == _as_json(other))
        case ArrayType(element=element):
            return len(one) == len(other) and all(same(*pair, element) for pair in zip(one, other, strict=True))
        case MapType(value=value):
            first, second = dict(one), dict(other)
            unique = len(first) == len(one) and len(second) == len(other) and first.keys() == second.keys()
            return unique and all(same(each, second[key], value) for key, each in first.items())
        case RowType(fields=fields):
            return all(same(one[each.name], other[each.name], each.type) for each in fields)
        case _:
            return bool(one == other)


def _as_json(text: str) -> object:
    """Return an object or array of JSON with its numbers as written; None for any other string."""
    try:
        return json.loads(text, parse_int=str, parse_float=str, strict=False) if text[:1] in ("{", "[") else None
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("form", "count"),
    [("csv", 100), *(pytest.param(each, COUNT, marks=pytest.mark.slow) for each in mutations.FORMATS)],
)
def test_records_of_topics(session: SparkSession, form: str, count: int) -> None:
    records = mutations.records(form, count, SEED)
    compare(session, form, mutations.fields_of(form), records, **SETTINGS.get(form, {}))


@pytest.mark.slow
@pytest.mark.parametrize("endianness", ["big-endian", "little-endian"])
def test_raw_records(session: SparkSession, endianness: str) -> None:
    for of in mutations.RAW:
        records = mutations.raw_records(of, COUNT // len(mutations.RAW), SEED)
        compare(session, "raw", [("x", of)], records, **{"raw.endianness": endianness})


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "csv"])
def test_records_of_files(session: SparkSession, form: str, tmp_path: Path) -> None:
    """Spark's file readers decode them, and count what is not readable in full."""
    records = mutations.records(form, COUNT // 4, SEED)
    fields = mutations.fields_of(form)
    strict = Reading(session, form, fields, **SETTINGS.get(form, {}))
    refused = {at for at, record in enumerate(records) if strict.refuses(record.rstrip(b"\r"))}
    for folder, ignore in (("all", "true"), ("sound", "false")):
        (tmp_path / folder).mkdir()
        for at, record in enumerate(records):
            if ignore == "true" or at not in refused:
                (tmp_path / folder / f"{at}").write_bytes(record)
        options_of_table = {
            "connector": "filesystem",
            "path": folder,
            "format": form,
            f"{form}.ignore-parse-errors": ignore,
        }
        of = table("t", (), {"file": (STRING, "file.name")}, **dict(fields)).with_options(
            {**options_of_table, **SETTINGS.get(form, {})}
        )
        source = check_table(of, Role.SOURCE).source()
        context = SourceContext(
            spark=session, name="t_1", base_folder=tmp_path, table=of, job_folder=local(tmp_path / "job")
        )
        with count_skipped_rows(session) as counts:
            found = group_by_file(source.batch(context).drop("__split", "__place", "__file").toArrow().to_pylist())
        direct = group_by_file(row for piece in source.read_local(tmp_path) for row in piece.to_pylist())
        types = [type_ for _, type_ in fields]
        for name in sorted({*direct, *found}):
            one, other = direct.get(name, []), found.get(name, [])
            if not same_rows(one, other, types):
                pytest.fail(f"{records[int(name)]!r} is {one}, and to Spark {other}")
        expected = (
            sum(count_refused_rows(strict, record.rstrip(b"\r")) for record in records)
            if form == "json"
            else len(refused)
        )
        assert counts == ({"not readable in full": expected} if ignore == "true" else {})


def count_refused_rows(strict: Reading, record: bytes) -> int:
    """Return how many rows of a record are counted; the rows of an array of objects count one
    by one.
    """
    text = record.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")
    if text.startswith(b"["):
        with suppress(ValueError, IndexError):  # it is not an array
            objects = [(value, written) for value, written in _elements(text.decode())]
            if all(isinstance(value, dict) for value, _ in objects):
                return sum(strict.refuses(written.encode()) for _, written in objects)
    return int(strict.refuses(record))


def group_by_file(rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows:
        *values, name = row.values()
        found.setdefault(name, []).append(values)
    return found


@pytest.mark.slow
def test_values_of_parquet(session: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = Random(SEED)
    fields = mutations.fields_of("json")
    columns = [
        pa.array([None if random.random() < 0.2 else mutations.value_for(of, random) for _ in range(COUNT)], of.arrow)
        for _, of in fields
    ]
    pq.write_table(pa.table(columns, names=[name for name, _ in fields]), tmp_path / "f.parquet")
    of = table("t", **dict(fields)).with_options({"connector": "filesystem", "path": "f.parquet", "format": "parquet"})
    source = check_table(of, Role.SOURCE).source()
    context = SourceContext(
        spark=session, name="t_1", base_folder=tmp_path, table=of, job_folder=local(tmp_path / "job")
    )
    found = [
        list(row.values()) for row in source.batch(context).drop("__split", "__place", "__file").toArrow().to_pylist()
    ]
    direct = [list(row.values()) for piece in source.read_local(tmp_path) for row in piece.to_pylist()]
    assert same_rows(direct, found, [type_ for _, type_ in fields])
