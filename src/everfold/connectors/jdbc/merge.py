"""From the staging table into the target: one transaction, which records the batch it took.

`everfold_commits` says which batches of which job and sink are in. It is written in the same transaction as their rows, so a batch
that comes again is known, and one that was not finished is not there at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from everfold.connectors.applied import is_applied
from everfold.connectors.connector_errors import trouble
from everfold.connectors.contract import Applied, BatchId
from everfold.connectors.jdbc.client import Connection
from everfold.connectors.jdbc.key_snapshot import Before
from everfold.connectors.jdbc.naming import hashed, lock_number, quoted
from everfold.connectors.jdbc.shape import Target, TargetColumn
from everfold.connectors.jdbc.staging import COLUMNS, Report
from everfold.plan.changelog import RowKind
from everfold.types import physical

COMMITS = "everfold_commits"
_ADDED = ("digest", "query", "folder")
"""Columns, all `text`, that `everfold_commits` did not have from the beginning."""
_KEPT_BATCHES = 50
_BACK = sql.SQL(f"({RowKind.UPDATE_BEFORE.value}, {RowKind.DELETE.value})")


@dataclass(frozen=True, slots=True)
class Merge:
    """How the batches of one sink of one job get into the target.

    columns: of the target, in the order of the sink's rows. keys: which of these, by position, are the PRIMARY KEY; none: rows are
    only added. schema: where `everfold_commits` and the staging table lie. before: the keys that the target had when the job went back.
    query, folder: a hash of what is written, and the folder of the job, for other jobs that write the same.
    """

    target: Target
    columns: tuple[TargetColumn, ...]
    keys: tuple[int, ...]
    schema: str
    job: str
    sink: str
    before: Before | None = None
    query: str = ""
    folder: str = ""

    @property
    def staging(self) -> sql.Identifier:
        """The staging table."""
        return sql.Identifier(self.schema, f"everfold_staging_{hashed(self.job, self.sink):016x}")

    @property
    def _staging(self) -> sql.SQL:
        return quoted(self.staging)

    @property
    def commits(self) -> sql.SQL:
        """Which batches are in."""
        return quoted(sql.Identifier(self.schema, COMMITS))

    def prepare(self, connection: Connection) -> None:
        """Makes the tables; what an earlier run left in the staging table is of no use to anybody."""
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(COMMITS),))
            if not self._has_commits(connection):
                connection.execute(
                    sql.SQL(
                        "CREATE TABLE IF NOT EXISTS {} (job text NOT NULL, sink text NOT NULL, epoch bigint NOT NULL, batch bigint NOT NULL,"
                        " rows bigint NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, sink, epoch, batch))"
                    ).format(self.commits),
                    {},
                )
            for column in self._missing(connection):
                add = sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} text")
                connection.execute(add.format(self.commits, sql.Identifier(column)), {})
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._staging), {})
            own = [sql.SQL(f"{name} {of} NOT NULL") for name, of in COLUMNS]
            theirs = [
                sql.SQL(f"{physical(at)} {column.shown.replace('%', '%%')}{' NOT NULL' if at in self.keys else ''}")
                for at, column in enumerate(self.columns)
            ]
            connection.execute(
                sql.SQL("CREATE TABLE {} ({})").format(self._staging, sql.SQL(", ").join([*own, *theirs])), {}
            )

    def finish(self, connection: Connection) -> None:
        """Removes the staging table."""
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._staging), {})

    def applied(self, connection: Connection, batch: BatchId) -> bool:
        """Return whether the target has the batch. Raises StateError `sink-taken-over`, `sink-ahead`."""
        return is_applied(self.target.name, batch, self.last_applied(connection))

    def last_applied(self, connection: Connection) -> Applied | None:
        """Return the last batch of the job and sink that the target has, None for none."""
        if not self._has_commits(connection):
            return None
        newest = sql.SQL(
            "SELECT epoch, batch, to_jsonb(c) ->> 'digest' FROM {} AS c WHERE job = %s AND sink = %s ORDER BY epoch DESC, batch DESC LIMIT 1"
        )
        found = connection.execute(newest.format(self.commits), (self.job, self.sink)).fetchone()
        return None if found is None else Applied(found[0], found[1], found[2] or "")

    def written_by_others(self, connection: Connection) -> str | None:
        """Return the folder of another job that has added rows of the same query to the target, None for none and if the target is empty."""
        if not self.query or not self._has_commits(connection) or self._missing(connection):
            return None
        other = sql.SQL("SELECT folder FROM {} WHERE query = %s AND job <> %s AND rows > 0 ORDER BY at DESC LIMIT 1")
        found = connection.execute(other.format(self.commits), (self._query, self.job)).fetchone()
        if (
            found is None
            or connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(self._name), {}).fetchone() is None
        ):
            return None
        return str(found[0])

    def _has_commits(self, connection: Connection) -> bool:
        name = sql.Identifier(self.schema, COMMITS).as_string()
        return connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone() == (True,)

    def _missing(self, connection: Connection) -> list[str]:
        """Return the columns that `everfold_commits` lacks, as one that an earlier version made."""
        there = connection.execute(
            "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (sql.Identifier(self.schema, COMMITS).as_string(),),
        )
        names = {name for (name,) in there}
        return [column for column in _ADDED if column not in names]

    @property
    def _query(self) -> str | None:
        """The hash of what is written, together with the target."""
        return f"{hashed(self.query, self.target.schema, self.target.name):016x}" if self.query else None

    def take(self, connection: Connection, batch: BatchId, reports: Sequence[Report]) -> None:
        """Takes what the reports speak of, unless the batch is in: all of it, or after an error nothing."""
        with connection.transaction():
            # Two drivers of one job, one of them thought dead, go one after the other.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(self.job, self.sink),))
            if self.applied(connection, batch):
                return
            rows = sum(report.came for report in reports)
            record = sql.SQL(
                "INSERT INTO {} (job, sink, epoch, batch, rows, digest, query, folder) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
            )
            identity = (self.job, self.sink, batch.epoch, batch.batch)
            added = (batch.digest or None, self._query, self.folder or None)
            connection.execute(record.format(self.commits), (*identity, rows, *added))
            self._verify(connection, batch, reports)
            if not self.keys:
                self._add(connection, batch, reports)
            else:
                if self.before is not None:
                    names = [physical(at) for at in self.keys]
                    self.before.strike(connection, self._net, names, _wanted(batch, reports))
                if any(report.back for report in reports):
                    self._delete(connection, batch, reports)
                self._upsert(connection, batch, reports)
            connection.execute(sql.SQL("TRUNCATE {}").format(self._staging), {})
            old = sql.SQL("DELETE FROM {} WHERE job = %s AND sink = %s AND (epoch < %s OR batch <= %s)")
            newest = (self.job, self.sink, batch.epoch, batch.batch - _KEPT_BATCHES)
            connection.execute(old.format(self.commits), newest)

    # -- the parts of the transaction ----------------------------------------------------------------------------------

    def _verify(self, connection: Connection, batch: BatchId, reports: Sequence[Report]) -> None:
        """Nobody may have removed staged rows: the batch would be marked as written without them."""
        found = connection.execute(
            sql.SQL("SELECT count(*) FROM ({}) AS staged").format(self._staged), _wanted(batch, reports)
        ).fetchone()
        if found != (sum(report.staged for report in reports),):
            raise trouble(
                "staging-lost",
                f"table `{self.target.name}`: rows of the staging table {self.staging.as_string()} are gone",
                help="start again: the batch is written anew",
            )

    @property
    def _staged(self) -> sql.Composed:
        """The rows of the attempts that count."""
        return sql.SQL(
            "SELECT s.* FROM {} AS s JOIN unnest(%(parts)s::int[], %(attempts)s::bigint[]) AS w (part, attempt)"
            " ON s.part = w.part AND s.attempt = w.attempt WHERE s.epoch = %(epoch)s AND s.batch = %(batch)s"
        ).format(self._staging)

    @property
    def _net(self) -> sql.Composed:
        """One row a key: in each part the last, and of several parts' one that comes before one that is taken back."""
        keys = sql.SQL(", ").join(sql.SQL(physical(at)) for at in self.keys)
        return sql.SQL(
            "SELECT DISTINCT ON ({keys}) * FROM (SELECT DISTINCT ON ({keys}, part) * FROM ({staged}) AS staged ORDER BY {keys}, part, seq DESC)"
            " AS last ORDER BY {keys}, kind IN {back}, part DESC"
        ).format(keys=keys, staged=self._staged, back=_BACK)

    def _add(self, connection: Connection, batch: BatchId, reports: Sequence[Report]) -> None:
        values = sql.SQL("SELECT {} FROM ({}) AS staged ORDER BY part, seq").format(self._values, self._staged)
        connection.execute(
            sql.SQL("INSERT INTO {} ({}) {}").format(self._name, self._names, values), _wanted(batch, reports)
        )

    def _delete(self, connection: Connection, batch: BatchId, reports: Sequence[Report]) -> None:
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{} = n.{}").format(quoted(sql.Identifier(self.columns[at].name)), sql.SQL(physical(at)))
            for at in self.keys
        )
        delete = sql.SQL("DELETE FROM {} AS t USING ({}) AS n WHERE n.kind IN {} AND {}")
        connection.execute(delete.format(self._name, self._net, _BACK, same), _wanted(batch, reports))

    def _upsert(self, connection: Connection, batch: BatchId, reports: Sequence[Report]) -> None:
        keys = sql.SQL(", ").join(quoted(sql.Identifier(self.columns[at].name)) for at in self.keys)
        others = [quoted(sql.Identifier(of.name)) for at, of in enumerate(self.columns) if at not in self.keys]
        changed = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others)
        action = sql.SQL("UPDATE SET {}").format(changed) if others else sql.SQL("NOTHING")
        values = sql.SQL("SELECT {} FROM ({}) AS n WHERE n.kind NOT IN {}").format(self._values, self._net, _BACK)
        upsert = sql.SQL("INSERT INTO {} ({}) {} ON CONFLICT ({}) DO {}")
        connection.execute(upsert.format(self._name, self._names, values, keys, action), _wanted(batch, reports))

    @property
    def _name(self) -> sql.SQL:
        return quoted(sql.Identifier(self.target.schema, self.target.name))

    @property
    def _names(self) -> sql.Composed:
        return sql.SQL(", ").join(quoted(sql.Identifier(column.name)) for column in self.columns)

    @property
    def _values(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.SQL(physical(at)) for at in range(len(self.columns)))


def _wanted(batch: BatchId, reports: Sequence[Report]) -> dict[str, object]:
    return {
        "epoch": batch.epoch,
        "batch": batch.batch,
        "parts": [report.part for report in reports],
        "attempts": [report.attempt for report in reports],
    }
