"""Carry out a change plan, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from everfold.activity import report_activity
from everfold.checkpoint.copying import clear_checkpoint
from everfold.checkpoint.logs import add_source_positions, last_finished_batch, restore_positions
from everfold.checkpoint.state_metadata import StoredOperator
from everfold.jobs.backfill import Backfill
from everfold.jobs.change_plan import (
    BackfillCalls,
    ChangePlan,
    CopyCheckpoint,
    Judge,
    PositionSources,
    Reemit,
    SettleTables,
    Stage,
    StartEpoch,
    SwitchManifest,
)
from everfold.jobs.control import Control
from everfold.jobs.foreach_batch import Target
from everfold.jobs.job_dir import JobDir
from everfold.jobs.sources import Sources
from everfold.jobs.state_pages import reading_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class ChangeExecutor:
    """Carries out a plan. No process writes the old checkpoint while it does.

    job_dir: locked by this process. targets: the job's sinks. open_sources: returns the job's
    sources. zone: the session's time zone. note: called with sentences for the user.
    """

    job_dir: JobDir
    spark: SparkSession
    plan: ChangePlan
    targets: Sequence[Target]
    open_sources: Callable[[], Sources]
    zone: str
    note: Callable[[str], None]

    def run(self) -> None:
        """Carry out all stages.

        Raises StateError `no-past`, `no-backfill`, `unfinished-batch`, or a ConnectorError.
        """
        for stage in self.plan.stages:
            self._carry_out(stage)

    def _carry_out(self, stage: Stage) -> None:
        job_dir, manifest = self.job_dir, self.plan.manifest
        match stage:
            case Judge():
                pass
            case BackfillCalls():
                self._backfill(stage)
            case StartEpoch():
                with job_dir.writing():
                    clear_checkpoint(job_dir.checkpoint(manifest, stage.epoch))
            case CopyCheckpoint():
                old = job_dir.checkpoint(manifest, stage.old_epoch)
                job_dir.check_finished(manifest, stage.old_epoch)
                report_activity("copying the checkpoint")
                old_positions = [each.old_position for each in stage.operators]
                job_dir.copy_checkpoint(old, job_dir.checkpoint(manifest, stage.epoch), old_positions)
            case PositionSources():
                checkpoint = job_dir.checkpoint(manifest, stage.epoch)
                with job_dir.writing():
                    earlier = [job_dir.checkpoint(manifest, each) for each in stage.earlier]
                    restore_positions(checkpoint, earlier)
                    add_source_positions(checkpoint, dict(stage.donors), job_dir.path / "sources")
            case Reemit():
                names = [each.operator_id for each in stage.operators]
                with job_dir.writing():
                    Control.request_reemit(job_dir.backfill_folder(manifest.version.number), names)
            case SwitchManifest():
                if job_dir.read_manifest() != manifest:
                    job_dir.write_manifest(manifest)
            case SettleTables():
                lineage = manifest.job_lineage
                if lineage is not None:
                    report_activity("removing discarded rows from the tables")
                    for target in self.targets:
                        target.sink.undo_discarded_batches(lineage)
            case _:
                assert_never(stage)

    def _find_stored(self) -> dict[str, StoredOperator]:
        """Return the operators whose state is in the old checkpoint, by their ids in the plans."""
        operators = [
            operator for stage in self.plan.stages if isinstance(stage, CopyCheckpoint) for operator in stage.operators
        ]
        names = self.plan.manifest.version.state_names
        return {
            operator.operator_id: StoredOperator(
                operator.old_position, names.get(operator.operator_id, operator.operator_id)
            )
            for operator in operators
            if operator.old_position is not None
        }

    def _backfill(self, stage: BackfillCalls) -> None:
        """Write the backfill of a new version, if the job has run."""
        manifest, last = self.plan.manifest, self.plan.replaces
        assert last is not None
        checkpoint = self.job_dir.checkpoint(manifest, last.epoch)
        if last_finished_batch(checkpoint) < 0:
            return
        backfill = Backfill(
            spark=self.spark,
            reading=reading_session(self.spark, manifest.count_partitions(last)),
            job=self.job_dir.path,
            checkpoint=checkpoint,
            target=self.job_dir.backfill_folder(manifest.version.number),
            version=manifest.version.number,
            epoch=manifest.version.state_epoch,
            stored=self._find_stored(),
            sources=self.open_sources(),
            zone=self.zone,
            bucket_ids=manifest.bucket_ids,
            log_file=self.job_dir.spark_log,
        )
        for filled in backfill.write(self.plan.roots, [each.operator_id for each in stage.operators]):
            self.note(filled.summary)
        for gone in backfill.lost_input:
            self.note(f"{gone}: new aggregates do not count them")
        for gap in manifest.gaps:
            if gap.is_new:
                self.note(
                    f"table `{gap.table}`: {gap.split} was created again: new aggregates do not count what was read of"
                    " the one before"
                )
