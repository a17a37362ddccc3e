"""Values of PARTITIONED BY as directory names.

Any value stays inside the table's directory and is read back as written.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from unit.connectors.tables import table

from everfold.cli.main import everfold
from everfold.connectors.contract import Role
from everfold.connectors.filesystem.parts import FOLDER, PartWriter
from everfold.connectors.filesystem.paths import escape, escape_differently, escape_key, is_hidden, partition_values
from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.json import JsonFormat
from everfold.connectors.registry import connector_of
from everfold.errors import SqlError
from everfold.types import INT, STRING

HOSTILE = [
    "../../etc", "..", ".", "...", ".hidden", "_SUCCESS", "/", "/etc/passwd", "a/b", "a=b", "=", "%", "%2F", "%252F", "%zz", "100%", "\0", "a\0b", "a\nb", "\r", "\x7f", "\\", "a:b",
    "*", "?", "[a]", "{a}", "'", '"', "$(x)", "`x`", " ", "a b ", "+", "a+b", "ä€😀", "é", "\u202e", "\u2028", "__DEFAULT_PARTITION__", "_temporary", "k=v/k=w", "x" * 80,
]  # fmt: skip
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))


@given(TEXTS, TEXTS)
def test_every_value_has_its_own_directory(key: str, value: str) -> None:
    name = f"{escape_key(key)}={escape(value)}"
    assert os.path.normpath(name) == name
    assert not {"/", "\0"} & set(name)
    assert not is_hidden(name)
    place = Path("/table")
    assert partition_values(place / name / "part", place, (key,), "") == [value]


@given(TEXTS)
def test_a_value_equal_to_the_name_for_null_is_escaped(name: str) -> None:
    if escape(name) == name:
        assert partition_values(Path(f"/t/k={escape_differently(name)}/part"), Path("/t"), ("k",), "") == [name]
    assert escape_differently("__DEFAULT_PARTITION__") == "%5F_DEFAULT_PARTITION__"


@pytest.mark.parametrize("name", ["a/b", "..", "a%b", "\0"])
def test_the_name_for_null_must_be_a_plain_name(name: str) -> None:
    of = table("t", ("k",), a=INT, k=STRING).with_(
        "filesystem", path="t", format="json", **{"partition.default-name": name}
    )
    with pytest.raises(SqlError, match=r"`partition.default-name` contains a character"):
        connector_of(of).check(of, Role.SINK)


@pytest.mark.parametrize("query", ["SELECT k, COUNT(*) AS n FROM t GROUP BY k", "SELECT k, 2 AS n FROM t GROUP BY k"])
def test_a_query_may_read_columns_of_folders_only(tmp_path: Path, query: str) -> None:
    for key in "ab":
        (tmp_path / "t" / f"k={key}").mkdir(parents=True)
        (tmp_path / "t" / f"k={key}" / "rows.json").write_text('{"a": 1}\n{"a": 2}\n')
    script = tmp_path / "job.sql"
    script.write_text(f"""CREATE TABLE t (k STRING, a INT) PARTITIONED BY (k)
        WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json');
        SET 'execution.runtime-mode' = 'batch';
        {query};""")
    done = CliRunner().invoke(everfold, ["run", str(script), "--engine", "memory", "--format", "csv"])
    assert (done.exit_code, sorted(done.stdout.splitlines()[-2:])) == (0, ["a,2", "b,2"]), done.output


def write(root: Path, *folders: str) -> None:
    """Write one row for each directory, as a task does."""
    batch = pa.record_batch({"c0": [1] * len(folders), FOLDER: list(folders)})
    list(PartWriter(str(root), "stem", "json", (RecordColumn("a", 0, INT),), JsonFormat())(iter([batch])))


def test_a_link_out_of_the_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t" / "k=a").symlink_to(tmp_path / "elsewhere")
    for folder in ("k=a", "k=a/j=b", "../elsewhere", "k=b/../../elsewhere/x"):
        with pytest.raises(RuntimeError, match="leads out of the table's"):
            write(tmp_path / "t", folder)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    write(tmp_path / "t", "k=b")
    assert len(list((tmp_path / "t" / "k=b").iterdir())) == 1


def test_a_value_that_is_too_long_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=errno.errorcode[errno.ENAMETOOLONG]):
        write(tmp_path, "k=a", f"k={'x' * 300}")
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
