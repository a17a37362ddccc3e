"""Names and numbers in the database that identify a sink of a job."""

from __future__ import annotations

import hashlib

from psycopg import sql


def quote_name(name: sql.Identifier) -> sql.SQL:
    """Return a name for a statement with parameters: `%` is doubled."""
    return sql.SQL(name.as_string().replace("%", "%%"))


def hash_names(*names: str) -> int:
    """Return a 64-bit hash of names."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8])


def lock_number(*names: str) -> int:
    """Return the number of an advisory lock: 64 bits, signed."""
    return hash_names(*names) - (1 << 63)
