"""The keys that a table had before: what a job that went back in its input writes no more is found by them.

When a version of the job begins, the keys of the table are noted. When the job goes back, the keys that are there, less those that were noted when the first
version began that it leaves, are those that only what it leaves has written: they are kept in a table of their own, and the transaction of each batch strikes off
those that it writes or deletes. What is left when the job has caught up did not come again.

Whether rows are the job's own, a table does not say: rows that somebody else has written into it since count too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from everfold.connectors.jdbc.client import Connection
from everfold.connectors.jdbc.naming import hashed, lock_number, quoted
from everfold.connectors.jdbc.shape import Target
from everfold.connectors.replay import Past

_SHOWN = 5
_NOTED, _KEPT = "noted", "before"
"""Kinds of tables, in their names: the keys that were there when an epoch began, and of those the ones that have not come again."""


@dataclass(frozen=True, slots=True)
class Before:
    """The keys of before of one table that a job writes, by one sink or by several. keys: the names of their columns. schema: where they are kept."""

    target: Target
    keys: tuple[str, ...]
    schema: str
    past: Past

    @property
    def table(self) -> sql.SQL:
        """Where those are that have not come again."""
        return quoted(self._named(_KEPT, self.past.back))

    def begin(self, connection: Connection, commits: sql.SQL, sink: str) -> None:
        """Notes the keys, if the epoch has written nothing yet, and keeps those that are to come again, if it is one that goes back; those of another one are
        forgotten."""
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(*self._who),))
            noted, others = self._epochs(connection, _NOTED), self._epochs(connection, _KEPT)
            for epoch in others:
                if epoch != self.past.back:
                    connection.execute(sql.SQL("DROP TABLE {}").format(quoted(self._named(_KEPT, epoch))), {})
            begun = sql.SQL("SELECT 1 FROM {} WHERE job = %s AND sink = %s AND epoch >= %s LIMIT 1").format(commits)
            who = (self.past.job, sink, self.past.epoch)
            if connection.execute(begun, who).fetchone() is not None:
                return
            if self.past.epoch not in noted:
                self._note(connection, noted)
            mark = sql.SQL("INSERT INTO {} (job, sink, epoch, batch, rows) VALUES (%s, %s, %s, -1, 0)").format(commits)
            connection.execute(mark, who)

    def _note(self, connection: Connection, noted: Sequence[int]) -> None:
        """Notes the keys that are there, and keeps those that are to come again. noted: the epochs whose beginning was noted."""
        all_keys = sql.SQL("CREATE TABLE {} AS SELECT {} FROM {}")
        now = quoted(self._named(_NOTED, self.past.epoch))
        connection.execute(all_keys.format(now, self._names, self._target), {})
        if self.past.epoch != self.past.back:
            return
        kept = all_keys.format(self.table, self._names, now)
        if self.past.left is not None:
            then = [self._named(_NOTED, epoch) for epoch in sorted(noted) if epoch >= self.past.left]
            if not then or not self._fits(connection, then[0]):
                return
            kept += sql.SQL(" EXCEPT SELECT {} FROM {}").format(self._names, quoted(then[0]))
        connection.execute(kept, {})
        connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(self.table, self._names), {})

    def there(self, connection: Connection) -> bool:
        """Whether some are left; a table without any is removed."""
        if self.past.back is None or not self._fits(connection, self._named(_KEPT, self.past.back)):
            return False
        if connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(self.table), {}).fetchone() is not None:
            return True
        connection.execute(sql.SQL("DROP TABLE {}").format(self.table), {})
        return False

    def strike(
        self, connection: Connection, come: sql.Composed, names: Sequence[str], values: Mapping[str, object]
    ) -> None:
        """Takes keys off that have come: those of a query, whose columns `names` are the keys in their order. In a transaction that writes them."""
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(*self._who),))
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
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(*self._who),))
            return connection.execute(delete.format(self.table, self._target, same), {}).rowcount

    def _epochs(self, connection: Connection, kind: str) -> list[int]:
        """Of which epochs there are such tables."""
        prefix = self._prefix(kind)
        found = connection.execute(
            "SELECT substr(c.relname, length(%s) + 1)::bigint FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND starts_with(c.relname, %s) AND c.relkind = 'r'",
            (prefix, self.schema, prefix),
        )
        return [epoch for (epoch,) in found]

    def _fits(self, connection: Connection, table: sql.Identifier) -> bool:
        """Whether a table of keys is there, and its keys are those of now."""
        columns = connection.execute(
            "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_catalog.pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (table.as_string(),),
        ).fetchone()
        return columns == (list(self.keys),)

    def _named(self, kind: str, epoch: int | None) -> sql.Identifier:
        return sql.Identifier(self.schema, f"{self._prefix(kind)}{epoch}")

    def _prefix(self, kind: str) -> str:
        return f"everfold_{kind}_{hashed(*self._who):016x}_"

    @property
    def _who(self) -> tuple[str, ...]:
        """Stands for the table as this job's."""
        return (self.past.job, self.target.schema, self.target.name)

    @property
    def _target(self) -> sql.SQL:
        return quoted(sql.Identifier(self.target.schema, self.target.name))

    @property
    def _names(self) -> sql.Composed:
        return sql.SQL(", ").join(quoted(sql.Identifier(key)) for key in self.keys)
