"""Values as PostgreSQL's COPY writes them."""

from __future__ import annotations

import pytest

from everfold.connectors.jdbc.values import from_csv
from everfold.types import BYTES, INT, STRING


def test_a_value_of_some_megabytes_is_read() -> None:
    text = "x" * 3_000_000
    rows = from_csv(f'1,"{text}",{text.encode().hex()}\n2,"",\n'.encode(), [INT, STRING, BYTES], ["a", "b", "c"])
    assert rows.to_pylist() == [{"c0": 1, "c1": text, "c2": text.encode()}, {"c0": 2, "c1": "", "c2": None}]


def test_an_error_names_the_column() -> None:
    with pytest.raises(ValueError, match=r"column `price`: .*many"):
        from_csv(b'1,"x"\nmany,"y"\n', [INT, STRING], ["price", "name"])
