"""What is checked before a job starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from everfold.cli.main import everfold
from everfold.errors import EverfoldError

TABLES = """
CREATE TABLE t (k STRING, n INT) WITH ({});
CREATE TABLE o (k STRING, n INT) WITH ({});
"""
FILES = "'connector' = 'filesystem', 'format' = 'json', 'path' = '{}'"
DELTA = "'connector' = 'delta', 'table-path' = '{}'"


def code_of(command: str, script: str) -> str:
    Path("job.sql").write_text(script)
    arguments = {"check": ["job.sql", "job.sql"], "run": ["job.sql", "--engine", "memory"], "explain": ["job.sql"]}
    result = CliRunner().invoke(everfold, [command, *arguments[command]])
    return result.exception.code if isinstance(result.exception, EverfoldError) else ""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/1.json").write_text('{"k": "a", "n": 1}\n')
    Path("link").symlink_to("in")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "sink", "loops"),
    [
        (FILES.format("in"), FILES.format("in/out"), True),
        (FILES.format("in"), FILES.format("./in/a/b/"), True),
        (FILES.format("in"), FILES.format("in"), True),
        (FILES.format("link"), FILES.format("in/out"), True),
        (FILES.format("in"), FILES.format("link/out"), True),
        (FILES.format("in"), DELTA.format("in/out"), True),
        (FILES.format("s3a://bucket/in"), FILES.format("s3a://bucket/in/out"), True),
        (DELTA.format("in"), DELTA.format("in"), True),
        (FILES.format("in"), FILES.format("in/_out"), False),
        (FILES.format("in"), FILES.format("in/.out/x"), False),
        (FILES.format("in"), FILES.format("in2"), False),
        (FILES.format("in/a"), FILES.format("in"), False),
        (FILES.format("in"), FILES.format("in/k=1/_x=2"), True),
        (DELTA.format("in"), DELTA.format("in/out"), False),
        (FILES.format("in"), "'connector' = 'print'", False),
    ],
)
def test_a_stream_does_not_read_what_it_writes(source: str, sink: str, loops: bool) -> None:
    script = TABLES.format(source, sink) + "INSERT INTO o SELECT k, n FROM t;\n"
    expected = "sink-in-source" if loops else ""
    assert (code_of("check", script), code_of("explain", script)) == (expected, expected)
    if loops:
        assert code_of("run", script) == expected
    assert code_of("check", f"SET 'execution.runtime-mode' = 'batch';\n{script}") == ""


def test_an_appended_lookup_table_is_no_loop() -> None:
    script = (
        TABLES.format(FILES.format("in"), FILES.format("names"))
        + "INSERT INTO o SELECT t.k, t.n FROM t JOIN o AS names ON t.k = names.k;\n"
    )
    assert code_of("check", script) == ""
