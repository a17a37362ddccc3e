"""Files through Spark: the same rows as without Spark, streams and batches, bad records by
line, and a sink that writes once.
"""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unit.connectors.samples import JSON_TEXTS, NESTED, TYPES
from unit.connectors.tables import table
from unit.connectors.test_bad_files import ARRAYS
from unit.connectors.test_partition_folders import HOSTILE

from everfold.connectors.contract import BatchId, Role, SinkContext, Source, SourceContext
from everfold.connectors.filesystem.sink import FileSink
from everfold.connectors.skipped_rows import add_skipped_rows, find_skipped_rows
from everfold.connectors.validate import check_table
from everfold.error_transport import extract_error
from everfold.errors import ConnectorError, StateError
from everfold.plan.nodes import Table
from everfold.spark.batch_metrics import count_skipped_rows
from everfold.spark.session import create_session
from everfold.storage import local
from everfold.storage.local_store import LocalStore
from everfold.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP3,
    TIMESTAMP_LTZ3,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    RowField,
    RowType,
    TimestampType,
    TimeType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BIDS = table(bidtime=TIMESTAMP3, price=DecimalType(precision=10, scale=2), item=STRING)
LINE = '{"bidtime":"2020-04-15 08:05:00","price":4.00,"item":"C"}\n'


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return create_session(spark, 2)


class SourceReader:
    """A source and its context."""

    def __init__(self, session: SparkSession, of: Table, base: Path) -> None:
        self.source: Source = check_table(of, Role.SOURCE).source()
        self.context = SourceContext(
            spark=session, name="bids_1", base_folder=base, table=of, job_folder=local(base / "job")
        )

    def batch(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (
            self.source.batch(self.context).drop("__split", "__place", "__file").toArrow().to_pylist()
        )
        return rows

    def local(self) -> list[dict[str, Any]]:
        return [row for piece in self.source.read_local(self.context.base_folder) for row in piece.to_pylist()]

    def stream(self, checkpoint: Path) -> tuple[list[tuple[int, list[Any]]], Any]:
        """Return the rows of each batch and the last progress."""
        batches: list[tuple[int, list[Any]]] = []

        def take(frame: DataFrame, batch: int) -> None:
            batches.append((batch, [tuple(row) for row in frame.drop("__place", "__file").collect()]))

        query = (
            self.source.stream(self.context).writeStream.foreachBatch(take)
            .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return batches, query.lastProgress

    def fails(self, action: Callable[[], object]) -> ConnectorError:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            action()
        if isinstance(caught.value, ConnectorError):
            return caught.value
        text = str(caught.value)
        found = extract_error(text) or self.source.parse_failure(text)
        assert isinstance(found, ConnectorError), text
        return found


@pytest.mark.parametrize("standard", ["SQL", "ISO-8601"])
def test_every_json_value_reads_the_same_with_and_without_spark(
    session: SparkSession, tmp_path: Path, standard: str
) -> None:
    types = [*TYPES, *NESTED]
    lines = [
        f'{{"n":{at},' + ",".join(f'"x{which}":{text}' for which in range(len(types))) + "}"
        for at, text in enumerate(JSON_TEXTS)
    ]
    (tmp_path / "v.json").write_text("\n".join(lines))
    columns: dict[str, DataType] = {"n": INT, **{f"x{which}": of for which, of in enumerate(types)}}
    of = table(**columns).with_options({
        "connector": "filesystem", "path": "v.json", "format": "json", "json.ignore-parse-errors": "true",
        "json.timestamp-format.standard": standard,
    })  # fmt: skip
    reader = SourceReader(session, of, tmp_path)
    with count_skipped_rows(session) as counts:
        with_spark = reader.batch()
    without = reader.local()
    assert len(with_spark) == len(without) == len(JSON_TEXTS)
    for found, expected in zip(with_spark, without, strict=True):
        text = JSON_TEXTS[expected["c0"]]
        for which, type_ in enumerate(types):
            one, other = found[f"c{which + 1}"], expected[f"c{which + 1}"]
            assert one == other or (one != one and other != other), f"{type_}: {text}"
    assert counts == {"not readable in full": len(JSON_TEXTS) - 1}


def test_csv_reads_the_same_with_and_without_spark(session: SparkSession, tmp_path: Path) -> None:
    lines = [
        "1,x,1;2,1;z", '"2","x, y",,', '3,"a""b",7,1;"', "4,x,1;2,1;z,", '5,a"b,,', '6, "x",,', '7,"",,', "\ufeff8,é😀,1,2;", "", "#9,x,,",
        "n/a,n/a,n/a,n/a", '"10","\\n",,',
    ]  # fmt: skip
    (tmp_path / "v.csv").write_text("\r\n".join(lines) + "\r\n")
    row = RowType(fields=(RowField(name="x", type=INT), RowField(name="y", type=STRING)))
    options = {"csv.null-literal": "n/a", "csv.allow-comments": "true", "csv.ignore-parse-errors": "true"}
    of = table(n=INT, s=STRING, a=ArrayType(element=INT), r=row).with_options(
        {"connector": "filesystem", "path": "v.csv", "format": "csv", **options}
    )
    reader = SourceReader(session, of, tmp_path)
    assert reader.batch() == reader.local()
    assert len(reader.local()) == len(lines) - 2
    of = table(n=INT, s=STRING).with_options(
        {
            "connector": "filesystem",
            "path": "e.csv",
            "format": "csv",
            "csv.escape-character": "\\",
            "csv.field-delimiter": "|",
        }
    )
    (tmp_path / "e.csv").write_text('1|a\\|b\n2|a\\nb\\\\n\n3|"a\\"b|"\n4|"\\\\"\n')
    reader = SourceReader(session, of, tmp_path)
    assert (
        [each["c1"] for each in reader.batch()]
        == [each["c1"] for each in reader.local()]
        == ["a|b", "a\nb\\n", 'a"b|', "\\"]
    )


def test_a_stream_takes_each_file_once_and_names_bad_lines(session: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "bids"
    folder.mkdir()
    (folder / "b 1+%2e.json").write_text(LINE)
    old = folder / "a.json"
    old.write_text(LINE)
    os.utime(old, (1_000_000_000, 1_000_000_000))  # years older than the other file, but not to be forgotten
    (folder / ".hidden.json").write_text("{")
    of = table(
        "bids", (), {"f": (STRING, "file.path"), "t": (TIMESTAMP_LTZ3, "file.modification-time")}, item=STRING
    ).with_options({"connector": "filesystem", "path": "bids", "format": "json", "scan.max-files-per-batch": "1"})
    reader = SourceReader(session, of, tmp_path)
    batches, _ = reader.stream(tmp_path / "checkpoint")
    assert [len(rows) for _, rows in batches] == [1, 1]
    assert [rows[0][1] for _, rows in batches] == [str(old), str(folder / "b 1+%2e.json")]
    assert {rows[0][-1] for _, rows in batches} == {"bids"}
    (folder / "c.json").write_text(LINE + '{"item":"x","price"\n')
    error = reader.fails(lambda: reader.stream(tmp_path / "checkpoint"))
    assert (
        str(error).splitlines()[0]
        == "error[bad-record]: `bids/c.json` line 2: it is not JSON: expecting ':' delimiter at character 20"
    )
    (folder / "c.json").write_text(LINE + LINE)
    batches, _ = reader.stream(tmp_path / "checkpoint")
    assert [len(rows) for _, rows in batches] == [2]


def test_bad_files_are_reported(session: SparkSession, tmp_path: Path) -> None:
    def open_source(text: str | bytes, form: str = "json", **options: str) -> SourceReader:
        (tmp_path / "f").write_bytes(text if isinstance(text, bytes) else text.encode())
        return SourceReader(
            session, BIDS.with_options({"connector": "filesystem", "path": "f", "format": form, **options}), tmp_path
        )

    for text, words in (
        (LINE + '{"price":"abc"}\n', "`f` line 2: field `price` is not a DECIMAL(10, 2): `abc`"),
        (LINE + '{"price":123456789.5}\n', "`f` line 2: field `price` is not a DECIMAL(10, 2): `123456789.5`"),
        (LINE + "5\n", "`f` line 2: it is the number 5, not an object"),
        (LINE + '{"item":"\\ud800x"', "`f` line 2: it is not JSON"),
        ((LINE + '{"item":"').encode() + b'\xff"}\n', "`f` line 2: it is not UTF-8"),
        (
            LINE + '{"bidtime":"2020-02-30 00:00:00"}\n',
            "`f` line 2: field `bidtime` is not a TIMESTAMP(3): `2020-02-30 00:00:00`",
        ),
    ):
        assert words in str((one := open_source(text)).fails(one.batch)), text
    # Also when no column is selected.
    assert "line 2" in str((one := open_source(LINE + "{")).fails(lambda: one.source.batch(one.context).count()))
    missing = {"json.fail-on-missing-field": "true"}
    assert "`f` line 2: field `price` is missing" in str(
        (one := open_source(LINE + '{"bidtime":null,"item":"x"}\n', **missing)).fails(one.batch)
    )
    assert open_source(LINE, **missing).batch() == open_source(LINE, **missing).local()
    assert "`f` line 2: it has 2 fields, the table has 3" in str(
        (one := open_source("2020-04-15 08:05:00,1,x\n1,2\n", "csv")).fails(one.batch)
    )
    gone = open_source(LINE)
    frame = gone.source.batch(gone.context)
    (tmp_path / "f").unlink()
    assert gone.fails(frame.collect).code == "file-gone"
    assert gone.fails(gone.batch).code == "no-such-path"
    assert gone.fails(lambda: gone.stream(tmp_path / "c")).code == "no-such-path"


def test_file_names_that_spark_cannot_open_are_refused_before_reading(session: SparkSession, tmp_path: Path) -> None:
    of = table(item=STRING).with_options({"connector": "filesystem", "path": "in", "format": "json"})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(LINE)
    for name in (b"12:00.json", b"\xff.json"):
        path = os.path.join(os.fsencode(tmp_path / "in"), name)
        with open(path, "w") as file:
            file.write(LINE)
        reader = SourceReader(session, of, tmp_path)
        for read in (reader.batch, partial(reader.stream, tmp_path / "checkpoint")):
            assert reader.fails(read).code == "bad-file-name"
        os.unlink(path)


@pytest.mark.slow
def test_a_colon_in_the_name_of_a_new_file_is_refused(session: SparkSession, tmp_path: Path) -> None:
    of = table(item=STRING).with_options({"connector": "filesystem", "path": "in", "format": "parquet"})
    (tmp_path / "in").mkdir()
    reader = SourceReader(session, of, tmp_path)
    frame = reader.source.stream(reader.context)
    pq.write_table(pa.table({"item": ["C"]}), tmp_path / "in" / "12:00.parquet")
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    error = reader.fails(lambda: query.trigger(availableNow=True).start().awaitTermination())
    assert str(error).startswith("error[bad-file-name]: table `bids`: `in/12:00.parquet` has a `:` in its name")


@pytest.mark.slow
def test_a_string_of_100_megabytes_is_reported_with_its_line(session: SparkSession, tmp_path: Path) -> None:
    of = table(item=STRING).with_options({"connector": "filesystem", "path": "f", "format": "json"})
    (tmp_path / "f").write_bytes(LINE.encode() + b'{"item":"' + b"x" * 100_000_000 + b'"}\n')
    error = str((reader := SourceReader(session, of, tmp_path)).fails(reader.batch))
    assert error.startswith(
        "error[bad-record]: `f` line 2: it has a string of 100,000,000 characters: at most 20,000,000 are allowed\n"
    )
    assert len(error) < 1000


@pytest.mark.parametrize("form", ["json", "debezium-json"])
def test_a_record_that_is_not_utf_8_is_skipped_entirely(session: SparkSession, tmp_path: Path, form: str) -> None:
    row = RowType(fields=(RowField(name="a", type=INT),))
    wrong = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80")  # the last one is beyond U+10FFFF
    rows = [b'{"n":%d,"s":"%b","a":[1],"r":{"a":1}}' % row for row in (*((1, each) for each in wrong), (2, b"b"))]
    if form == "debezium-json":
        rows = [b'{"before":null,"after":' + each + b',"op":"c"}' for each in rows]
    (tmp_path / "f").write_bytes(b"\n".join(rows))
    of = table(n=INT, s=STRING, a=ArrayType(element=INT), r=row).with_options(
        {"connector": "filesystem", "path": "f", "format": form, f"{form}.ignore-parse-errors": "true"}
    )
    reader = SourceReader(session, of, tmp_path)
    with count_skipped_rows(session) as counts:
        found = reader.batch()
    assert found == reader.local()
    assert [each["c0"] for each in found] == [2]
    assert counts == {"not readable in full": len(wrong)}


def test_ignored_errors_are_counted_in_a_stream(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "f.json").write_text(LINE + "{\n" + '{"price":"x","item":"D"}\n')
    of = BIDS.with_options(
        {"connector": "filesystem", "path": "in", "format": "json", "json.ignore-parse-errors": "true"}
    )
    reader = SourceReader(session, of, tmp_path)
    [(_, rows)], progress = reader.stream(tmp_path / "checkpoint")
    assert [row[2] for row in rows] == ["C", "D"]
    counts: dict[str, int] = {}
    add_skipped_rows(progress.observedMetrics, counts)
    assert counts == {"not readable in full": 2}
    (example,) = find_skipped_rows(progress.observedMetrics)
    assert (example.table, example.record) == (of.name, "{")
    assert example.location.endswith("in/f.json line 2")


@pytest.mark.parametrize("options", [{}, {"json.fail-on-missing-field": "true"}], ids=["as it is", "no field missing"])
def test_arrays_of_rows_read_the_same_with_and_without_spark(
    session: SparkSession, tmp_path: Path, options: dict[str, str]
) -> None:
    of = table(n=INT, s=STRING, d=DecimalType(precision=38, scale=9)).with_options(
        {"connector": "filesystem", "path": "f", "format": "json", **options}
    )
    rows = ['{"n":1,"s":"a","d":null}', '{"n":2,"s":"[1]","d":12345678901234567890.123456789}', '{"n":3,"s":1.5,"d":1}']
    (tmp_path / "f").write_text(f"\ufeff[{','.join(rows)}]\n[]\n [ {rows[0]} ] \n{rows[0]}\n")
    reader = SourceReader(session, of, tmp_path)
    assert reader.batch() == reader.local()
    assert [row["c0"] for row in reader.local()] == [1, 2, 3, 1, 1]
    for wrong, words in (
        ("5", "the number 5, not an object"),
        ("[{}]", "an array, not an object"),
        ('{"n":"x","s":"","d":1}', "field `n` is not an INT"),
    ):
        (tmp_path / "f").write_text(f"{rows[0]}\n[{rows[1]},{wrong}]\n")
        error = reader.fails(reader.batch)
        assert "`f` line 2" in str(error)
        assert words in str(error)


def test_arrays_with_elements_that_are_not_rows_are_skipped_and_counted(session: SparkSession, tmp_path: Path) -> None:
    of = table(n=INT).with_options(
        {"connector": "filesystem", "path": "f", "format": "json", "json.ignore-parse-errors": "true"}
    )
    (tmp_path / "f").write_text("".join(f"{record}\n" for record, _ in ARRAYS))
    reader = SourceReader(session, of, tmp_path)
    expected = [number for _, numbers in ARRAYS for number in numbers]
    with count_skipped_rows(session) as counts:
        found = reader.batch()
    assert [row["c0"] for row in found] == [row["c0"] for row in reader.local()] == expected
    assert counts == {"not readable in full": 6}  # one of them in part


ROWS = """
    SELECT 1 c0, 'a' c1, TIMESTAMP_NTZ '2020-04-15 08:05:00.12' c2, TIMESTAMP '2020-04-15 08:05:00' c3, 29100500 c4,
           CAST(4 AS DECIMAL(10,2)) c5, array(1, NULL) c6, 'x/y z' c7, DATE '2020-01-01' c8, CAST(0 AS TINYINT) __kind
    UNION ALL SELECT NULL, 'b,"c"\\\\', NULL, NULL, NULL, NULL, NULL, NULL, NULL, CAST(0 AS TINYINT)
    UNION ALL SELECT 3, '', NULL, NULL, NULL, NULL, array(), '..', DATE '2020-01-02', CAST(0 AS TINYINT)
    UNION ALL SELECT 4, '', NULL, NULL, NULL, NULL, array(), concat('/a', char(0), char(10), '%2e'), DATE '2020-01-02', CAST(0 AS TINYINT)
"""
COLUMNS: dict[str, DataType] = {
    "n": INT, "s": STRING, "ts": TIMESTAMP3, "lz": TIMESTAMP_LTZ3, "ti": TimeType(precision=3), "d": DecimalType(precision=10, scale=2),
    "a": ArrayType(element=INT), "k": STRING, "day": DATE,
}  # fmt: skip


@pytest.fixture
def sinks(tmp_path: Path) -> Callable[[Table], FileSink]:
    def make(of: Table) -> FileSink:
        made = check_table(of, Role.SINK).sink(
            SinkContext(name="s1", base_folder=tmp_path, table=of, job_folder=local(tmp_path / "job"))
        )
        assert isinstance(made, FileSink)
        made.prepare()
        return made

    return make


def list_visible_files(folder: Path) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        for name in names:
            if not name.startswith("."):
                yield os.path.relpath(os.path.join(path, name), folder)


@pytest.mark.parametrize("form", ["json", "parquet", "csv"])
def test_written_rows_can_be_read(
    session: SparkSession, tmp_path: Path, sinks: Callable[[Table], FileSink], form: str
) -> None:
    of = table("t", ("k", "day"), None, **COLUMNS).with_options(
        {"connector": "filesystem", "path": "out", "format": form, f"{form}.null-literal": "NULL"}
        if form == "csv"
        else {"connector": "filesystem", "path": "out", "format": form}
    )
    # CSV cannot write a NULL within an array.
    frame = session.sql(ROWS.replace("array(1, NULL)", "array(1, 2)") if form == "csv" else ROWS).repartition(3)
    sink = sinks(of)
    assert sink.write(frame, BatchId("job", "s1", 0, 0)) == 4
    folders = {os.path.dirname(each) for each in list_visible_files(tmp_path / "out")}
    assert folders == {
        "k=x%2Fy z/day=2020-01-01",
        "k=__DEFAULT_PARTITION__/day=__DEFAULT_PARTITION__",
        "k=%2E%2E/day=2020-01-02",
        "k=%2Fa%00%0A%252e/day=2020-01-02",
    }
    reader = SourceReader(session, of, tmp_path)
    expected = sorted(frame.drop("__kind").toArrow().to_pylist(), key=str)
    assert sorted(reader.batch(), key=str) == expected
    assert sorted(reader.local(), key=str) == expected


@pytest.mark.slow
def test_hostile_partition_values(session: SparkSession, tmp_path: Path, sinks: Callable[[Table], FileSink]) -> None:
    """Keys and values of any characters: each has a separate folder below the table's folder,
    and Spark reads them as this process does.
    """
    for at, key in enumerate(("k", ".k", "../k", "a/b=%25", "ä\n")):
        of = table("t", (key,), None, **{"n": INT, key: STRING}).with_("filesystem", path=f"out{at}", format="json")
        values = [(number, value) for number, value in enumerate(HOSTILE)]
        frame = session.createDataFrame(values, "c0 INT, c1 STRING").selectExpr("*", "CAST(0 AS TINYINT) AS __kind")
        sinks(of).write(frame.repartition(2), BatchId("job", "s1", 0, at))
        assert len(os.listdir(tmp_path / f"out{at}")) == len(values)
        reader = SourceReader(session, of, tmp_path)
        expected = [{"c0": number, "c1": value} for number, value in values]
        assert sorted(reader.batch(), key=lambda row: row["c0"]) == expected
        assert sorted(reader.local(), key=lambda row: row["c0"]) == expected
    assert set(os.listdir(tmp_path)) - {"job"} == {f"out{at}" for at in range(5)}
    # Folders as other programs name them.
    of = table("t", ("k",), None, n=INT, k=STRING).with_("filesystem", path="other", format="json")
    for number, folder in enumerate(["k=100%", "k=%zz", "k=%C3%A4", "k=a+b", "k=x/k=y", "k=%2525"]):
        (tmp_path / "other" / folder).mkdir(parents=True)
        (tmp_path / "other" / folder / "f.json").write_text(f'{{"n":{number}}}\n')
    reader = SourceReader(session, of, tmp_path)
    read = {row["c0"]: row["c1"] for row in reader.batch()}
    assert read == {0: "100%", 1: "%zz", 2: "\xc3\xa4", 3: "a+b", 4: "y", 5: "%25"}
    assert {row["c0"]: row["c1"] for row in reader.local()} == read


def test_a_batch_interrupted_at_any_step_is_written_once(
    session: SparkSession, tmp_path: Path, sinks: Callable[[Table], FileSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after the record is created, the mark is written, and each file is copied and deleted."""
    of = table("t", item=BIGINT).with_("filesystem", path="out", format="json")
    frame = session.range(0, 6, 1, 3).selectExpr("id AS c0", "CAST(0 AS TINYINT) AS __kind")
    steps: list[tuple[Any, str]] = [(LocalStore, name) for name in ("create", "write", "copy", "delete")]
    steps.append((importlib.import_module("everfold.connectors.filesystem.sink"), "write_atomically"))
    for cut in itertools.count():
        batch = BatchId("job", "s1", 0, cut, f"input {cut}")
        with monkeypatch.context() as patch:
            reached = interrupt_at(patch, steps, cut)
            with suppress(KeyboardInterrupt):
                sinks(of).write(frame, batch)
        sink = sinks(of)
        sink.write(frame.repartition(5), batch)  # another task layout
        sink.write(frame, batch)
        rows = SourceReader(session, of, tmp_path).local()
        assert sorted(row["c0"] for row in rows) == sorted([*range(6)] * (cut + 1))
        if len(reached) <= cut:
            break
    assert cut > 2 * (1 + 1 + 3 + 3 + 1)
    assert [name for _, _, names in os.walk(tmp_path / "out") for name in names if "inprogress" in name] == []


def interrupt_at(patch: pytest.MonkeyPatch, steps: list[tuple[Any, str]], cut: int) -> list[str]:
    """Interrupt the call after `cut` others; each call counts twice, as it begins and as it ends.

    Return a list that receives the name of each call so far. No code catches the interrupt, as if the
    process died.
    """
    reached: list[str] = []

    def enter(name: str) -> None:
        reached.append(name)
        if len(reached) == cut + 1:
            raise KeyboardInterrupt

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            enter(real.__name__)
            answer = real(*arguments, **options)
            enter(real.__name__)
            return answer

        return step

    for owner, name in steps:
        patch.setattr(owner, name, wrap(getattr(owner, name)))
    return reached


def test_an_unwritable_target_is_reported(
    session: SparkSession, tmp_path: Path, sinks: Callable[[Table], FileSink]
) -> None:
    frame = session.range(3).selectExpr("id AS c0", "CAST(0 AS TINYINT) AS __kind")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConnectorError, match="it is not a folder"):
        sinks(table("t", n=BIGINT).with_("filesystem", path="file", format="json"))
    with pytest.raises(ConnectorError, match="job's own folder"):
        sinks(table("t", n=BIGINT).with_("filesystem", path="job/out", format="json"))
    full = table("t", n=BIGINT).with_("filesystem", path="full", format="json")
    sink = sinks(full)
    message = 'org.apache.spark.api.python.PythonException: RuntimeError: everfold[write-failed]: {"errno": "ENOSPC", "text": "x", "path": "y"}\n at …'
    assert sink.parse_failure(message) is not None
    assert "the disk is full" in str(sink.parse_failure(message))
    lost = sinks(of := table("t", n=BIGINT).with_("filesystem", path="lost", format="json"))
    lost.write(frame, BatchId("job", "s1", 1, 0))
    record = lost.records / "1-0.json"
    record.write(
        record.read_text()
        .replace('"done": true', '"done": false')
        .replace('"files": []', '"files": [[".a", "gone.json"]]')
    )
    with pytest.raises(StateError, match=r"`gone\.json` of a finished batch is gone"):
        sinks(of)


def test_parquet_of_other_types(session: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "n": pa.array([1], pa.int16()), "ns": pa.array([-1], pa.timestamp("ns")), "z": pa.array([1_586_937_900_120], pa.timestamp("ms", "UTC")),
        "d": pa.array([1], pa.decimal128(5, 1)),
    }  # fmt: skip
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "a.parquet")
    of = table(n=BIGINT, ns=TIMESTAMP3, z=TIMESTAMP3, d=DecimalType(precision=10, scale=2)).with_(
        "filesystem", path="t", format="parquet"
    )
    reader = SourceReader(session, of, tmp_path)
    assert reader.batch() == reader.local()
    assert [len(rows) for _, rows in reader.stream(tmp_path / "checkpoint")[0]] == [1]
    old = tmp_path / "old.parquet"
    pq.write_table(pa.table({"ns": columns["ns"]}), old, use_deprecated_int96_timestamps=True)
    for type_ in (TIMESTAMP3, TIMESTAMP_LTZ3):
        one = SourceReader(session, table(ns=type_).with_("filesystem", path="old.parquet", format="parquet"), tmp_path)
        assert one.batch() == one.local()
    pq.write_table(pa.table({**columns, "n": pa.array(["x"])}), folder / "b.parquet")
    error = reader.fails(lambda: reader.stream(tmp_path / "checkpoint"))
    assert error.code == "wrong-column-type"
    assert "b.parquet" in str(error)
    (folder / "b.parquet").write_bytes(b"PAR1 no more")
    assert reader.fails(lambda: reader.stream(tmp_path / "checkpoint")).code == "bad-file"
    missing = SourceReader(session, table(m=INT).with_("filesystem", path="old.parquet", format="parquet"), tmp_path)
    assert missing.fails(missing.batch).code == "missing-column"


def test_parquet_files_in_any_of_the_types_that_fit(session: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def ints(of: Any, low: int, high: int) -> Any:
        return pa.array([None, low, high, *(low + at * (high - low) // 3_000 for at in range(3_000))], of)

    moments = [
        datetime(1969, 12, 31, 23, 59, 59, 999_000),
        None,
        *(datetime(2026, 1, 1, at % 24) for at in range(3_000)),
    ]
    narrow, wide = DecimalType(precision=5, scale=1), DecimalType(precision=12, scale=3)
    integers = [
        ints(pa.int8(), -128, 127),
        ints(pa.int16(), -(2**15), 2**15 - 1),
        ints(pa.int32(), -(2**31), 2**31 - 1),
    ]
    unsigned = [ints(pa.uint8(), 0, 255), ints(pa.uint16(), 0, 2**16 - 1), ints(pa.uint32(), 0, 2**32 - 1)]
    floats = pa.array([None, 1.5, float("nan"), *map(float, range(3_000))], pa.float32())
    cases: dict[DataType, list[Any]] = {
        SMALLINT: [*integers[:2], unsigned[0]],
        INT: [*integers, *unsigned[:2]],
        BIGINT: [*integers, *unsigned, ints(pa.int64(), -(2**63), 2**63 - 1)],
        DOUBLE: [floats, pa.array([1e300, None, 0.1])],
        wide: [
            pa.array([None, *(Decimal(at) / 10 for at in range(3_000))], narrow.arrow),
            pa.array([Decimal("123456789.125"), None], wide.arrow),
            pa.array([Decimal("1.25"), None], pa.decimal128(10, 2)),
        ],
        TIMESTAMP3: [pa.array(moments, pa.timestamp(unit, zone)) for unit in ("ns", "us", "ms") for zone in (None, "UTC")],
        TIMESTAMP_LTZ3: [pa.array(moments, pa.timestamp(unit, zone)) for unit in ("us", "ns") for zone in (None, "UTC")],
        ArrayType(element=BIGINT): [pa.array([[1, None], None, [], [2**15 - 1]], pa.list_(of)) for of in (pa.int16(), pa.int64(), pa.uint32())],
        MapType(key=STRING, value=DOUBLE): [
            pa.array([[("x", 1.5)], None, []], pa.map_(pa.string(), of)) for of in (pa.float32(), pa.float64())
        ],
    }  # fmt: skip
    for number, (of, columns) in enumerate(cases.items()):
        for order, use_dictionary in ((1, True), (-1, True), (1, False)):
            folder = tmp_path / f"{number}-{order}-{use_dictionary}"
            folder.mkdir()
            for at, values in enumerate(columns[::order]):
                file = folder / f"{at}.parquet"
                pq.write_table(pa.table({"x": values}), file, use_dictionary=use_dictionary)
                os.utime(file, (at + 1, at + 1))
            reader = SourceReader(
                session, table(x=of).with_("filesystem", path=folder.name, format="parquet"), tmp_path
            )
            expected = sorted(map(repr, reader.local()))
            assert sorted(map(repr, reader.batch())) == expected, of
            if not isinstance(of, TimestampType | MapType):
                batches, _ = reader.stream(tmp_path / f"checkpoint-{folder.name}")
                streamed = [{"c0": row[0]} for _, rows in batches for row in rows]
                assert sorted(map(repr, streamed)) == expected, of
