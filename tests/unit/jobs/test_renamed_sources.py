"""The names by which a job knows tables and columns that were renamed, and the renaming that a
report suggests.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from unit.job_dirs import open_dir, start_job

from everfold.cli.main import everfold
from everfold.cli.pairs import parse_sources
from everfold.connectors.registry import apply_connector
from everfold.errors import UsageError
from everfold.jobs.manifest import Manifest, NewQuery
from everfold.jobs.renamed_sources import find_known_names, rename_sources
from everfold.jobs.rewind import Moved
from everfold.plan.known_names import KnownTable
from everfold.plan.naming import number_operators
from everfold.plan.nodes import Root
from everfold.plan.walk import tables_read
from everfold.sql.planner import Session, Submit

SCRIPT = """
CREATE TABLE {table} ({key} STRING, price INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json');
CREATE TABLE totals (k STRING, v INT) WITH ('connector' = 'print');
INSERT INTO totals SELECT {key}, SUM(price) FROM {table} GROUP BY {key};
"""


def write(table: str = "orders", key: str = "customer", path: str = "in") -> str:
    return SCRIPT.format(table=table, key=key, path=path)


def plan(script: str) -> tuple[Root, ...]:
    (submit,) = [action for action in Session(connected=apply_connector).run(script) if isinstance(action, Submit)]
    return tuple(submit.roots)


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return start_job(tmp_path / "job", plan(write()), folder=tmp_path)


def rename(manifest: Manifest, script: str, **renamed: str) -> dict[str, KnownTable]:
    options = {old.replace("__", "."): new for old, new in renamed.items()}
    return find_known_names(manifest.version, tables_read(plan(script)), options)


def test_a_table_and_a_column(manifest: Manifest) -> None:
    names = rename(manifest, write("bids", "who"), orders="bids", orders__customer="who")
    assert names == {"bids": KnownTable("orders", {"who": "customer"})}
    assert rename(manifest, write("orders", "who"), orders__customer="who") == {
        "orders": KnownTable("orders", {"who": "customer"})
    }


def test_names_are_followed_over_several_renamings(manifest: Manifest) -> None:
    first = rename(manifest, write("bids", "who"), orders="bids", orders__customer="who")
    again = replace(manifest, versions=(replace(manifest.version, known_names=first),))
    assert rename(again, write("bids", "who")) == first
    # The same options again have no effect.
    assert rename(again, write("bids", "who"), orders="bids", orders__customer="who") == first
    names = rename(again, write("sales", "client"), bids="sales", bids__who="client")
    assert names == {"sales": KnownTable("orders", {"client": "customer"})}
    # And back to the first names.
    assert rename(again, write(), bids="orders", bids__who="customer") == {}


def test_a_renamed_query_is_the_query_of_the_job(manifest: Manifest) -> None:
    query = NewQuery(roots=number_operators(plan(write("bids", "who"))), zone="UTC")
    assert not manifest.version.is_query(query)
    renamed = rename_sources(query, manifest.version, {"orders": "bids", "orders.customer": "who"})
    assert manifest.version.is_query(renamed)
    assert renamed.shapes == manifest.version.query_shapes


def test_a_new_table_or_column_with_an_old_name_is_another_one(manifest: Manifest) -> None:
    first = rename(manifest, write("bids", "who"), orders="bids", orders__customer="who")
    again = replace(manifest, versions=(replace(manifest.version, known_names=first),))
    both = write("bids", "who, customer").replace("who, customer STRING", "who STRING, customer STRING")
    both = both.replace("SELECT who, customer, SUM", "SELECT MAX(customer), SUM").replace(
        "GROUP BY who, customer", "GROUP BY who"
    )
    assert rename(again, both)["bids"].columns == {"who": "customer", "customer": "customer_1"}
    two = write("bids", "who").replace("FROM bids", "FROM (SELECT * FROM bids UNION ALL SELECT * FROM orders)")
    table = "CREATE TABLE orders (who STRING, price INT, ts TIMESTAMP(3)) WITH ('connector' = 'datagen');"
    assert rename(again, table + two) == {**first, "orders": KnownTable("orders_1")}


@pytest.mark.parametrize(
    ("script", "renamed", "message"),
    [
        (write("bids"), {"order": "bids"}, "the job reads no table `order`"),
        (write("bids", "who"), {"orders": "bids", "orders__custmer": "who"}, "has no column `custmer`"),
        (write("bids", "who"), {"orders": "bids", "orders__customer": "whom"}, "has no column `whom`"),
        (write("bids"), {"orders": "bids", "orders__customer": "price"}, "still has the column `customer`"),
    ],
)
def test_wrong_names(manifest: Manifest, script: str, renamed: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rename(manifest, script, **renamed)


def test_names_are_part_of_the_manifest(manifest: Manifest) -> None:
    names = {"bids": KnownTable("orders", {"who": "customer"})}
    written = replace(manifest, versions=(replace(manifest.version, known_names=names),))
    assert Manifest.parse(written.to_json(), Path("1.json")).version.known_names == names


def test_the_values_of_the_option() -> None:
    values = ("orders=moved", "bids=`new`", "t.a=b", "u=new")
    assert parse_sources(values) == ({"orders": Moved.MOVED, "u": Moved.NEW}, {"bids": "new", "t.a": "b"})


# --- suggestions ----------------------------------------------------------------------------------


def check(old: str, new: str, *options: str) -> Result:
    Path("old.sql").write_text(old)
    Path("new.sql").write_text(new)
    return CliRunner().invoke(everfold, ["check", "old.sql", "new.sql", *options])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("new", "options"),
    [
        (write("bids"), "--source orders=bids"),
        (write("orders", "who"), "--source orders.customer=who"),
        (write("bids", "who"), "--source orders=bids --source orders.customer=who"),
    ],
)
def test_a_refused_change_names_the_renaming(folder: Path, new: str, options: str) -> None:
    refused = check(write(), new)
    sentence = f"With {options}, the change is fully compatible, and keeps "
    assert (refused.exit_code, sentence in refused.output) == (5, True), refused.output
    assert check(write(), new, *options.split()).exit_code == 0
    as_json = check(write(), new, "--format", "json").output
    assert all(f'"{option}"' in as_json for option in options.replace(" --", "\n--").split("\n"))


def test_another_location_is_no_renaming(folder: Path) -> None:
    refused = check(write(), write("bids", path="other"))
    assert (refused.exit_code, "--source" in refused.output) == (5, False), refused.output


def test_a_suggestion_for_a_job(folder: Path) -> None:
    start_job(folder / "job", plan(write()), folder=folder)
    assert open_dir(folder / "job", plan(write()), folder=folder).replaces is None
    Path("new.sql").write_text(write("bids"))
    result = CliRunner().invoke(everfold, ["check", "new.sql", "--state", "job"])
    assert result.exit_code == 5
