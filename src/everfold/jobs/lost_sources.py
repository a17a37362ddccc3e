"""Sources of a job whose unread rows are gone, and the version with which the job skips them.

The new version has the same query. Its checkpoint is a copy that leaves out a batch which was not
finished, with other positions in the sources. It records the gaps, so they stay in the job's
history. Writing the manifest is the switch, as with every change; a rollback to the version before
asks again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from everfold.activity import report_activity
from everfold.checkpoint.logs import (
    find_next_position,
    find_planned_position,
    last_finished_batch,
    last_planned_batch,
    read_first_position,
    remove_batches,
    set_first_position,
    set_position,
)
from everfold.compat.operator_ids import SourceNote
from everfold.connectors.contract import Source
from everfold.connectors.lost_input import LostInput
from everfold.jobs.batch_log import last_batch
from everfold.jobs.changed_tables import ChangedTable, lost_source
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import GapNote, Version, now
from everfold.jobs.rewind import Consent, Moved, check_duplicates, describe_effects
from everfold.storage import Location


@dataclass(frozen=True, slots=True)
class LostSource:
    """A source of whose unread rows some are gone.

    name: in Spark's checkpoint. identity: of the present data. lost: what is gone. lost_if_same:
    likewise if data that was created again has the same rows, None if all of them are there.
    """

    name: str
    identity: str
    lost: LostInput
    lost_if_same: LostInput | None = None

    @property
    def changed(self) -> ChangedTable:
        """The table with the answers that a user can give."""
        return lost_source(self.lost, self.lost_if_same)

    @property
    def has_same_rows(self) -> bool:
        """Whether the position may apply to data that was created again."""
        return bool(self.lost.recreated) and self.lost_if_same is None

    def choose(self, answer: Moved) -> LostInput:
        """Return what is left out with an answer."""
        return self.lost_if_same if answer is Moved.SKIP and self.lost_if_same is not None else self.lost


def find_lost_source(checkpoint: Location, note: SourceNote, source: Source, identity: str) -> LostSource | None:
    """Return what is gone of the rows that a job reads next from a source.

    note: of what the job has read. identity: of the present data. Raises ConnectorError.
    """
    name = note["spark_name"]
    if type(source).find_lost is Source.find_lost:
        return None
    position = find_next_position(checkpoint, name)
    if position is None:
        return None
    planned = find_planned_position(checkpoint, name)
    lost = source.find_lost(position, planned, note.get("identity", ""))
    if lost is None:
        return None
    lost_if_same = source.find_lost(position, planned, "") if lost.recreated else None
    return LostSource(name, identity, lost, lost_if_same)


def skip_lost_rows(
    job_dir: JobDir,
    lost_sources: Sequence[LostSource],
    answers: Mapping[str, Moved],
    consent: Consent,
    is_delivered: Callable[[int], bool],
) -> Version:
    """Let a job continue after the gaps, as a new version of its query, and return that.

    answers: by table. is_delivered: whether a table holds rows of a batch that is not finished.
    Raises StateError `sink-duplicates`, ConnectorError `disk-full` and similar.
    """
    manifest = job_dir.load_manifest()
    version, (number, epoch) = manifest.version, manifest.next_ids
    old, new = job_dir.checkpoint(manifest, version.epoch), job_dir.checkpoint(manifest, epoch)
    planned, finished = last_planned_batch(old), last_finished_batch(old)
    was_begun = planned > finished and last_batch(job_dir.path) == (version.epoch, planned)
    goes_back = was_begun and is_delivered(planned)
    if goes_back:
        for line in describe_effects(version.sinks or (), lambda effect: effect.on_rollback):
            consent.note(line)
        check_duplicates(version.sinks, accepted=consent.duplicates)
    report_activity("copying the checkpoint")
    job_dir.copy_checkpoint(old, new)
    gaps: list[GapNote] = []
    identities: dict[str, str] = {}
    with job_dir.writing():
        if finished < 0:
            _keep_only_sources(new)
        remove_batches(new, finished)
        for source in lost_sources:
            answer = answers[source.lost.table.name]
            chosen = source.choose(answer)
            set_position(new, source.name, chosen.line)
            gaps += [GapNote.of(source.lost.table.name, gap, is_new=answer is Moved.NEW) for gap in chosen.gaps]
            identities[source.name] = source.identity
            if answer is Moved.NEW:
                _restart(new, source.name, chosen)
                _forget_ends(job_dir.path / "sources", source.name)
    made = replace(
        version,
        number=number,
        epoch=epoch,
        created=now(),
        back_to=version.number if goes_back else None,
        back_after=finished if was_begun else None,
        rebuilt=False,
        checkpoint=None,
        gaps=tuple(gaps),
        sources=tuple(_identify(note, identities) for note in version.sources or ()),
    )
    job_dir.write_manifest(replace(manifest, current=epoch, versions=(*manifest.versions, made)))
    for gap in gaps:
        consent.note(f"version {number}: {gap.summary}")
    return made


def _keep_only_sources(checkpoint: Location) -> None:
    """Remove all but the start positions from a checkpoint without a finished batch.

    Spark does not accept the state of such a batch without its offsets.
    """
    for each in list(checkpoint.iterdir()):
        if each.name != "sources":
            each.delete()


def _identify(note: SourceNote, identities: Mapping[str, str]) -> SourceNote:
    """Return a note with the identity of the present data."""
    identity = identities.get(note.get("spark_name", ""))
    return note | {"identity": identity} if identity else note


def _restart(checkpoint: Location, name: str, lost: LostInput) -> None:
    """Let data that was created again begin at its present start, also for a backfill."""
    first = json.loads(read_first_position(checkpoint / "sources" / name))
    kept = {part: start for part, start in first.items() if part not in lost.recreated}
    present = {part: start for part, start in json.loads(lost.line).items() if part in lost.recreated}
    set_first_position(checkpoint, name, json.dumps(kept | present, separators=(",", ":")))


def _forget_ends(folder: Location, name: str) -> None:
    """Let a bounded source determine its end again: the recorded one was that of other data."""
    for pattern in (f"{name}.ends.json", f"*/{name}.ends.json"):
        for file in folder.glob(pattern):
            file.delete()
