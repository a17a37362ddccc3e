"""Names and numbers that stand for a sink of a job in a database."""

from __future__ import annotations

import hashlib

from psycopg import sql


def quoted(name: sql.Identifier) -> sql.SQL:
    """A name for a statement with parameters, in which a `%` is written twice."""
    return sql.SQL(name.as_string().replace("%", "%%"))


def hashed(*names: str) -> int:
    """64 bits that stand for names."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8])


def lock_number(*names: str) -> int:
    """The number of an advisory lock: 64 bits with a sign."""
    return hashed(*names) - (1 << 63)
