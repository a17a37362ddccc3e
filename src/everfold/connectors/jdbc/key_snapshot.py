"""Key snapshots: find the rows of a table that a job does not write again after a rewind.

When an epoch of the job begins, a snapshot of the keys of the table is stored. When the job
rewinds, the keys that only the discarded epochs have written are the current keys, except those in
the snapshot of the first discarded epoch; after a rebuild they are all current keys. They are
stored as pending keys in a separate table. The transaction of each batch removes the keys that
it writes or deletes from that table. The keys that remain when the job has caught up were not
written again.

A table does not tell whose rows it has: rows that somebody else has written since count too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from everfold.connectors.jdbc.client import Connection, hash_names, lock_number, quote_name
from everfold.connectors.jdbc.shape import Target
from everfold.connectors.replay import JobLineage

_EXAMPLES = 5
_SNAPSHOT, _PENDING = "noted", "before"
"""The part of a table name for its kind: the keys when an epoch began, and the pending keys."""


@dataclass(frozen=True, slots=True)
class KeySnapshot:
    """The key snapshots of one table that a job writes, with one or several sinks.

    keys: the names of the key columns. schema: the schema that the snapshots are stored in.
    """

    target: Target
    keys: tuple[str, ...]
    schema: str
    past: JobLineage

    @property
    def table(self) -> sql.SQL:
        """The table of the pending keys."""
        return quote_name(self._table_name(_PENDING, self.past.rewind_epoch))

    def begin(self, connection: Connection, commits: sql.SQL, sink: str) -> None:
        """Store the snapshot of the epoch, unless the epoch has written something already.

        Also stores the pending keys if the epoch is a rewind, and drops those of other rewinds and
        the snapshots that no rewind needs.
        """
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(*self._identity),))
            snapshots, others = self._epochs(connection, _SNAPSHOT), self._epochs(connection, _PENDING)
            old = [self._table_name(_PENDING, epoch) for epoch in others if epoch != self.past.rewind_epoch]
            expired = self.past.find_expired_snapshots(snapshots)
            for name in (*old, *(self._table_name(_SNAPSHOT, epoch) for epoch in expired)):
                connection.execute(sql.SQL("DROP TABLE {}").format(quote_name(name)), {})
            snapshots = [epoch for epoch in snapshots if epoch not in expired]
            query = sql.SQL("SELECT 1 FROM {} WHERE job = %s AND sink = %s AND epoch >= %s LIMIT 1").format(commits)
            identity = (self.past.job, sink, self.past.epoch)
            if connection.execute(query, identity).fetchone() is not None:
                return
            if self.past.epoch not in snapshots:
                self._store(connection, snapshots)
            mark = sql.SQL("INSERT INTO {} (job, sink, epoch, batch, rows) VALUES (%s, %s, %s, -1, 0)").format(commits)
            connection.execute(mark, identity)

    def _store(self, connection: Connection, snapshots: Sequence[int]) -> None:
        """Store the snapshot of the current keys, and the pending keys if the epoch is a rewind.

        snapshots: the epochs that have a snapshot.
        """
        all_keys = sql.SQL("CREATE TABLE {} AS SELECT {} FROM {}")
        now = quote_name(self._table_name(_SNAPSHOT, self.past.epoch))
        connection.execute(all_keys.format(now, self._names, self._target), {})
        if self.past.epoch != self.past.rewind_epoch:
            return
        kept = all_keys.format(self.table, self._names, now)
        if self.past.first_discarded_epoch is not None:
            then = [
                self._table_name(_SNAPSHOT, epoch)
                for epoch in sorted(snapshots)
                if epoch >= self.past.first_discarded_epoch
            ]
            if not then or not self._has_columns(connection, then[0]):
                return
            kept += sql.SQL(" EXCEPT SELECT {} FROM {}").format(self._names, quote_name(then[0]))
        connection.execute(kept, {})
        connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(self.table, self._names), {})

    def has_pending(self, connection: Connection) -> bool:
        """Return whether there are pending keys; drop their table if it is empty."""
        if self.past.rewind_epoch is None or not self._has_columns(
            connection, self._table_name(_PENDING, self.past.rewind_epoch)
        ):
            return False
        if connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(self.table), {}).fetchone() is not None:
            return True
        connection.execute(sql.SQL("DROP TABLE {}").format(self.table), {})
        return False

    def remove_written(
        self, connection: Connection, written: sql.Composed, names: Sequence[str], values: Mapping[str, object]
    ) -> None:
        """Remove the keys that a batch writes from the pending keys, in its transaction.

        written: a query for these keys, with the parameters `values`. names: its key columns, in
        the order of `keys`.
        """
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(*self._identity),))
        same = sql.SQL(" AND ").join(
            sql.SQL("b.{} = n.{}").format(quote_name(sql.Identifier(key)), sql.SQL(name))
            for key, name in zip(self.keys, names, strict=True)
        )
        strike = sql.SQL("DELETE FROM {} AS b USING ({}) AS n WHERE {}").format(self.table, written, same)
        connection.execute(strike, values)

    def find_pending(self, connection: Connection) -> tuple[int, list[str]]:
        """Return how many pending keys the target still has, and the first ones as strings."""
        rows = sql.SQL("FROM {} AS b JOIN {} AS t USING ({})").format(self.table, self._target, self._names)
        count = connection.execute(sql.SQL("SELECT count(*) {}").format(rows), {}).fetchone()
        strings = sql.SQL(", ").join(
            sql.SQL("{}::text").format(name) for name in (quote_name(sql.Identifier(key)) for key in self.keys)
        )
        first = sql.SQL("SELECT {} {} ORDER BY {} LIMIT {}").format(strings, rows, self._names, sql.Literal(_EXAMPLES))
        examples = [row[0] if len(row) == 1 else f"({', '.join(row)})" for row in connection.execute(first, {})]
        return (0 if count is None else count[0]), examples

    def prune(self, connection: Connection) -> int:
        """Delete the rows with pending keys; return how many there were."""
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{0} = g.{0}").format(quote_name(sql.Identifier(key))) for key in self.keys
        )
        delete = sql.SQL("WITH g AS (DELETE FROM {} RETURNING *) DELETE FROM {} AS t USING g WHERE {}")
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(*self._identity),))
            return connection.execute(delete.format(self.table, self._target, same), {}).rowcount

    def _epochs(self, connection: Connection, kind: str) -> list[int]:
        """Return the epochs that have a table of that kind."""
        prefix = self._prefix(kind)
        found = connection.execute(
            "SELECT substr(c.relname, length(%s) + 1)::bigint"
            " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND starts_with(c.relname, %s) AND c.relkind = 'r'",
            (prefix, self.schema, prefix),
        )
        return [epoch for (epoch,) in found]

    def _has_columns(self, connection: Connection, table: sql.Identifier) -> bool:
        """Return whether a table of keys exists and has the current key columns."""
        columns = connection.execute(
            "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_catalog.pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (table.as_string(),),
        ).fetchone()
        return columns == (list(self.keys),)

    def _table_name(self, kind: str, epoch: int | None) -> sql.Identifier:
        return sql.Identifier(self.schema, f"{self._prefix(kind)}{epoch}")

    def _prefix(self, kind: str) -> str:
        return f"everfold_{kind}_{hash_names(*self._identity):016x}_"

    @property
    def _identity(self) -> tuple[str, ...]:
        """Identifies the target table within the job."""
        return (self.past.job, self.target.schema, self.target.name)

    @property
    def _target(self) -> sql.SQL:
        return quote_name(sql.Identifier(self.target.schema, self.target.name))

    @property
    def _names(self) -> sql.Composed:
        return sql.SQL(", ").join(quote_name(sql.Identifier(key)) for key in self.keys)
