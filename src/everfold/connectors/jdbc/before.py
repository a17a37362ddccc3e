"""The keys that a table had when its job began anew, less those that have come again: at the end, the keys that the job writes no more.

They are kept in a table beside the target, which the transaction of each batch looks at. Whether rows are the job's own, a table does not say: rows that
somebody else has written into it count too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from everfold.connectors.jdbc.client import Connection
from everfold.connectors.jdbc.naming import hashed, lock_number, quoted
from everfold.connectors.jdbc.shape import Target

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Before:
    """The keys of before of one sink of one job. keys: the names of their columns. schema: where they are kept. origin: the epoch in which the job began anew."""

    target: Target
    keys: tuple[str, ...]
    schema: str
    job: str
    sink: str
    origin: int

    @property
    def table(self) -> sql.SQL:
        """Where they are kept."""
        return quoted(sql.Identifier(self.schema, f"{self._prefix}{self.origin}"))

    @property
    def _prefix(self) -> str:
        return f"everfold_before_{hashed(self.job, self.sink):016x}_"

    def begin(self, connection: Connection, commits: sql.SQL, epoch: int) -> None:
        """Writes the keys down, if the job begins anew in this epoch and has written nothing yet; those of another beginning are forgotten."""
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(self.job, self.sink),))
            self._forget_others(connection)
            begun = sql.SQL("SELECT 1 FROM {} WHERE job = %s AND sink = %s AND epoch >= %s LIMIT 1").format(commits)
            who = (self.job, self.sink, self.origin)
            if not self.origin or epoch != self.origin or connection.execute(begun, who).fetchone() is not None:
                return
            connection.execute(
                sql.SQL("CREATE TABLE {} AS SELECT {} FROM {}").format(self.table, self._names, self._target), {}
            )
            connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(self.table, self._names), {})
            mark = sql.SQL("INSERT INTO {} (job, sink, epoch, batch, rows) VALUES (%s, %s, %s, -1, 0)").format(commits)
            connection.execute(mark, who)

    def there(self, connection: Connection) -> bool:
        """Whether some are left; a table without any is removed."""
        columns = connection.execute(
            "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_catalog.pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (sql.Identifier(self.schema, f"{self._prefix}{self.origin}").as_string(),),
        ).fetchone()
        if columns != (list(self.keys),):
            return False
        if connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(self.table), {}).fetchone() is not None:
            return True
        connection.execute(sql.SQL("DROP TABLE {}").format(self.table), {})
        return False

    def strike(
        self, connection: Connection, come: sql.Composed, names: Sequence[str], values: Mapping[str, object]
    ) -> None:
        """Takes keys off that have come: those of a query, whose columns `names` are the keys in their order."""
        same = sql.SQL(" AND ").join(
            sql.SQL("b.{} = n.{}").format(quoted(sql.Identifier(key)), sql.SQL(name))
            for key, name in zip(self.keys, names, strict=True)
        )
        strike = sql.SQL("DELETE FROM {} AS b USING ({}) AS n WHERE {}").format(self.table, come, same)
        connection.execute(strike, values)

    def left(self, connection: Connection) -> tuple[int, list[str]]:
        """How many of them the table has still, and the first ones as texts."""
        rows = sql.SQL("FROM {} AS b JOIN {} AS t USING ({})").format(self.table, self._target, self._names)
        count = connection.execute(sql.SQL("SELECT count(*) {}").format(rows), {}).fetchone()
        texts = sql.SQL(", ").join(
            sql.SQL("{}::text").format(name) for name in (quoted(sql.Identifier(key)) for key in self.keys)
        )
        first = sql.SQL("SELECT {} {} ORDER BY {} LIMIT {}").format(texts, rows, self._names, sql.Literal(_SHOWN))
        shown = [row[0] if len(row) == 1 else f"({', '.join(row)})" for row in connection.execute(first, {})]
        return (0 if count is None else count[0]), shown

    def prune(self, connection: Connection) -> int:
        """Deletes their rows; how many there were."""
        same = sql.SQL(" AND ").join(sql.SQL("t.{0} = g.{0}").format(quoted(sql.Identifier(key))) for key in self.keys)
        delete = sql.SQL("WITH g AS (DELETE FROM {} RETURNING *) DELETE FROM {} AS t USING g WHERE {}")
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(self.job, self.sink),))
            return connection.execute(delete.format(self.table, self._target, same), {}).rowcount

    def _forget_others(self, connection: Connection) -> None:
        others = connection.execute(
            "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND starts_with(c.relname, %s) AND c.relkind = 'r' AND c.relname <> %s",
            (self.schema, self._prefix, f"{self._prefix}{self.origin}"),
        ).fetchall()
        for (name,) in others:
            connection.execute(sql.SQL("DROP TABLE {}").format(quoted(sql.Identifier(self.schema, name))), {})

    @property
    def _target(self) -> sql.SQL:
        return quoted(sql.Identifier(self.target.schema, self.target.name))

    @property
    def _names(self) -> sql.Composed:
        return sql.SQL(", ").join(quoted(sql.Identifier(key)) for key in self.keys)
