"""Fields of CSV files with line breaks in quotes are the fields that Python's writer was given."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Literal

import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import Role
from everfold.connectors.filesystem import lines
from everfold.connectors.formats import csv_lines
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError
from everfold.types import INT, STRING

QUOTING: tuple[Literal[0, 1, 2], ...] = (csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC)
TEXTS = (
    "",
    "a",
    "ü",
    "\n",
    "a\nb",
    "a\r\nb",
    '"',
    'say "hi"\n',
    "x,y",
    ",\n,",
    '\n"\n',
    "#no\n#comment",
    '""',
    "\n\n",
    "end\r",
)


def read(folder: Path, **options: str) -> list[tuple[object, ...]]:
    of = table("t", n=INT, s=STRING, e=STRING).with_options(
        {"connector": "filesystem", "path": "in.csv", "format": "csv", **options}
    )
    pieces = check_table(of, Role.SOURCE).source().read_local(folder)
    return [tuple(row.values()) for piece in pieces for row in piece.to_pylist()]


@pytest.mark.parametrize("seed", range(20))
def test_written_fields_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    source = random.Random(seed)
    monkeypatch.setattr(lines, "_BLOCK_BYTES", source.choice([1, 7, 64, 1 << 20]))
    rows = [(number, source.choice(TEXTS), source.choice(TEXTS)) for number in range(60)]
    quoting = source.choice(QUOTING)
    end = source.choice(["\n", "\r\n"])
    delimiter, quote = source.choice([(",", '"'), ("|", "'"), (";", '"')])
    with open(tmp_path / "in.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, quotechar=quote, quoting=quoting, lineterminator=end)
        writer.writerows(rows)
    options = {"csv.field-delimiter": delimiter, "csv.quote-character": quote}
    # Without quotes a line cannot end in a carriage return.
    is_bare = quoting == csv.QUOTE_MINIMAL and end == "\n"
    expected = [(n, s, "end" if is_bare and e == "end\r" else e) for n, s, e in rows]
    found = read(tmp_path, **options)
    assert [row for row, want in zip(found, expected, strict=True) if row != want] == []


def test_lines_of_bad_records_have_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('1,"a\nb",c\n2,"d\n\n",e\nx,f,g\n')
    with pytest.raises(ConnectorError, match=r"`in\.csv` line 6: field `n` is not an INT: `x`"):
        read(tmp_path)
    (tmp_path / "in.csv").write_text('1,"a\nb",c\ny,"d\n\n",e\n')
    with pytest.raises(ConnectorError, match=r"`in\.csv` line 3: field `n` is not an INT: `y`"):
        read(tmp_path)


def test_a_quote_that_is_never_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_lines, "_MAX_BYTES", 100)
    good = "".join(f"{number},a,b\n" for number in range(30))
    for text in (f'1,"a,b\n{good}', f'{good}1,a,"b'):
        (tmp_path / "in.csv").write_text(text)
        with pytest.raises(ConnectorError, match="a quote is not closed"):
            read(tmp_path)
        assert len(read(tmp_path, **{"csv.ignore-parse-errors": "true"})) == 30


def test_quotes_within_a_field_are_plain(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('1,5" pipe,a\n2,b"c",d\n3,x"","y\nz"\n')
    assert read(tmp_path) == [(1, '5" pipe', "a"), (2, 'b"c"', "d"), (3, 'x""', "y\nz")]


def test_escaped_quotes(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('1,"a\\"\nb",c\n2,\\",d\n3,"e\\\\","f\n"\n')
    assert read(tmp_path, **{"csv.escape-character": "\\"}) == [(1, 'a"\nb', "c"), (2, '"', "d"), (3, "e\\", "f\n")]


def test_comments_may_have_open_quotes(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('#"open\n1,a,b\n2,"c\n#d",e\n')
    assert read(tmp_path, **{"csv.allow-comments": "true"}) == [(1, "a", "b"), (2, "c\n#d", "e")]
