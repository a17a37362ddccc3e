"""Find tables that lack batches which the job has written to them, and what a user can do.

A database that is restored from an older dump, or fails over to a standby that lags, holds fewer
batches than the checkpoint counts. The rows of the batches between would be missing forever.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from everfold.checkpoint.logs import has_finished, last_finished_batch
from everfold.connectors.contract import AppliedBatch, ReplayEffect
from everfold.errors import StateError
from everfold.jobs.applied_batches import AppliedBatches, Number
from everfold.jobs.changed_tables import ChangedTable, behind_sink, select_answers
from everfold.jobs.foreach_batch import Target
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest
from everfold.jobs.readiness import check_may_change
from everfold.jobs.rewind import Consent, NewSink
from everfold.operators.reemit import can_reemit
from everfold.plan.nodes import Root, StatefulNode
from everfold.plan.walk import last_operators


@dataclass(frozen=True, slots=True)
class BehindSink:
    """A sink that lacks batches.

    name: the name that it has or had in the job. held: the last batch that its table holds, None if
    the table has no record of the job. written: the last batch that the job has written to it.
    """

    target: Target
    name: str
    operators: Sequence[StatefulNode]
    held: AppliedBatch | None
    written: Number

    @property
    def table(self) -> str:
        """The name of the table."""
        return self.target.sink.table.name


class BehindSinkError(StateError):
    """A user must decide about tables that lack batches. behind: the tables."""

    behind: Sequence[ChangedTable] = ()

    @classmethod
    def about(cls, tables: Sequence[ChangedTable]) -> BehindSinkError:
        """Return the error `sink-behind` for tables."""
        error = cls(*(table.diagnostic for table in tables))
        error.behind = tables
        return error


@dataclass(frozen=True, slots=True)
class BehindSinks:
    """All sinks of a job that lack batches. manifest: the one in place."""

    job_dir: JobDir
    manifest: Manifest
    applied: AppliedBatches
    sinks: Sequence[BehindSink]

    @classmethod
    def find(cls, job_dir: JobDir, manifest: Manifest, roots: Sequence[Root], targets: Sequence[Target]) -> BehindSinks:
        """Compare the tables of a job with the record in its directory.

        manifest: the one in place. roots: the plans with named operators, in the order of the
        targets. Raises StateError `damaged-checkpoint`.
        """
        applied = AppliedBatches.read(job_dir.path, manifest.version)
        found = []
        for root, target in zip(roots, targets, strict=True):
            table, operators = target.sink.table.name, tuple(last_operators(root.input))
            counts = _WrittenBatches.of(job_dir, manifest, {node.operator_id for node in operators})
            location = next(
                (note.get("location", "") for note in manifest.version.sinks or () if note["table"] == table), ""
            )
            for name in sorted({target.name, *manifest.sink_names.get(table, ())}):
                written = applied.find_last(name, location, counts.includes)
                if written is None:
                    continue
                held = target.sink.last_applied(manifest.job, name)
                is_behind = (held.epoch, held.batch) < written if held else target.sink.is_record_lasting
                if is_behind:
                    found.append(BehindSink(target, name, operators, held, written))
        return cls(job_dir, manifest, applied, found)

    def settle(self, consent: Consent) -> list[ChangedTable]:
        """Note what the user has decided; return the tables for whose answers a plan is needed.

        A table without any record of the job may have been emptied on purpose: it is only reported.
        Raises StateError `sink-behind` for the others without an answer.
        """
        tables = self.describe()
        answers = select_answers(tables.values(), consent.sinks)
        emptied = {name for name in tables if all(sink.held is None for sink in self.sinks if sink.table == name)}
        asked = [table for name, table in tables.items() if name not in emptied | answers.keys()]
        if asked:
            raise BehindSinkError.about(asked)
        for name in sorted(emptied - answers.keys()):
            consent.note(self._describe_emptied(tables[name]))
        left = {sink.name: sink.held for sink in self.sinks if answers.get(sink.table) is NewSink.EMPTY}
        if left:
            with self.job_dir.writing():
                self.applied.replace(left)
        return [table for name, table in tables.items() if answers.get(name) in (NewSink.REFRESH, NewSink.REBUILD)]

    def describe(self) -> dict[str, ChangedTable]:
        """Return the tables with the answers that would not be refused, by name."""
        rollback = self._find_rollback()
        duplicated = [
            note["table"] for note in self.manifest.version.sinks or () if note["again"] == ReplayEffect.DUPLICATES
        ]
        tables: dict[str, ChangedTable] = {}
        for sink in self.sinks:
            described = behind_sink(
                sink.target.sink.table,
                self._describe_batches(sink),
                can_refresh=any(map(can_reemit, sink.operators)),
                can_change=self._can_change(),
                duplicated=duplicated,
                commands=rollback,
            )
            tables.setdefault(sink.table, described)
        return tables

    def _can_change(self) -> bool:
        try:
            check_may_change(self.job_dir, self.manifest)
        except StateError:
            return False
        return True

    def _describe_batches(self, sink: BehindSink) -> str:
        epoch, batch = sink.written
        if sink.held is None:
            return f"it has no record of the job, which has written batch {batch} to it"
        has_epochs = sink.held.epoch != epoch
        held = f"batch {sink.held.batch}{f' of epoch {sink.held.epoch}' * has_epochs}"
        written = f"batch {batch}{f' of epoch {epoch}' * has_epochs}"
        return f"it holds {held} of the job, and the job has written {written} to it"

    def _describe_emptied(self, table: ChangedTable) -> str:
        options = [choice for choice in table.choices if choice.endswith((NewSink.REFRESH, NewSink.REBUILD))]
        again = f"; to write all rows to it: {' or '.join(options)}" if options else ""
        return (
            f"{table.message.removesuffix('; nothing was written')}; it receives only what changes from now on{again}"
        )

    def _find_rollback(self) -> dict[str, str]:
        """Return the command that resumes after the last batch that all tables hold.

        Empty if there is no such batch, or its checkpoint is gone.
        """
        held = [sink.held for sink in self.sinks if sink.held is not None]
        if not held or len(held) < len(self.sinks):
            return {}
        first = min(held, key=lambda last: (last.epoch, last.batch))
        lineage = {version.epoch: (version, last) for version, last in self.manifest.lineage(self.manifest.version)}
        if first.epoch not in lineage:
            return {}
        version, last = lineage[first.epoch]
        checkpoint = self.job_dir.checkpoint(self.manifest, first.epoch)
        if version.expired or (last is not None and last < first.batch) or not has_finished(checkpoint, first.batch):
            return {}
        ahead = {
            note["table"]
            for note in version.sinks or ()
            if note["again"] == ReplayEffect.DUPLICATES and not self._holds_only(note["table"], first)
        }
        accept = any(note["again"] == ReplayEffect.DUPLICATES for note in version.sinks or ())
        folder = shlex.quote(str(self.job_dir.path))
        command = f"everfold rollback {folder} {version.number} --batch {first.batch}"
        names = ", ".join(f"`{name}`" for name in sorted(ahead))
        effect = f"resume after batch {first.batch}, and read the later input again"
        more = f"; rows of {names} are duplicated" if ahead else ", so that no row is lost or duplicated"
        return {f"{command}{' --sink-duplicates accept' * accept}": effect + more}

    def _holds_only(self, table: str, batch: AppliedBatch) -> bool:
        """Whether a table holds no batch after one."""
        held = [sink.held for sink in self.sinks if sink.table == table]
        return bool(held) and all(
            last is not None and (last.epoch, last.batch) == (batch.epoch, batch.batch) for last in held
        )


@dataclass(frozen=True, slots=True)
class _WrittenBatches:
    """The batches whose rows a table must hold.

    lasts: by epoch, the last batch of the job's lineage, None for all. first: the epoch in which
    the result was last written again. current, finished: the current epoch, and its last batch that
    Spark does not run again.
    """

    lasts: dict[int, int | None]
    first: int
    current: int
    finished: int

    @classmethod
    def of(cls, job_dir: JobDir, manifest: Manifest, operators: set[str]) -> _WrittenBatches:
        lineage = manifest.lineage(manifest.version)
        refreshed = [version.epoch for version, _ in lineage if not operators.isdisjoint(version.again)]
        return cls(
            lasts={version.epoch: last for version, last in lineage},
            first=max(refreshed, default=0),
            current=manifest.current,
            finished=last_finished_batch(job_dir.checkpoint(manifest, manifest.current)),
        )

    def includes(self, number: Number) -> bool:
        """Return whether a batch counts."""
        epoch, batch = number
        if epoch not in self.lasts or epoch < self.first:
            return False
        last = self.finished if epoch == self.current else self.lasts[epoch]
        return last is None or batch <= last
