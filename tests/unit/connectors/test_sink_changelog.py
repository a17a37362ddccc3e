"""The changelog modes that tables emit and accept, and the queries refused because of them."""

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
from everfold.plan.nodes import ChangelogNormalize, Table
from everfold.plan.walk import walk_plan
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
def test_tables_have_the_changelog_modes_of_their_format(
    options: dict[str, str], gives: ChangelogMode, takes: ChangelogMode
) -> None:
    of = TOTALS.with_options(options)
    assert apply_connector(of).changelog is gives
    assert connector_of(of).accepted_changelog(of) is takes


def test_an_unknown_connector_leaves_the_changelog_mode() -> None:
    of = replace(TOTALS.with_options({}), changelog=ALL)
    assert apply_connector(of).changelog is ALL
    assert apply_connector(TOTALS.with_options({"connector": "kafak"})).changelog is INSERTS
    assert apply_connector(TOTALS.with_options({**FILES, "format": "debezium"})).changelog is INSERTS


def with_primary_key(options: dict[str, str], *key: str) -> Table:
    return replace(TOTALS.with_options(options), primary_key=key)


@pytest.mark.parametrize(
    ("mode", "keys", "key"),
    [
        (INSERTS, [], ("a",)),  # the last row wins, as in Flink
        (ALL, [{0}], ("a",)),
        (ALL, [{0, 1}, {2}], ("a", "b")),
        (ALL, [{0}], ("a", "b")),  # a row that moves to another key is emitted with its previous key
        (ALL, [set()], ("n",)),  # at most one row
        (UPSERTS, [{0, 1}], ("b", "a")),
    ],
)
def test_keys_that_contain_a_unique_key_are_accepted(
    mode: ChangelogMode, keys: Sequence[set[int]], key: tuple[str, ...]
) -> None:
    for options in (JDBC, UPSERT_KAFKA):
        check_sink_accepts(with_primary_key(options, *key), mode, [frozenset(each) for each in keys])


@pytest.mark.parametrize(
    ("mode", "keys", "key", "words"),
    [
        (ALL, [{0, 1}], ("a",), "has one row for each (`a`, `b`)"),
        (ALL, [{0}, {1}], ("n",), "has one row for each (`a`) and for each (`b`)"),
        (ALL, [], ("a",), "has no unique key among these columns"),
        (UPSERTS, [{0}], ("a", "b"), "has one row for each (`a`)"),
    ],
)
def test_keys_that_would_merge_rows_are_refused(
    mode: ChangelogMode, keys: Sequence[set[int]], key: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        check_sink_accepts(with_primary_key(JDBC, *key), mode, [frozenset(each) for each in keys])
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
def test_an_append_only_table_suggests_alternatives(options: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        check_sink_accepts(TOTALS.with_options(options), ALL, [frozenset({0})])
    assert caught.value.code == "updates-into-appends"
    assert all(each in str(caught.value) for each in words)
    check_sink_accepts(TOTALS.with_options(options), INSERTS, [])


def test_all_changes_are_accepted_by_a_table_with_mode_all() -> None:
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
def test_a_wrong_table_is_refused(options: dict[str, str], key: tuple[str, ...], code: str) -> None:
    of = with_primary_key(options, *key)
    with pytest.raises(SqlError) as caught:
        connector_of(of).check(of, Role.SOURCE)
    assert caught.value.code == code


def test_options_of_flink_are_accepted() -> None:
    of = with_primary_key(
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
    of = with_primary_key({**KAFKA, "format": "debezium-json"}, "a")
    assert connector_of(of).check(of, Role.SOURCE)


def test_the_binder_adds_changelog_normalization() -> None:
    session = Session(connected=apply_connector)
    options = ", ".join(f"'{key}' = '{value}'" for key, value in UPSERT_KAFKA.items())
    *_, query = session.run(
        f"CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a) NOT ENFORCED) WITH ({options}); SELECT COUNT(*) FROM t"
    )
    assert isinstance(query, Submit)
    assert query.sources[0].changelog is UPSERTS
    assert any(isinstance(node, ChangelogNormalize) for node in walk_plan(query.roots[0].input))


def test_the_last_row_of_each_key_is_kept() -> None:
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
