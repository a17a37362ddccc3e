"""Table options: errors are reported before anything starts, without pyspark, and
without secrets.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import Role, parse_memory
from everfold.connectors.datagen import DatagenSource
from everfold.connectors.registry import apply_connector, connector_names, connector_of
from everfold.connectors.validate import check_table
from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.nodes import Table, TableColumn
from everfold.plan.walk import tables_of, walk_plan
from everfold.sql.planner import Session, Submit
from everfold.types import BIGINT, DATE, INT, STRING, ArrayType, MapType

BIDS = table(item=STRING, price=INT)
KAFKA = {
    "connector": "kafka",
    "topic": "bids",
    "properties.bootstrap.servers": "localhost:9092",
    "format": "json",
    "scan.startup.mode": "earliest-offset",
}


def error_of(of: Table, role: Role = Role.SOURCE) -> SqlError:
    with pytest.raises(SqlError) as caught:
        connector_of(of).check(of, role)
    return caught.value


def test_connectors_are_found_by_name() -> None:
    assert set(connector_names()) == {
        "filesystem",
        "kafka",
        "upsert-kafka",
        "topic",
        "jdbc",
        "delta",
        "print",
        "blackhole",
        "datagen",
    }
    error = error_of(BIDS.with_("kafak"))
    assert error.code == "unknown-connector"
    assert error.diagnostics[0].help == "did you mean `kafka`?"
    assert error_of(BIDS.with_(None)).code == "missing-option"


def test_an_unknown_option_is_refused_with_its_position_and_the_nearest_name() -> None:
    error = error_of(BIDS.with_("filesystem", path="x", format="json", source__monitor_intervall="1 s"))
    assert str(error) == (
        "error[unknown-option]: table `bids`: the connector `filesystem` has no option `source.monitor-intervall`\n"
        " --> script.sql:1:34\n"
        "  |\n"
        "1 | 'path' = 'x', 'format' = 'json', 'source.monitor-intervall' = '1 s', 'connector' = 'filesystem'\n"
        "  |                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  = help: did you mean `source.monitor-interval`?"
    )


def test_all_errors_are_reported_at_once() -> None:
    error = error_of(
        BIDS.with_("filesystem", format="json", json__fail_on_missing_field="yes", source__monitor_interval="soon")
    )
    assert [each.code for each in error.diagnostics] == ["wrong-option-value", "wrong-option-value", "missing-option"]
    assert (
        "option `json.fail-on-missing-field` is `yes`, but it takes `true` or `false`" in error.diagnostics[0].message
    )
    assert error.diagnostics[2].message == "table `bids` needs option `path`"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"path": "x"}, "missing-option", "needs option `format`"),
        ({"path": "x", "format": "jsn"}, "unknown-format", "no format `jsn`"),
        ({"path": "s3://b/x", "format": "json"}, "file-system", "paths of `s3`"),
        ({"path": "x", "format": "json", "csv.field-delimiter": ";"}, "unknown-option", "csv.field-delimiter"),
        ({"path": "x", "format": "json", "json.timestamp-format.standard": "RFC"}, "wrong-option-value", "takes `SQL` or `ISO-8601`"),
        ({"path": "x", "format": "json", "json.ignore-parse-errors": "true", "json.fail-on-missing-field": "true"}, "wrong-option-value", "cannot both be true"),
        ({"path": "x", "format": "csv", "csv.field-delimiter": ";;"}, "wrong-option-value", "a single character"),
        ({"path": "x", "format": "csv", "csv.field-delimiter": '"'}, "wrong-option-value", "must differ"),
        ({"path": "x", "format": "csv", "csv.disable-quote-character": "true", "csv.quote-character": "'"}, "wrong-option-value", "has no meaning"),
        ({"path": "x", "format": "json", "scan.max-files-per-batch": "0"}, "wrong-option-value", "must be at least 1"),
        ({"path": "x", "format": "json", "source.path.regex-pattern": "("}, "wrong-option-value", "not a regular expression"),
        ({"path": "x", "format": "raw"}, "raw-columns", "exactly one column"),
    ],
)  # fmt: skip
def test_a_wrong_file_table_is_refused(options: dict[str, str], code: str, words: str) -> None:
    error = error_of(BIDS.with_options({**options, "connector": "filesystem"}))
    assert error.code == code
    assert words in str(error)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"topic": None}, "missing-option", "needs option `topic`"),
        ({"topic-pattern": "b.*"}, "wrong-option-value", "not both"),
        ({"properties.bootstrap.servers": None}, "missing-option", "properties.bootstrap.servers"),
        ({"scan.startup.mode": None}, "missing-option", "needs option `properties.group.id`, as `scan.startup.mode` is `group-offsets`, its default"),
        ({"scan.startup.mode": "earliest"}, "wrong-option-value", "`earliest-offset`, `latest-offset`"),
        ({"scan.startup.mode": "timestamp"}, "missing-option", "scan.startup.timestamp-millis"),
        ({"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "0:1"}, "wrong-option-value", "partition:0,offset:42"),
        ({"key.format": "json"}, "wrong-option-value", "`key.fields` names no column"),
        ({"key.fields": "item"}, "missing-option", "needs option `key.format`"),
        ({"key.fields": "itm", "key.format": "raw"}, "wrong-option-value", "did you mean `item`?"),
        ({"key.fields": "item", "key.format": "raw", "key.fields-prefix": "k_"}, "wrong-option-value", "EXCEPT_KEY"),
        ({"value.format": "json"}, "wrong-option-value", "leave one out"),
        ({"format": "protobuf"}, "unknown-format", "`protobuf`"),
        ({"scan.startup.modee": "x"}, "unknown-option", "did you mean `scan.startup.mode`?"),
    ],
)  # fmt: skip
def test_a_wrong_kafka_table_is_refused(options: dict[str, str | None], code: str, words: str) -> None:
    options_of_table = {key: value for key, value in {**KAFKA, **options}.items() if value is not None}
    error = error_of(BIDS.with_options(options_of_table))
    assert error.code == code
    assert words in str(error)


def test_client_options_are_passed_on() -> None:
    options = connector_of(of := BIDS.with_options({**KAFKA, "properties.security.protocol": "SASL_SSL"})).check(
        of, Role.SOURCE
    )
    assert options.with_prefix("properties.") == {"security.protocol": "SASL_SSL"}


def test_messages_contain_no_secrets() -> None:
    canary = "hunter2-canary"
    of = BIDS.with_options({**KAFKA, "properties.sasl.password": canary, "scan.startup.mode": "wrong"})
    assert canary not in repr(of)
    assert canary not in "".join(each.message + str(each.help) for each in error_of(of).diagnostics)


def test_options_without_meaning_produce_a_note() -> None:
    of = BIDS.with_("filesystem", path="x", format="json", sink__rolling_policy__file_size="1 mb")
    # The short form cannot express this name: it has both dots and dashes.
    of = BIDS.with_options(
        {"connector": "filesystem", "path": "x", "format": "json", "sink.rolling-policy.file-size": "1 mb"}
    )
    notes = connector_of(of).check(of, Role.SINK).notes
    assert notes == (
        "table `bids`: option `sink.rolling-policy.file-size` has no meaning here: a batch's files are finished with the batch",
    )


def test_unknown_and_read_only_metadata_are_refused() -> None:
    of = table("bids", (), {"n": (STRING, "file.nam")}, item=STRING).with_("filesystem", path="x", format="json")
    error = error_of(of)
    assert error.code == "unknown-metadata"
    assert "did you mean `file.name`?" in str(error)
    of = Table(
        name="t",
        columns=(TableColumn(name="i", type=INT), TableColumn(name="o", type=BIGINT, metadata_key="offset")),
        options=tuple(KAFKA.items()),
    )
    assert error_of(of, Role.SINK).code == "read-only-metadata"


def test_types_that_a_format_cannot_represent_are_refused() -> None:
    of = table(m=MapType(key=INT, value=INT)).with_("filesystem", path="x", format="json")
    assert error_of(of).code == "json-map-key"
    of = table(n=INT, a=ArrayType(element=ArrayType(element=INT))).with_("filesystem", path="x", format="csv")
    assert error_of(of).code == "csv-type"


def test_wrong_partition_keys_are_refused() -> None:
    assert (
        error_of(table("t", ("dt",), item=STRING).with_("filesystem", path="x", format="json")).code == "unknown-column"
    )
    assert error_of(table("t", ("dt",), dt=DATE).with_("filesystem", path="x", format="json")).code == "no-column-left"
    of = table("t", ("a",), n=INT, a=ArrayType(element=INT)).with_("filesystem", path="x", format="json")
    assert error_of(of).code == "partition-type"


def test_a_table_in_the_wrong_role_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="only writes"):
        check_table(BIDS.with_("print"), Role.SOURCE).source()
    with pytest.raises(UnsupportedFeature, match="does not read from `datagen`"):
        next(
            iter(
                check_table(BIDS.with_("datagen", number_of_rows="3"), Role.SOURCE)
                .source()
                .read_local(__import__("pathlib").Path())
            )
        )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"fields.itm.kind": "random"}, "wrong-option-value"),
        ({"fields.item.knd": "random"}, "unknown-option"),
        ({"fields.price.kind": "sequence"}, "missing-option"),
        ({"fields.price.min": "5", "fields.price.max": "4"}, "wrong-option-value"),
        ({"fields.price.min": "x"}, "wrong-option-value"),
        ({"rows-per-second": "0"}, "wrong-option-value"),
    ],
)
def test_wrong_datagen_options_are_refused(options: dict[str, str], code: str) -> None:
    assert error_of(BIDS.with_options({"connector": "datagen", **options})).code == code


def test_datagen_is_bounded_by_rows_and_sequences() -> None:
    for options, bounded in (
        ({}, False),
        ({"number-of-rows": "5"}, True),
        ({"fields.price.kind": "sequence", "fields.price.start": "1", "fields.price.end": "3"}, True),
    ):
        of = BIDS.with_options({"connector": "datagen", **options})
        assert check_table(of, Role.SOURCE).source().is_bounded() is bounded


def test_datagen_generates_columns_that_no_query_reads() -> None:
    script = """
        CREATE TABLE made (a INT, b INT) WITH ('connector' = 'datagen',
            'fields.b.kind' = 'sequence', 'fields.b.start' = '1', 'fields.b.end' = '3');
        SELECT COUNT(a) FROM made
    """
    [submit] = [each for each in Session(connected=apply_connector).run(script) if isinstance(each, Submit)]
    [read] = [each for root in submit.roots for each in tables_of(walk_plan(root.input))]
    assert [column.name for column in read.columns] == ["a", "b"]
    source = check_table(read, Role.SOURCE).source()
    assert isinstance(source, DatagenSource)
    assert source.row_count == 3


def test_boundedness_depends_on_the_options() -> None:
    files = BIDS.with_("filesystem", path="x", format="json")
    assert check_table(files, Role.SOURCE).source().is_bounded()
    watched = BIDS.with_options(
        {"connector": "filesystem", "path": "x", "format": "json", "source.monitor-interval": "1 s"}
    )
    assert not check_table(watched, Role.SOURCE).source().is_bounded()
    for mode, bounded in (("unbounded", False), ("latest-offset", True)):
        of = BIDS.with_options({**KAFKA, "scan.bounded.mode": mode})
        assert check_table(of, Role.SOURCE).source().is_bounded() is bounded


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("2 kb", 2048), ("256mb", 256 << 20), ("1 GB", 1 << 30)])
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_memory(text) == size


def test_checking_options_imports_no_engine() -> None:
    code = (
        "import sys; from everfold.connectors.registry import connector_names, get_connector; [get_connector(n) for n in connector_names()];"
        "bad = [m for m in ('pyspark', 'polars', 'duckdb', 'pyarrow', 'confluent_kafka') if m in sys.modules]; print(bad); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
