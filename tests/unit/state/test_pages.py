"""Pages: the encoding of rows and heads, and the detection of damage."""

from __future__ import annotations

import zlib
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from everfold.errors import StateError
from everfold.state.pages import decode, decode_head, encode, encode_head, encode_pages

GOLDEN = Path(__file__).parents[2] / "golden" / "state"
ROWS = pl.DataFrame(
    {
        "key Bid.item": ["a", "é", None],
        "SUM(Bid.price)|sum": pl.Series([Decimal("1.50"), Decimal("-0.01"), None], dtype=pl.Decimal(38, 2)),
        "SUM(Bid.price)|nonnull": [1, 2, 0],
        "MAX(Bid.at)|value": pl.Series([datetime(2020, 4, 15, 8, 5), None, None], dtype=pl.Datetime("us")),
        "MAX(Bid.seen)|value": pl.Series([datetime(2020, 4, 15, tzinfo=UTC)] * 3, dtype=pl.Datetime("us", "UTC")),
        "MIN(Bid.day)|value": [date(2020, 4, 15), None, None],
        "MIN(Bid.ok)|value": [True, False, None],
        "MAX(Bid.f)|value": pl.Series([1.5, float("inf"), None], dtype=pl.Float32),
        "column tags": [["x"], [], None],
        "column row": [{"x": 1, "y": "q"}, None, {"x": None, "y": None}],
        "column raw": [b"\x00\xff", b"", None],
    }
)
HEAD = {"clock": {"watermark": 1, "splits": {"Bid": [1, 2]}, "closed": 0, "now": 2}, "late": 3}


def test_rows_are_decoded_unchanged() -> None:
    assert decode(encode(ROWS)).equals(ROWS)
    assert decode(encode(ROWS)).schema == ROWS.schema
    assert decode(encode(ROWS.clear())).schema == ROWS.schema
    assert decode(bytearray(encode(ROWS))).equals(ROWS)


def test_a_head_is_decoded_unchanged() -> None:
    assert decode_head(encode_head(HEAD)) == HEAD


def test_pages_of_the_first_format_are_readable() -> None:
    assert decode((GOLDEN / "rows-v1.page").read_bytes()).equals(ROWS)
    assert decode((GOLDEN / "rows-v1-lz4.page").read_bytes()).equals(ROWS[1:])
    assert decode_head((GOLDEN / "head-v1.page").read_bytes()) == HEAD


def test_rows_are_cut_into_compressed_pages() -> None:
    assert [(decode(blob).rows(), count) for blob, count in encode_pages(ROWS, 2)] == [
        (ROWS[:2].rows(), 2),
        (ROWS[2:].rows(), 1),
    ]
    repeated = pl.concat([ROWS] * 1000)
    (one, rows), *_ = encode_pages(repeated, 2000)
    assert rows == 2000
    assert len(one) < len(encode(repeated[:2000])) / 5


def test_pages_are_plain_arrow_after_their_header() -> None:
    import pyarrow as pa

    blob = encode(ROWS)
    assert blob[:4] == b"EFPG"
    assert int.from_bytes(blob[16:20], "little") == zlib.crc32(blob[20:])
    assert pa.ipc.open_stream(blob[20:]).read_all().num_rows == 3


@pytest.mark.parametrize("position", [0, 4, 5, 9, 17, 20, 200, -1])
def test_a_changed_byte_is_detected(position: int) -> None:
    blob = bytearray(encode(ROWS))
    blob[position] ^= 0x40
    with pytest.raises(StateError, match="damaged-page"):
        decode(bytes(blob))


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        (b"", "0 bytes"),
        (encode(ROWS)[:-1], "bytes after its header"),
        (encode(ROWS) + b"x", "bytes after its header"),
        (encode_head(HEAD), "kind"),
        (b"x" * 40, "does not start"),
        (encode(ROWS)[:4] + b"\x09" + encode(ROWS)[5:], "version 9"),
    ],
)
def test_damaged_pages_are_reported(blob: bytes, words: str) -> None:
    with pytest.raises(StateError, match=words) as caught:
        decode(blob)
    assert caught.value.code == "damaged-page"


def test_a_head_that_is_not_json_is_damaged() -> None:
    from everfold.state import pages

    for body in (b"{", b"[]", b"\xff"):
        with pytest.raises(StateError, match="damaged-page"):
            decode_head(pages._seal_page(b"H", body))
    with pytest.raises(StateError, match="cannot be read"):
        decode(pages._seal_page(b"R", b"no arrow"))
