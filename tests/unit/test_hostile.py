"""Malicious input: it is refused, or treated as plain data."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from everfold.errors import StateError, UsageError
from everfold.sql.dialects.render import quote_name
from everfold.sql.planner import Session, Show, Submit
from everfold.state.pages import _ROWS, _seal_page, decode, decode_head
from everfold.testing.casefile import loads

NAMES = [
    "a'b",
    'a"b',
    "a;b",
    "a--b",
    "a/*b",
    "../a",
    "%2e%2e/a",
    "a\nb",
    "a\0b",
    "a`b",
    "x" * 65_536,
    "DROP TABLE t",
    "$(touch x)",
    "c0",
    "__kind",
]


class Harm:
    """Creates a directory when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mkdir, (str(self.file), 0o700)


def test_a_pickle_in_place_of_a_page_is_not_loaded(tmp_path: Path) -> None:
    harm = pickle.dumps(Harm(tmp_path / "harm"))
    for blob in (harm, _seal_page(_ROWS, harm), _seal_page(b"H", harm)):
        with pytest.raises(StateError):
            decode(blob)
        with pytest.raises(StateError):
            decode_head(blob)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", [b"arrow.py_extension_type", b"ray.data.arrow_tensor", b"arrow.json"])
def test_an_extension_type_in_a_page_is_refused(name: bytes, tmp_path: Path) -> None:
    metadata = {b"ARROW:extension:name": name, b"ARROW:extension:metadata": pickle.dumps(Harm(tmp_path / "harm"))}
    schema = pa.schema([pa.field("a", pa.string(), metadata=metadata)])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(["{}"])], schema=schema))
    with pytest.raises(StateError, match="damaged-page"):
        decode(_seal_page(_ROWS, out.getvalue().to_pybytes()))
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "text",
    [
        "cases: !!python/object/apply:os.mkdir ['{file}']",
        "cases:\n- name: x\n  sql: SELECT 1\n  options: {{a: !!python/object/apply:os.mkdir ['{file}']}}",
        "cases:\n- name: x\n  sql: !harm SELECT 1",
        "cases: &a [*a]",
        "cases: &a\n- name: x\n  rows: *a",
        "cases: " + "[" * 10_000,
        "cases: " + "{{a: " * 10_000,
        "x0: &x0 [lol, lol]\n" + "".join(f"x{at}: &x{at} [*x{at - 1}, *x{at - 1}]\n" for at in range(1, 40)) + "cases: *x39",
        "cases:\n- name: x\n  sql: SELECT 1\n  modes: [&b x" + ", *b" * 300_000 + "]",
        "\0",
        "cases: [1",
    ],
)  # fmt: skip
def test_malicious_case_files_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        loads(text.format(file=tmp_path / "harm"), Path("hostile.case.yaml"))
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]))
def test_names_are_never_interpreted_as_sql(name: str) -> None:
    quoted = quote_name(name)
    session = Session({"execution.runtime-mode": "batch"})
    sql = f"CREATE TABLE {quoted} ({quoted} STRING); CREATE TABLE keep (a INT); CREATE VIEW `v` AS SELECT {quoted} AS {quoted} FROM {quoted};"
    list(session.run(sql))
    actions = [*session.run(f"SHOW CREATE TABLE {quoted}"), *session.run(f"SELECT {quoted} FROM v")]
    assert isinstance(actions[-1], Submit)
    assert actions[-1].names == (name,)
    shown = actions[-2]
    assert isinstance(shown, Show)
    again = Session()
    list(again.run(shown.rows[0][0]))
    assert again.catalog.find((name,)) is not None
    assert session.catalog.find(("keep",)) is not None
