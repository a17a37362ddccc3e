"""Malformed files and directories, read without Spark: each is reported, and no row is read twice
or invented.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import Role
from everfold.connectors.filesystem.source import FileSource
from everfold.connectors.formats.format import record_columns
from everfold.connectors.formats.registry import format_of
from everfold.connectors.formats.text_decode import BadValue, excerpt
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError
from everfold.types import INT, STRING

GOOD = b'{"n":1}\n{"n":2}\r\n{"n":3}'


def source(format: str = "json", **options: str) -> FileSource:
    more = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    of = table("t", n=INT, s=STRING).with_options({"connector": "filesystem", "path": "in", "format": format, **more})
    found = check_table(of, Role.SOURCE).source()
    assert isinstance(found, FileSource)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def numbers(folder: Path, **options: str) -> list[object]:
    return [row["c0"] for piece in source(**options).read_local(folder.parent) for row in piece.to_pylist()]


def failure(folder: Path, **options: str) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        numbers(folder, **options)
    return caught.value


# --- files ----------------------------------------------------------------------------------------


def test_compressed_files_are_read_by_their_extension(folder: Path) -> None:
    (folder / "a.json.gz").write_bytes(gzip.compress(GOOD))
    (folder / "b.json.bz2").write_bytes(bz2.compress(GOOD + b"\n{"))
    error = failure(folder)
    assert str(error).startswith("error[bad-record]: `in/b.json.bz2` line 4: it is not JSON: ")
    (folder / "b.json.bz2").unlink()
    assert numbers(folder) == [1, 2, 3]


def _zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


@pytest.mark.parametrize(
    ("extension", "compress"),
    [("gz", gzip.compress), ("gzip", gzip.compress), ("deflate", zlib.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zst", _zstd), ("zstd", _zstd), ("GZ", gzip.compress)],
)  # fmt: skip
def test_extensions_of_compressed_files(folder: Path, extension: str, compress: Callable[[bytes], bytes]) -> None:
    content = compress(GOOD + b"\n")
    (folder / f"a.{extension}").write_bytes(content)
    assert numbers(folder) == [1, 2, 3]
    (folder / f"a.{extension}").write_bytes(content + content)
    assert numbers(folder) == [1, 2, 3] * 2
    for wrong in (content[:-6], content + b"{}\n", GOOD):
        (folder / f"a.{extension}").write_bytes(wrong)
        assert failure(folder).code == "bad-file", wrong


@pytest.mark.parametrize("extension", ["lz4", "snappy", "zip", "tgz", "Z", "br", "7z"])
def test_files_that_look_compressed_are_refused(folder: Path, extension: str) -> None:
    (folder / f"a.{extension}").write_bytes(GOOD)
    error = failure(folder)
    assert f"files with the extension `.{extension.lower()}` look compressed, and are not read" in str(error)
    assert error.code == "bad-file"


def test_a_carriage_return_is_no_line_end(folder: Path) -> None:
    (folder / "a.json").write_bytes(b'{"n":1}\r{"n":2}\r\n{"n":\r3}\n')
    assert numbers(folder) == [1, 3]


@pytest.mark.parametrize("content", [gzip.compress(GOOD * 100)[:-12], GOOD], ids=["cut off", "not compressed"])
def test_a_file_that_contradicts_its_extension_is_refused(folder: Path, content: bytes) -> None:
    (folder / "a.json.gz").write_bytes(content)
    error = failure(folder)
    assert str(error).startswith("error[bad-file]: `in/a.json.gz`: ")
    assert error.diagnostics[0].help == "fix the file, or move it to another folder, and run the same command again"


def test_empty_files_and_byte_order_marks_are_accepted(folder: Path) -> None:
    (folder / "a.json").write_bytes(b"")
    (folder / "b.json").write_bytes(b"\xef\xbb\xbf")
    (folder / "c.json").write_bytes(b"\n \t\r\n\r\n")
    assert numbers(folder) == []
    (folder / "d.json").write_bytes(b"\xef\xbb\xbf" + GOOD)
    assert numbers(folder) == [1, 2, 3]


def test_a_line_of_ten_megabytes_is_read_and_quoted_shortened(folder: Path) -> None:
    text = "x" * 10_000_000
    (folder / "a.json").write_text(f'{{"n":1,"s":"{text}"}}\n{{"n":2,"s":"{text}\n')
    error = failure(folder)
    assert "`in/a.json` line 2: it is not JSON" in str(error)
    assert len(str(error)) < 1000
    (folder / "a.json").write_text(f'{{"n":1,"s":"{text}"}}')
    assert numbers(folder) == [1]


def test_a_string_that_is_too_long_is_reported(folder: Path) -> None:
    """Without a limit, Spark's parser needs several times the string's size in memory."""
    (folder / "a.json").write_bytes(b'{"n":1}\n{"n":2,"s":"' + b"x" * 100_000_000 + b'"}\n')
    error = failure(folder)
    assert str(error).startswith(
        "error[bad-record]: `in/a.json` line 2: it has a string of 100,000,000 characters: at most 20,000,000 are allowed\n"
    )
    assert len(str(error)) < 1000


# --- links ----------------------------------------------------------------------------------------


def test_a_dangling_link_is_skipped(folder: Path) -> None:
    (folder / "a.json").write_bytes(GOOD)
    (folder / "b.json").symlink_to(folder / "gone.json")
    assert numbers(folder) == [1, 2, 3]


def test_a_link_to_another_directory_is_followed(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.json").write_bytes(GOOD)
    (folder / "more").symlink_to(elsewhere)
    assert numbers(folder) == [1, 2, 3]


def test_link_loops_are_refused(folder: Path) -> None:
    """Each row would be read as often as the operating system follows links."""
    (folder / "a.json").write_bytes(GOOD)
    (folder / "again").symlink_to(folder)
    error = failure(folder)
    assert (error.code, error.diagnostics[0].help) == ("link-loop", "move the link to another folder")
    (folder / "again").unlink()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (folder / "there").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(folder)
    assert "in/there/back` leads back" in str(failure(folder))


@pytest.mark.parametrize("name", ["pipe", "below/pipe"])
def test_a_pipe_is_refused(folder: Path, name: str) -> None:
    """Reading it would wait for a writer; Spark would skip it."""
    (folder / "a.json").write_bytes(GOOD)
    (folder / name).parent.mkdir(exist_ok=True)
    os.mkfifo(folder / name)
    error = failure(folder)
    assert str(error).startswith(f"error[bad-file]: table `t`: `in/{name}` is a pipe, a socket or a device, not a file")
    (folder / name).rename((folder / name).with_name(".pipe"))
    assert numbers(folder) == [1, 2, 3]


def test_a_link_to_a_pipe_is_refused(folder: Path) -> None:
    os.mkfifo(folder.parent / "pipe")
    (folder / "a.json").symlink_to(folder.parent / "pipe")
    assert failure(folder).code == "bad-file"


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"a\xff.json", b"\xed\xa0\x80/a.json"], ids=["file", "folder"])
def test_a_name_that_spark_does_not_see_is_refused(folder: Path, name: bytes) -> None:
    (folder / "b.json").write_bytes(GOOD)
    path = os.path.join(os.fsencode(folder), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(GOOD)
    error = failure(folder)
    shown = name.split(b"/")[0].decode("utf-8", "backslashreplace")
    assert str(error).startswith(
        f"error[bad-file-name]: table `t`: the name of `in/{shown}` is not UTF-8, and Spark does not see such files\n"
    )
    assert error.diagnostics[0].help == "rename it"


@pytest.mark.parametrize("below", [b"", b"dt=1/k=2"], ids=["in the folder", "in a folder below"])
def test_a_name_that_arrives_later_is_refused(folder: Path, below: bytes) -> None:
    at = os.path.join(os.fsencode(folder), below)
    os.makedirs(at, exist_ok=True)
    long_ago = 1_000_000_000
    for each in (folder, *folder.rglob("*")):
        os.utime(each, (long_ago, long_ago))
    of = source()
    of.resolve_path(folder.parent, for_spark=True)
    of.check_arrivals(folder.parent)
    with open(os.path.join(at, b"\xff.json"), "wb"):
        pass
    for _ in range(2):
        with pytest.raises(ConnectorError) as caught:
            of.check_arrivals(folder.parent)
        assert caught.value.code == "bad-file-name"
    os.unlink(os.path.join(at, b"\xff.json"))
    of.check_arrivals(folder.parent)


def test_names_of_hidden_files_are_not_checked(folder: Path) -> None:
    (folder / "b.json").write_bytes(GOOD)
    with open(os.path.join(os.fsencode(folder), b".\xff"), "wb"):
        pass
    assert numbers(folder) == [1, 2, 3]


def test_a_colon_in_a_name_is_refused_for_spark_only(folder: Path) -> None:
    (folder / "12:00.json").write_bytes(GOOD)
    assert numbers(folder) == [1, 2, 3]
    with pytest.raises(ConnectorError) as caught:
        source().resolve_path(folder.parent, for_spark=True)
    assert str(caught.value).startswith(
        "error[bad-file-name]: table `t`: `in/12:00.json` has a `:` in its name, and Spark cannot open such files\n"
    )


# --- display ------------------------------------------------------------------------------------


def test_control_characters_are_escaped_in_messages(folder: Path) -> None:
    (folder / "a\x1b[2J\nb.json").write_bytes(b'{"n":"\x1b[31m7"}\n')
    message = str(failure(folder))
    assert "`in/a\\x1b[2J\\nb.json` line 1: field `n` is not an INT: `\\x1b[31m7`" in message
    assert "\x1b" not in message
    assert excerpt("ä€😀 \u202e\ufeff") == "ä€😀 \\u202e\\ufeff"


# --- JSON -----------------------------------------------------------------------------------------


def rows(record: str, **options: str) -> list[list[object]]:
    of = source(**options)
    form = format_of("json", of.table, of.options, "json.")
    return list(form.decoder(record_columns(of.table, Role.SOURCE))(record.encode()))


ARRAYS: list[tuple[str, list[int | None]]] = [
    ('[{"n":1},{"n":2}]', [1, 2]),
    (' [ {"n":1} , {"n":2} ] ', [1, 2]),
    ("[]", []),
    ('[{"n":1},{"m":2}]', [1, None]),
    ('[{"n":1},{"n":"x"},{"n":2}]', [1, None, 2]),
    ('[{"n":1},5,{"n":2}]', []),
    ('[[{"n":1}],{"n":2}]', []),
    ('[{"n":1},null]', []),
    ('["{\\"n\\":1}",{"n":2}]', []),
    ('[{"n":1},{"n":2}', []),
]
"""Records that are arrays, and the rows read from them with `ignore-parse-errors`.

Flink 2.3 reads the same, except where elements are wrong: there it emits some of the other rows.
"""


def test_arrays_of_rows_are_read(folder: Path) -> None:
    for record, expected in ARRAYS:
        (folder / "a.json").write_text(record + "\n")
        assert numbers(folder, json__ignore_parse_errors="true") == expected, record


def test_a_wrong_element_of_an_array_stops_the_job() -> None:
    for record, reason in (
        ('[{"n":1},5]', "it is the number 5, not an object"),
        ('[[{"n":1}]]', "it is an array, not an object"),
        ('[{"n":1},{"n":"x"}]', "field `n` is not an INT: `x`"),
        ('[{"n":1},{"n":2}', "it is not JSON: "),
    ):
        with pytest.raises(BadValue) as caught:
            rows(record)
        assert caught.value.reason.startswith(reason)
    with pytest.raises(BadValue, match="field `s` is missing"):
        rows('[{"n":1,"s":null},{"n":2}]', json__fail_on_missing_field="true")


def test_objects_in_a_string_column_of_an_array_keep_their_json() -> None:
    assert [row[1] for row in rows('[{"s":{"b": [1, 2.50]}},{"s":[ 1 ]},{"s":"[ ]"}]')] == [
        '{"b": [1, 2.50]}',
        "[ 1 ]",
        "[ ]",
    ]


def test_json_that_would_break_the_parser_is_handled() -> None:
    for depth in (900, 5_000, 100_000):
        with pytest.raises(BadValue, match=r"nested too deeply|not an INT"):
            rows('{"n":' + "[" * depth + "]" * depth + "}")
    assert rows('{"s":{"a":' + "9" * 5_000 + "}}")[0][1] == '{"a":' + "9" * 5_000 + "}"
    assert rows('{"s":"\\ud800"}') == [[None, "?"]]
