"""Merge the staging table into the target, in one transaction that also records the batch.

`everfold_commits` lists the applied batches of each job and sink. It is written in the same
transaction as their rows, so a replayed batch is recognized, and an unfinished batch leaves
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from everfold.connectors.applied import is_applied
from everfold.connectors.contract import AppliedBatch, BatchId
from everfold.connectors.jdbc.client import Connection, hash_names, lock_number, quote_name
from everfold.connectors.jdbc.key_snapshot import KeySnapshot
from everfold.connectors.jdbc.shape import Target, TargetColumn
from everfold.connectors.jdbc.staging import COLUMNS, Report
from everfold.errors import ConnectorError
from everfold.plan.changelog import RETRACTIONS
from everfold.types import physical_name

COMMITS = "everfold_commits"
_ADDED_COLUMNS = ("digest", "query", "folder")
"""Columns, all `text`, that the first version of `everfold_commits` did not have."""
_KEPT_BATCHES = 50
_RETRACT_KINDS = sql.SQL("({}, {})".format(*RETRACTIONS))


@dataclass(frozen=True, slots=True)
class Merge:
    """Merges the batches of one sink of one job into the target.

    columns: of the target, in the order of the sink's rows. keys: the positions of the PRIMARY KEY
    columns; empty: rows are only added. schema: the schema of `everfold_commits` and the staging
    table. key_snapshot: the key snapshot to update after a rewind. query, folder: a hash of the
    query and the job directory, by which other jobs recognize that they write the same.
    """

    target: Target
    columns: tuple[TargetColumn, ...]
    keys: tuple[int, ...]
    schema: str
    job: str
    sink: str
    key_snapshot: KeySnapshot | None = None
    query: str = ""
    folder: str = ""

    @property
    def staging(self) -> sql.Identifier:
        """The staging table."""
        return sql.Identifier(self.schema, f"everfold_staging_{hash_names(self.job, self.sink):016x}")

    @property
    def _staging(self) -> sql.SQL:
        return quote_name(self.staging)

    @property
    def commits(self) -> sql.SQL:
        """The table of applied batches."""
        return quote_name(sql.Identifier(self.schema, COMMITS))

    def prepare(self, connection: Connection) -> None:
        """Create the tables; discard what an earlier run left in the staging table."""
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(COMMITS),))
            if not self._has_commits(connection):
                connection.execute(
                    sql.SQL(
                        "CREATE TABLE IF NOT EXISTS {} (job text NOT NULL, sink text NOT NULL, epoch bigint NOT NULL,"
                        " batch bigint NOT NULL, rows bigint NOT NULL, at timestamptz NOT NULL DEFAULT now(),"
                        " PRIMARY KEY (job, sink, epoch, batch))"
                    ).format(self.commits),
                    {},
                )
            for column in self._missing_columns(connection):
                add = sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} text")
                connection.execute(add.format(self.commits, sql.Identifier(column)), {})
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._staging), {})
            own_columns = [sql.SQL(f"{name} {of} NOT NULL") for name, of in COLUMNS]
            row_columns = [
                sql.SQL(
                    f"{physical_name(at)} {column.sql_type.replace('%', '%%')}{' NOT NULL' if at in self.keys else ''}"
                )
                for at, column in enumerate(self.columns)
            ]
            connection.execute(
                sql.SQL("CREATE TABLE {} ({})").format(self._staging, sql.SQL(", ").join([*own_columns, *row_columns])),
                {},
            )

    def finish(self, connection: Connection) -> None:
        """Drop the staging table."""
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._staging), {})

    def has_applied(self, connection: Connection, batch: BatchId) -> bool:
        """Return whether the target has the batch.

        Raises StateError `sink-taken-over`, `sink-ahead`.
        """
        return is_applied(self.target.name, batch, self.last_applied(connection))

    def last_applied(self, connection: Connection) -> AppliedBatch | None:
        """Return the last batch of the job and sink that the target has, None for none."""
        if not self._has_commits(connection):
            return None
        newest = sql.SQL(
            "SELECT epoch, batch, to_jsonb(c) ->> 'digest' FROM {} AS c WHERE job = %s AND sink = %s"
            " ORDER BY epoch DESC, batch DESC LIMIT 1"
        )
        found = connection.execute(newest.format(self.commits), (self.job, self.sink)).fetchone()
        return None if found is None else AppliedBatch(found[0], found[1], found[2] or "")

    def written_by_others(self, connection: Connection) -> str | None:
        """Return the folder of another job that has added rows of the same query to the target.

        None if there is no such job, or the target is empty.
        """
        if not self.query or not self._has_commits(connection) or self._missing_columns(connection):
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

    def _missing_columns(self, connection: Connection) -> list[str]:
        """Return the columns that an `everfold_commits` of an earlier version lacks."""
        rows = connection.execute(
            "SELECT attname FROM pg_catalog.pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (sql.Identifier(self.schema, COMMITS).as_string(),),
        )
        names = {name for (name,) in rows}
        return [column for column in _ADDED_COLUMNS if column not in names]

    @property
    def _query(self) -> str | None:
        """The hash of the query and the target."""
        return f"{hash_names(self.query, self.target.schema, self.target.name):016x}" if self.query else None

    def apply(self, connection: Connection, batch: BatchId, reports: Sequence[Report]) -> None:
        """Merge the staged rows of the reports, unless the target has the batch.

        After an error the target is unchanged.
        """
        with connection.transaction():
            # If a driver that was believed dead still runs, the two run one after the other.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(self.job, self.sink),))
            if self.has_applied(connection, batch):
                return
            rows = sum(report.came for report in reports)
            record = sql.SQL(
                "INSERT INTO {} (job, sink, epoch, batch, rows, digest, query, folder)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
            )
            identity = (self.job, self.sink, batch.epoch, batch.batch)
            added = (batch.digest or None, self._query, self.folder or None)
            connection.execute(record.format(self.commits), (*identity, rows, *added))
            self._verify(connection, batch, reports)
            if not self.keys:
                self._add(connection, batch, reports)
            else:
                if self.key_snapshot is not None:
                    names = [physical_name(at) for at in self.keys]
                    self.key_snapshot.remove_written(connection, self._net, names, _parameters(batch, reports))
                if any(report.back for report in reports):
                    self._delete(connection, batch, reports)
                self._upsert(connection, batch, reports)
            connection.execute(sql.SQL("TRUNCATE {}").format(self._staging), {})
            old = sql.SQL("DELETE FROM {} WHERE job = %s AND sink = %s AND (epoch < %s OR batch <= %s)")
            newest = (self.job, self.sink, batch.epoch, batch.batch - _KEPT_BATCHES)
            connection.execute(old.format(self.commits), newest)

    # -- the parts of the transaction --------------------------------------------------------------

    def _verify(self, connection: Connection, batch: BatchId, reports: Sequence[Report]) -> None:
        """Check that no staged rows have been removed, or the batch would be recorded without them.

        Raises ConnectorError `staging-lost`.
        """
        found = connection.execute(
            sql.SQL("SELECT count(*) FROM ({}) AS staged").format(self._staged), _parameters(batch, reports)
        ).fetchone()
        if found != (sum(report.staged for report in reports),):
            raise ConnectorError.of(
                "staging-lost",
                f"table `{self.target.name}`: rows of the staging table {self.staging.as_string()} are missing",
                help="run the same command again: the batch is written again",
            )

    @property
    def _staged(self) -> sql.Composed:
        """The rows of the successful attempts."""
        return sql.SQL(
            "SELECT s.* FROM {} AS s JOIN unnest(%(parts)s::int[], %(attempts)s::bigint[]) AS w (part, attempt)"
            " ON s.part = w.part AND s.attempt = w.attempt WHERE s.epoch = %(epoch)s AND s.batch = %(batch)s"
        ).format(self._staging)

    @property
    def _net(self) -> sql.Composed:
        """One row per key: the last of each part; of several parts, preferably an added row."""
        keys = sql.SQL(", ").join(sql.SQL(physical_name(at)) for at in self.keys)
        return sql.SQL(
            "SELECT DISTINCT ON ({keys}) * FROM (SELECT DISTINCT ON ({keys}, part) * FROM ({staged}) AS staged"
            " ORDER BY {keys}, part, seq DESC) AS last ORDER BY {keys}, kind IN {back}, part DESC"
        ).format(keys=keys, staged=self._staged, back=_RETRACT_KINDS)

    def _add(self, connection: Connection, batch: BatchId, reports: Sequence[Report]) -> None:
        values = sql.SQL("SELECT {} FROM ({}) AS staged ORDER BY part, seq").format(self._values, self._staged)
        connection.execute(
            sql.SQL("INSERT INTO {} ({}) {}").format(self._name, self._names, values), _parameters(batch, reports)
        )

    def _delete(self, connection: Connection, batch: BatchId, reports: Sequence[Report]) -> None:
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{} = n.{}").format(quote_name(sql.Identifier(self.columns[at].name)), sql.SQL(physical_name(at)))
            for at in self.keys
        )
        delete = sql.SQL("DELETE FROM {} AS t USING ({}) AS n WHERE n.kind IN {} AND {}")
        connection.execute(delete.format(self._name, self._net, _RETRACT_KINDS, same), _parameters(batch, reports))

    def _upsert(self, connection: Connection, batch: BatchId, reports: Sequence[Report]) -> None:
        keys = sql.SQL(", ").join(quote_name(sql.Identifier(self.columns[at].name)) for at in self.keys)
        others = [quote_name(sql.Identifier(of.name)) for at, of in enumerate(self.columns) if at not in self.keys]
        changed = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others)
        action = sql.SQL("UPDATE SET {}").format(changed) if others else sql.SQL("NOTHING")
        values = sql.SQL("SELECT {} FROM ({}) AS n WHERE n.kind NOT IN {}").format(
            self._values, self._net, _RETRACT_KINDS
        )
        upsert = sql.SQL("INSERT INTO {} ({}) {} ON CONFLICT ({}) DO {}")
        connection.execute(upsert.format(self._name, self._names, values, keys, action), _parameters(batch, reports))

    @property
    def _name(self) -> sql.SQL:
        return quote_name(sql.Identifier(self.target.schema, self.target.name))

    @property
    def _names(self) -> sql.Composed:
        return sql.SQL(", ").join(quote_name(sql.Identifier(column.name)) for column in self.columns)

    @property
    def _values(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.SQL(physical_name(at)) for at in range(len(self.columns)))


def _parameters(batch: BatchId, reports: Sequence[Report]) -> dict[str, object]:
    return {
        "epoch": batch.epoch,
        "batch": batch.batch,
        "parts": [report.part for report in reports],
        "attempts": [report.attempt for report in reports],
    }
