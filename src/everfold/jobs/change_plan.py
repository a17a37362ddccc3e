"""Plan the change of a job's query: a pure function of the manifest, the new plans and options.

A plan consists of stages. `everfold check --state` prints them, and `jobs.carry_out` carries them
out in this order. Nothing has changed until the last stage, which writes the manifest: a process
that is killed before it leaves the old version, and one that is killed after it leaves the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from everfold.compat import CompatOptions, Judgement, QueryPair, carry_state, record_coverage
from everfold.compat.operator_ids import SourceNote
from everfold.compat.serde import to_json
from everfold.errors import StateError
from everfold.jobs.change import OnChange
from everfold.jobs.manifest import Manifest, NewQuery, Version, create_version, name_plans
from everfold.operators.change_plan import OperatorChange, plan_operators
from everfold.plan.nodes import Root


@dataclass(frozen=True, slots=True)
class Judge:
    """The change was judged, and the user has decided what to do."""

    judgement: Judgement
    how: OnChange

    @property
    def summary(self) -> str:
        """What the stage does, for people."""
        return f"judge the change: {self.judgement.verdict.value}"


@dataclass(frozen=True, slots=True)
class BackfillCalls:
    """Compute the past of new aggregates from the input that the job has read."""

    operators: tuple[OperatorChange, ...]

    @property
    def summary(self) -> str:
        """What the stage does, for people."""
        calls = [call for each in self.operators for call in each.backfill or ()]
        return f"backfill {', '.join(calls)} from the input that the job has read"


@dataclass(frozen=True, slots=True)
class CopyCheckpoint:
    """Start a new epoch with a copy of the old checkpoint.

    Each operator of the new query has the state of the old one or, if it is new, none.

    dropped: the labels of operators that the new query lacks. reset: the state of all operators is
        discarded, and only the position in the input is kept.
    """

    old_epoch: int
    epoch: int
    operators: tuple[OperatorChange, ...]
    dropped: tuple[str, ...]
    reset: bool

    @property
    def summary(self) -> str:
        """What the stage does, for people."""
        stateful = [operator for operator in self.operators if operator.old_position is not None]
        copied = [operator.label for operator in stateful if operator.copied_from]
        carried = [operator.label for operator in stateful if not operator.copied_from]
        new = [operator.label for operator in self.operators if operator.old_position is None]
        kept = "discard the state of" if self.reset else "keep the state of"
        parts = [
            f"{action} {', '.join(labels)}"
            for action, labels in (
                (kept, carried),
                ("start without state" if self.reset else "start with a copy of the state of", copied),
                ("start", new),
                ("drop", self.dropped),
            )
            if labels
        ]
        return "; ".join([f"copy checkpoint {self.old_epoch} to checkpoint {self.epoch}", *parts])


@dataclass(frozen=True, slots=True)
class StartEpoch:
    """Start a new epoch without a checkpoint, at the beginning of the input."""

    epoch: int

    @property
    def summary(self) -> str:
        """What the stage does, for people."""
        return f"start checkpoint {self.epoch} empty, at the beginning of the input"


@dataclass(frozen=True, slots=True)
class PositionSources:
    """Give sources in the new checkpoint their positions.

    Sources that the last version did not read get the position of an earlier version, so that Spark
    does not read them from the beginning. A source of an added operator starts at the position of
    another source of its table.

    earlier: the epochs before the last one in the job's lineage, newest first.
    donors: the source with the same position, for each source of an added operator.
    """

    epoch: int
    earlier: tuple[int, ...]
    donors: tuple[tuple[str, str], ...]

    @property
    def summary(self) -> str:
        """What the stage does, for people."""
        return "continue at the current position in the input"


@dataclass(frozen=True, slots=True)
class Reemit:
    """Ask operators to emit their current rows again in the first batch."""

    operators: tuple[OperatorChange, ...]

    @property
    def summary(self) -> str:
        """What the stage does, for people."""
        return f"re-emit the current rows of {', '.join(each.label for each in self.operators)}"


@dataclass(frozen=True, slots=True)
class SwitchManifest:
    """Make the new version the current one."""

    version: int

    @property
    def summary(self) -> str:
        """What the stage does, for people."""
        return f"make version {self.version} the current one in the manifest"


@dataclass(frozen=True, slots=True)
class SettleTables:
    """Remove batches that no longer count from the job's tables.

    rewinds: also record which keys the tables hold, to find those that are not replayed.
    """

    tables: tuple[str, ...]
    rewinds: bool

    @classmethod
    def of(cls, version: Version) -> SettleTables:
        """Return the stage for the tables of a version."""
        return cls(tuple(dict.fromkeys(each["table"] for each in version.sinks or ())), version.rebuilt)

    @property
    def summary(self) -> str:
        """What the stage does, for people."""
        names = ", ".join(f"`{each}`" for each in self.tables)
        return f"take a key snapshot of {names}" if self.rewinds else f"leave the rows of {names} as they are"


_NOT_RENAMED: Mapping[str, str] = {}

Stage: TypeAlias = (
    Judge | BackfillCalls | CopyCheckpoint | StartEpoch | PositionSources | Reemit | SwitchManifest | SettleTables
)


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """How a job starts.

    manifest: the manifest after the last stage. roots: its plans, with named operators and sources.
    replaces: the version that is replaced, None if the query has not changed. asked: the tables
    about which users are asked.
    """

    manifest: Manifest
    roots: tuple[Root, ...]
    stages: tuple[Stage, ...]
    replaces: Version | None = None
    asked: frozenset[str] = frozenset()


def plan_change(
    known: Manifest,
    new: NewQuery,
    pairs: Sequence[QueryPair],
    judgement: Judgement,
    how: OnChange,
    *,
    terms: CompatOptions,
    refresh: Collection[int] = (),
    renamed_sinks: Mapping[str, str] = _NOT_RENAMED,
) -> ChangePlan:
    """Plan how a job continues with a new query.

    pairs, judgement: of the current version and the new query. how: what the user has decided.
    terms: the options by which the change was judged. refresh: the positions of the queries whose
    operators re-emit the result. renamed_sinks: see `pair_queries`.

    Raises StateError `no-backfill`, or `reshaped-query` if operators cannot be added to the job.
    """
    number, epoch = known.next_ids
    if how is OnChange.REBUILD:
        roots = tuple(carry_state(pair.discard_old(), root, 0) for pair, root in zip(pairs, new.roots, strict=False))
        version = replace(create_version(number, epoch, new, roots), rebuilt=True, decision=how.value)
        start: list[Stage] = [StartEpoch(epoch)]
    else:
        version, roots, start = _plan_continuation(known, new, pairs, how, terms, refresh, renamed_sinks)
    version = replace(version, partitions=known.version.partitions)
    manifest = replace(known, current=epoch, versions=(*known.versions, version))
    stages = (Judge(judgement, how), *start, SwitchManifest(number), SettleTables.of(version))
    return ChangePlan(manifest, name_plans(roots, version), stages, known.version)


def _plan_continuation(
    known: Manifest,
    new: NewQuery,
    pairs: Sequence[QueryPair],
    how: OnChange,
    terms: CompatOptions,
    refresh: Collection[int],
    renamed_sinks: Mapping[str, str],
) -> tuple[Version, tuple[Root, ...], list[Stage]]:
    """Plan a new version that continues at the position of the current one."""
    last = known.version
    number, epoch = known.next_ids
    backfill, reset = how is OnChange.BACKFILL, how is OnChange.RESET
    if any(pair.is_copy or position is None for pair in pairs for position in pair.old_positions):
        _check_added_operators(last)
    change = plan_operators(
        pairs,
        last.operators,
        new.roots,
        number,
        terms,
        taken=known.operators,
        backfill=backfill,
        refresh=refresh,
        reset=reset,
    )
    reemitting = tuple(each for each in change.operators if each.reemits)
    version = create_version(number, epoch, new, change.roots, _rename_readers(known.sources, renamed_sinks))
    covered = [
        record_coverage(pair.discard_old() if reset else pair, shape, number, terms, is_backfilled=backfill)
        for pair, shape in zip(pairs, version.query_shapes, strict=False)
    ]
    version = replace(
        version,
        shapes=tuple(map(to_json, covered)),
        rules="extended" if terms.extended else "reference",
        ignores_filters=terms.ignore_filter,
        decision=how.value,
        state_epoch=number if reset else last.state_epoch,
        history=number if backfill or reemitting else None,
        filled=backfill,
        again=tuple(each.operator_id for each in reemitting),
        state_names=last.carry_state_names(
            {operator.operator_id: operator.copied_from for operator in change.operators}
        ),
    )
    kept = {each.old_position for each in change.operators}
    labels = [operator.label for shape in last.query_shapes for operator in shape.operators]
    dropped = tuple(label for at, label in enumerate(labels) if at not in kept)
    earlier = tuple(each.epoch for each, _ in known.lineage(last)[1:])
    stages: list[Stage] = [
        CopyCheckpoint(last.epoch, epoch, change.operators, dropped, reset),
        PositionSources(epoch, earlier, tuple(_donors(known, version, renamed_sinks).items())),
    ]
    filled = tuple(each for each in change.operators if each.backfill)
    if filled:
        stages.insert(0, BackfillCalls(filled))
    if reemitting:
        stages.append(Reemit(reemitting))
    return version, change.roots, stages


def _check_added_operators(last: Version) -> None:
    """Raise StateError `reshaped-query` if operators cannot be added to a job."""
    what = "the new query adds an operator to the job"
    if not last.operators:
        message = f"{what}, which has no operator and so no state that another one could be added to"
        help_ = "use --on-change rebuild, which discards the state, or run the new query with another --state folder"
        raise StateError.of("reshaped-query", message, help=help_)
    if last.sources is None:
        message = f"{what}, whose sources were not recorded by the earlier everfold that ran it"
        raise StateError.of("reshaped-query", message, help="run the old query once more, and then change it")


def _rename_readers(
    sources: Sequence[Sequence[SourceNote]], renamed_sinks: Mapping[str, str]
) -> list[tuple[SourceNote, ...]]:
    """Return the sources of versions with the present names of the tables that read them."""
    present = {old: new for new, old in renamed_sinks.items()}
    return [
        tuple(note | {"reader": present.get(note["reader"], note["reader"])} for note in notes) for notes in sources
    ]


def _donors(known: Manifest, version: Version, renamed_sinks: Mapping[str, str]) -> dict[str, str]:
    """Map each new source that does not start at the beginning to a source with its position.

    All operators read control files from the same position, and a new operator reads its input from
    the current position on. A new INSERT without operators starts at the beginning: it copies what
    the table holds.
    """
    before = known.version
    tables = {shape.sink for shape in before.query_shapes} | renamed_sinks.keys()
    fresh = [name for name in version.operators if name not in before.operators]
    found = {f"control_{name}": f"control_{before.operators[0]}" for name in fresh}
    notes = [note for notes in known.sources for note in notes]
    names = {note["name"] for note in notes}
    for note in version.sources or ():
        donor = next((each["name"] for each in notes if each["table"] == note["table"]), None)
        if donor is not None and note["name"] not in names and note["reader"] in {*fresh, *tables}:
            found[note["name"]] = donor
    return found
