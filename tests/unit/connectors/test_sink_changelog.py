"""Which changes tables give and take, and what is refused because of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import KIND, Role
from everfold.connectors.registry import apply_connector, connector_of
from everfold.connectors.sink_changelog import check_sink_accepts, last_by_key
from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import ChangelogNormalize, Table, walk_plan
from everfold.sql.planner import Session, Submit
from everfold.types import BIGINT, INT, STRING

INSERTS, UPSERTS, ALL = ChangelogMode.INSERT_ONLY, ChangelogMode.UPSERT, ChangelogMode.ALL
TOTALS = table("totals", a=INT, b=STRING, n=BIGINT)
FILES = {"connector": "filesystem", "path": "x"}
KAFKA = {
    "connector": "kafka",
    "topic": "t",
    "properties.bootstrap.servers": "localhost:9092",
    "scan.startup.mode": "earliest-offset",
}
UPSERT_KAFKA = {
    "connector": "upsert-kafka", "topic": "t", "properties.bootstrap.servers": "localhost:9092", "key.format": "json", "value.format": "json",
}  # fmt: skip
JDBC = {"connector": "jdbc", "url": "jdbc:postgresql://localhost/db", "table-name": "t"}


@pytest.mark.parametrize(
    ("options", "gives", "takes"),
    [
        ({**FILES, "format": "json"}, INSERTS, INSERTS),
        ({**FILES, "format": "parquet"}, INSERTS, INSERTS),
        ({**FILES, "format": "debezium-json"}, ALL, ALL),
        ({**FILES, "format": "canal-json"}, ALL, ALL),
        ({**KAFKA, "format": "csv"}, INSERTS, INSERTS),
        ({**KAFKA, "value.format": "debezium-json"}, ALL, ALL),
        (UPSERT_KAFKA, UPSERTS, UPSERTS),
        (JDBC, INSERTS, INSERTS),
        ({"connector": "print"}, INSERTS, ALL),
        ({"connector": "blackhole"}, INSERTS, ALL),
        ({"connector": "datagen"}, INSERTS, INSERTS),
    ],
    ids=str,
)
def test_what_tables_give_and_take(options: dict[str, str], gives: ChangelogMode, takes: ChangelogMode) -> None:
    of = TOTALS.with_options(options)
    assert apply_connector(of).changelog is gives
    assert connector_of(of).accepted_changelog(of) is takes


def test_a_table_that_nobody_knows_is_left_as_it_is() -> None:
    of = replace(TOTALS.with_options({}), changelog=ALL)
    assert apply_connector(of).changelog is ALL
    assert apply_connector(TOTALS.with_options({"connector": "kafak"})).changelog is INSERTS
    assert apply_connector(TOTALS.with_options({**FILES, "format": "debezium"})).changelog is INSERTS


def keyed(options: dict[str, str], *key: str) -> Table:
    return replace(TOTALS.with_options(options), primary_key=key)


@pytest.mark.parametrize(
    ("mode", "keys", "key"),
    [
        (INSERTS, [], ("a",)),  # the last row wins, as in Flink
        (ALL, [{0}], ("a",)),
        (ALL, [{0, 1}, {2}], ("a", "b")),
        (ALL, [{0}], ("a", "b")),  # a row that moves to another key comes with where it was
        (ALL, [set()], ("n",)),  # there is one row at most
        (UPSERTS, [{0, 1}], ("b", "a")),
    ],
)
def test_keys_that_fit(mode: ChangelogMode, keys: Sequence[set[int]], key: tuple[str, ...]) -> None:
    for options in (JDBC, UPSERT_KAFKA):
        check_sink_accepts(keyed(options, *key), mode, [frozenset(each) for each in keys])


@pytest.mark.parametrize(
    ("mode", "keys", "key", "words"),
    [
        (ALL, [{0, 1}], ("a",), "has one row for each (`a`, `b`)"),
        (ALL, [{0}, {1}], ("n",), "has one row for each (`a`) and for each (`b`)"),
        (ALL, [], ("a",), "has no unique key among these columns"),
        (UPSERTS, [{0}], ("a", "b"), "has one row for each (`a`)"),
    ],
)
def test_keys_that_would_lump_rows_together(
    mode: ChangelogMode, keys: Sequence[set[int]], key: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        check_sink_accepts(keyed(JDBC, *key), mode, [frozenset(each) for each in keys])
    assert caught.value.code == "sink-key"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({**FILES, "format": "json"}, ("(connector `filesystem`)", "'format' = 'debezium-json'")),
        ({**KAFKA, "format": "json"}, ("(connector `kafka`)", "`upsert-kafka`")),
        (JDBC, ("(connector `jdbc`)", "declare the PRIMARY KEY")),
    ],
    ids=str,
)
def test_a_table_that_only_grows_says_what_to_do(options: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        check_sink_accepts(TOTALS.with_options(options), ALL, [frozenset({0})])
    assert caught.value.code == "updates-into-appends"
    assert all(each in str(caught.value) for each in words)
    check_sink_accepts(TOTALS.with_options(options), INSERTS, [])


def test_all_changes_go_to_a_table_that_takes_all() -> None:
    for options in ({"connector": "print"}, {"connector": "blackhole"}, {**FILES, "format": "canal-json"}):
        check_sink_accepts(TOTALS.with_options(options), ALL, [])


@pytest.mark.parametrize(
    ("options", "key", "code"),
    [
        (UPSERT_KAFKA, (), "missing-primary-key"),
        ({**UPSERT_KAFKA, "value.format": "debezium-json"}, ("a",), "format-of-changes"),
        ({**UPSERT_KAFKA, "topic": "a;b"}, ("a",), "one-topic"),
        ({**UPSERT_KAFKA, "value.format": "protobuf"}, ("a",), "unknown-format"),
        ({**UPSERT_KAFKA, "scan.startup.mode": "earliest-offset"}, ("a",), "unknown-option"),
        ({**UPSERT_KAFKA, "key.fields": "a"}, ("a",), "unknown-option"),
        ({**UPSERT_KAFKA, "key.fields-prefix": "k_"}, ("a",), "wrong-option-value"),
        ({**UPSERT_KAFKA, "scan.bounded.mode": "group-offsets"}, ("a",), "missing-option"),
        ({**KAFKA, "format": "json"}, ("a",), "primary-key"),
        ({**KAFKA, "format": "json", "key.format": "debezium-json", "key.fields": "a"}, (), "unknown-format"),
    ],
    ids=str,
)  # fmt: skip
def test_a_table_that_is_wrong(options: dict[str, str], key: tuple[str, ...], code: str) -> None:
    of = keyed(options, *key)
    with pytest.raises(SqlError) as caught:
        connector_of(of).check(of, Role.SOURCE)
    assert caught.value.code == code


def test_options_that_flink_has() -> None:
    of = keyed(
        {
            **UPSERT_KAFKA,
            "sink.buffer-flush.max-rows": "100",
            "sink.buffer-flush.interval": "1 s",
            "sink.parallelism": "2",
        },
        "a",
    )
    options = connector_of(of).check(of, Role.SINK)
    assert len(options.notes) == 3
    assert (options.values["key.fields"], options.string("scan.startup.mode")) == (("a",), "earliest-offset")
    of = keyed({**KAFKA, "format": "debezium-json"}, "a")
    assert connector_of(of).check(of, Role.SOURCE)


def test_the_binder_knows() -> None:
    session = Session(connected=apply_connector)
    options = ", ".join(f"'{key}' = '{value}'" for key, value in UPSERT_KAFKA.items())
    *_, query = session.run(
        f"CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a) NOT ENFORCED) WITH ({options}); SELECT COUNT(*) FROM t"
    )
    assert isinstance(query, Submit)
    assert query.sources[0].changelog is UPSERTS
    assert any(isinstance(node, ChangelogNormalize) for node in walk_plan(query.roots[0].input))


def test_the_last_row_of_each_key() -> None:
    rows = pa.table(
        {
            "c0": [1, 2, 1, None, None],
            "c1": [["x"], ["x"], ["y"], None, ["z"]],
            KIND: pa.array([0, 0, 2, 0, 3], pa.int8()),
        }
    )
    assert last_by_key(rows, ["c0"]).to_pylist() == [
        {"c0": 2, "c1": ["x"], KIND: 0}, {"c0": 1, "c1": ["y"], KIND: 2}, {"c0": None, "c1": ["z"], KIND: 3},
    ]  # fmt: skip
    assert last_by_key(rows, ["c0", "c1"]) is rows
    assert last_by_key(rows.slice(0, 0), ["c0"]).num_rows == 0
