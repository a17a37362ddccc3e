"""Declarations of Delta tables, positions in them, and the refusal of Iceberg tables."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from unit.connectors.tables import TableMaker, table

from everfold.checkpoint.logs import Position
from everfold.connectors.contract import AppliedBatch, BatchId, ReplayEffect, Role
from everfold.connectors.delta.connector import CONNECTOR
from everfold.connectors.delta.sink import batch_of, version_of
from everfold.connectors.validate import check_table
from everfold.errors import EverfoldError
from everfold.plan.changelog import ChangelogMode
from everfold.storage import local
from everfold.types import BIGINT, INT, STRING, ArrayType, IntervalType, TimeType

TOTALS = table("totals", k=STRING, n=BIGINT)


def check(of: TableMaker, role: Role, options: dict[str, str]) -> None:
    check_table(of.with_options({"connector": "delta", "table-path": "t", **options}), role)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table-path": "ftp://host/t"}, "paths of `ftp` are not supported"),
        ({"table-path": "s3a://user:word@bucket/t"}, "the URI of `table-path` has a user name or password"),
        ({"table-path": " "}, "option `table-path` is not a path"),
        ({"startingVersion": "3"}, "`startingVersion` applies to tables with 'mode' = 'streaming' only"),
        ({"mode": "streaming", "versionAsOf": "3"}, "`versionAsOf` applies to tables with 'mode' = 'batch' only"),
        ({"versionAsOf": "3", "timestampAsOf": "2026-01-01"}, "set `versionAsOf` or `timestampAsOf`, not both"),
        ({"mode": "streaming", "startingVersion": "new"}, "option `startingVersion` takes a number or `latest`"),
        ({"mergeSchema": "true"}, "the connector `delta` has no option `mergeSchema`"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(EverfoldError, match=message):
        check(TOTALS, Role.SOURCE, options)


@pytest.mark.parametrize(
    ("of", "code"),
    [
        (table("t", at=TimeType()), "delta-type"),
        (table("t", at=ArrayType(element=IntervalType())), "delta-type"),
        (table("t", **{"a b": INT}), "delta-name"),
        (table("t", Key=INT, key=INT), "delta-name"),
        (table("t", ("x",), k=INT), "unknown-column"),
        (table("t", ("k",), k=INT), "no-column-left"),
        (table("t", ("k",), k=ArrayType(element=INT), n=INT), "partition-type"),
    ],
)
def test_columns_that_delta_cannot_store_are_refused(of: TableMaker, code: str) -> None:
    with pytest.raises(EverfoldError, match=code):
        check(of, Role.SINK, {})


def test_a_table_accepts_updates_by_its_key() -> None:
    made = TOTALS.with_options({"connector": "delta", "table-path": "t"})
    assert CONNECTOR.accepted_changelog(made) is ChangelogMode.INSERT_ONLY
    assert CONNECTOR.replay_effect(made) is ReplayEffect.DUPLICATES
    keyed = replace(made, primary_key=("k",))
    assert CONNECTOR.accepted_changelog(keyed) is ChangelogMode.UPSERT
    assert CONNECTOR.replay_effect(keyed) is ReplayEffect.OVERWRITES


def test_a_transaction_has_the_batch_and_the_start_of_its_digest() -> None:
    batch = BatchId("job", "s", 3, 7, "fedcba9876543210")
    assert batch_of(3, version_of(batch)) == AppliedBatch(3, 7, "fedcba98")
    assert batch_of(3, version_of(replace(batch, digest=""))) == AppliedBatch(3, 7, "")
    assert version_of(replace(batch, digest="f" * 32)) < version_of(replace(batch, batch=8, digest="0" * 32))
    assert version_of(replace(batch, batch=2**31 - 1)) < 2**63


def test_a_position_is_passed_when_its_files_were_read() -> None:
    made = TOTALS.with_options({"connector": "delta", "table-path": "t"})
    source = check_table(made, Role.SOURCE).source()

    def at(version: int, index: int, *, first: bool = False) -> Position:
        line = {"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": version, "index": index}
        return Position(json.dumps({**line, "isStartingVersion": first}), local("/none"))

    for now, then, passed in (
        (at(5, -1), at(5, -1), True),
        (at(5, 2), at(5, 3), False),
        (at(6, -1), at(5, 3), True),
        (at(5, 3, first=True), at(5, 2, first=True), True),
        (at(5, 1, first=True), at(5, 2, first=True), False),
        (at(6, 9, first=True), at(5, -1), False),  # a part of a newer snapshot
        (at(6, -1), at(5, 9, first=True), True),
    ):
        assert source.has_passed(now, then) is passed


def test_an_iceberg_table_is_refused_with_the_reason() -> None:
    made = TOTALS.with_options({"connector": "iceberg", "catalog-name": "c"})
    for role in Role:
        with pytest.raises(EverfoldError, match=r"no-iceberg.*Apache Iceberg has no release for Spark 4\.2 yet"):
            check_table(made, role)
