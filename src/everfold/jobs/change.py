"""A changed query goes on with its job's state: judged, then given a checkpoint of its own, which begins as the old one's last.

The new checkpoint is the old one by hard links: Spark's files are written once and never changed, so a copy costs nothing and the old one stays as it is,
whatever becomes of the new one. Only files that name their own place are written anew. The manifest names the checkpoint in use, so the change is
carried out by one atomic write: a process that is killed before it leaves the old version, one that is killed after it the new one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from everfold.compat import REFERENCE, Judgement, QueryShape, Terms, Verdict, judge, shape_of, succeeding
from everfold.compat.matching import twins
from everfold.compat.report import as_text
from everfold.errors import StateError
from everfold.files import link, write_atomically
from everfold.jobs.spark_checkpoint import newest, positions, unfinished
from everfold.operators.backfill import NEW_OPERATOR, beginning, unfillable
from everfold.plan.changelog import is_updating
from everfold.plan.nodes import ChangelogNormalize, Root, StatefulNode


class OnChange(StrEnum):
    """What becomes of a job whose query has changed so that not all of its state is of use: nothing, the state goes on as far as it is of use, it is
    given up and the job goes on from where it was in its input, or it is given up and the job begins anew, at the beginning of its input. BACKFILL is to accept, and to
    compute what new aggregates have missed."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    BACKFILL = "backfill"
    RESET = "reset"
    REBUILD = "rebuild"


Decide: TypeAlias = Callable[[Judgement], OnChange]
_WAYS = {
    "--on-change accept": "goes on; what is new starts now",
    "--on-change backfill": "goes on; what is new is computed from the beginning of the input",
    "--on-change rebuild": "gives the state up, and reads the input from its beginning",
    "--on-change reset": "gives the state up, and goes on in the input where the job was",
    "--state FOLDER": "another folder is another job, beside this one",
    "the old query": "goes on as if nothing had been",
}
_WITH_STATE = ("--on-change accept", "--on-change backfill")
_IN_PLACE = (*_WITH_STATE, "--on-change reset")
_OPERATOR_ID = re.compile(r'("operatorId":)\d+')
_SCHEMA_PATH = re.compile(r'"[^"]*?/state/\d+/_stateSchema')


def refuse(_: Judgement) -> OnChange:
    """Wants no change but one that keeps all."""
    return OnChange.REFUSE


def decided(
    folder: Path, old: Sequence[QueryShape], roots: Sequence[Root], *, terms: Terms, decide: Decide
) -> OnChange:
    """How a changed job goes on: ACCEPT and BACKFILL with its state, RESET without, REBUILD from the beginning of its input.

    StateError `incompatible-change`, `unknown-change`, `partial-change` (as it was decided), with all that was found.
    """
    new = [shape_of(root) for root in roots]
    judgement = judge(old, new, terms)
    said = f"the query has changed, and the state in `{folder}`"
    how = OnChange.ACCEPT if judgement.verdict is Verdict.FULLY else decide(judgement)
    if how in (OnChange.REBUILD, OnChange.RESET):
        return how
    match judgement.verdict:
        case Verdict.INCOMPATIBLE:
            raise _refused("incompatible-change", f"{said} is of no use to the new one", judgement, _ways(_WITH_STATE))
        case Verdict.UNKNOWN:
            meaning = f"{said} may mean something else to the new one"
            raise _refused("unknown-change", meaning, judgement, _ways(_WITH_STATE))
        case Verdict.PARTIALLY if how is OnChange.REFUSE:
            raise _refused("partial-change", f"{said} is of use to a part of the new one only", judgement, _ways())
    return OnChange.ACCEPT if judgement.verdict is Verdict.FULLY else how


def _ways(without: Collection[str] = ()) -> str:
    """The ways out, one a line."""
    found = {way: what for way, what in _WAYS.items() if way not in without}
    wide = max(map(len, found))
    return "\n".join(["there are these ways:", *(f"  {way:{wide}}  {what}" for way, what in found.items())])


def _refused(code: str, message: str, judgement: Judgement, help_: str) -> StateError:
    return StateError.of(code, f"{message}\n\n{as_text(judgement)}\n", help=help_)


def check_grafting(folder: Path, operators: Sequence[str], *, noted: bool) -> None:
    """StateError `reshaped-query` if a job cannot be given more operators. operators: those that it has. noted: whether it is known what it reads."""
    what = f"the new query has an operator more than the job in `{folder}`"
    if not operators:
        none = f"{what}, which has none: it has no state that another could lie beside"
        raise StateError.of("reshaped-query", none, help=_ways(_IN_PLACE))
    if not noted:
        way = "run the old query once more, and then change it"
        unnoted = f"{what}, of which an earlier everfold did not note what it reads"
        raise StateError.of("reshaped-query", unnoted, help=way)


def going_on(
    old: Sequence[QueryShape], roots: Sequence[Root], version: int, terms: Terms = REFERENCE
) -> tuple[Root, ...]:
    """The plans in which each aggregate knows since when it counts: kept ones since they did, others since this version."""
    pairs = twins(old, [shape_of(root) for root in roots])
    return tuple(succeeding(one, root, version, terms).root for (one, _), root in zip(pairs, roots, strict=False))


def check_past(operators: Iterable[StatefulNode], version: int, fresh: Collection[int]) -> None:
    """StateError `no-backfill` if an aggregate that begins with this version cannot be given its past, or an operator that does. fresh: the identities of these. Over rows that change one
    begins with all of them."""
    for node in operators:
        if id(node) not in fresh:
            beginning(node, version)
        elif isinstance(node, ChangelogNormalize) or not is_updating(node.input):
            raise unfillable(NEW_OPERATOR, node.span)


def check_finished(folder: Path, checkpoint: Path) -> None:
    """StateError `unfinished-batch` if the last batch was begun and is not done: it belongs to the old query."""
    if unfinished(checkpoint):
        raise StateError.of(
            "unfinished-batch",
            f"the job in `{folder}` was cut off in a batch, which the query has to end that began it",
            help="run the old query once more, stop it, and then change it; --on-change rebuild needs no old state",
        )


def unsettled(folder: Path) -> StateError:
    """The error `unfinished-change`: a change was carried out, and its first batch has not come yet, which fills in what is new."""
    return StateError.of(
        "unfinished-change",
        f"the job in `{folder}` was cut off before the first batch of its last change, which fills in what is new",
        help="run that query once more, and then change it; --on-change rebuild needs no old state",
    )


def copied(old: Path, new: Path, places: Sequence[int | None] | None = None) -> None:
    """Makes a checkpoint of another, which stays as it is. What a cut off copy left behind is replaced. places: where the operator at each place was; the state of
    others is left out. OSError when it cannot, and then nothing is left."""
    cleared(new)
    part = _part(new)
    try:
        copy_links(old, part)
        if places is not None:
            _move(part, places)
        move_schemas(part, new)
        os.rename(part, new)
    except OSError:
        cleared(new)
        raise


def cleared(new: Path) -> None:
    """Removes what a cut off copy left of a checkpoint that is not in use yet."""
    for left in (_part(new), new):
        shutil.rmtree(left, ignore_errors=True)


def _part(new: Path) -> Path:
    return new.with_name(f".{new.name}.new")


def copy_links(old: Path, part: Path) -> None:
    """Copies a folder by hard links."""
    part.mkdir()
    for source in sorted(old.rglob("*")):
        target = part / source.relative_to(old)
        if source.is_dir():
            target.mkdir()
        else:
            link(source, target)


def _move(checkpoint: Path, places: Sequence[int | None]) -> None:
    """Puts the state of operators where they stand now. One that is new gets that of another to begin with: Spark wants it to have as many versions as the others have. It
    has a name of its own there, so it finds nothing, and what it does not know is removed with its first batch (`BucketProcessor`)."""
    state, moved = checkpoint / "state", checkpoint / "moved"
    there = {each.name for each in state.iterdir()} if state.is_dir() else set()
    if not there or (list(places) == [*range(len(places))] and there == set(map(str, places))):
        return
    origins = {str(at): min(there) if before is None else str(before) for at, before in enumerate(places)}
    state.rename(moved)
    state.mkdir()
    for at, before in origins.items():
        copy_links(moved / before, state / at)
    shutil.rmtree(moved)
    for file in (checkpoint / "commits").glob("[0-9]*"):
        version, _, text = file.read_text(encoding="utf-8").partition("\n")
        said = json.loads(text)
        ids = said.get("stateUniqueIds", {})
        said["stateUniqueIds"] = {at: ids[before] for at, before in origins.items() if before in ids}
        _replace(file, f"{version}\n{json.dumps(said)}")


def move_schemas(checkpoint: Path, place: Path) -> None:
    """Writes into a checkpoint where it will lie, and where its operators stand."""
    for file in checkpoint.glob("state/*/_metadata/v2/[0-9]*"):
        text = file.read_text(encoding="utf-8")
        at = file.relative_to(checkpoint).parts[1]
        schema = json.dumps(f"file:{place}/state/{at}/_stateSchema")[:-1]
        moved = _SCHEMA_PATH.sub(lambda _, schema=schema: schema, text)  # type: ignore[misc]
        _replace(file, _OPERATOR_ID.sub(rf"\g<1>{at}", moved))


def restored(checkpoint: Path, earlier: Iterable[Path]) -> None:
    """Writes into a checkpoint where its job once stood in sources that it did not read last: else Spark would begin them anew when they are back. earlier: the
    checkpoints before it, the newest first."""
    log = newest(checkpoint / "offsets")
    if log is None:
        return
    known: dict[str, str] = positions(checkpoint, int(log.name))
    more: dict[str, str] = {}
    for each in earlier:
        more |= {name: line for name, line in positions(each).items() if name not in known | more}
    if more:
        text = log.read_text(encoding="utf-8").rstrip("\n")
        _replace(log, "\n".join([text, *(f"{name}:{line}" for name, line in more.items())]))


def joined(checkpoint: Path, pairs: Mapping[str, str], kept: Path) -> None:
    """Writes into a checkpoint that new sources stand where others do. pairs: the names of both, before that of what they read (`Sources`). kept: the folder of rows that are kept as they were:
    a source of such rows has its own."""
    log = newest(checkpoint / "offsets")
    if log is None:
        return
    text = log.read_text(encoding="utf-8").rstrip("\n")
    for name, line in positions(checkpoint, int(log.name)).items():
        for new, other in pairs.items():
            if re.fullmatch(f"{re.escape(other)}(_[0-9a-f]{{8}})?", name) and not [*kept.glob(f"**/{name}.rows")]:
                new_name = new + name.removeprefix(other)
                text += f"\n{new_name}:{line}"
                if (checkpoint / "sources" / name).is_dir():
                    copy_links(checkpoint / "sources" / name, checkpoint / "sources" / new_name)
    _replace(log, text)


def _replace(file: Path, text: str) -> None:
    """Writes a file anew: it may be one with another checkpoint's. Its checksum is not its own any more."""
    write_atomically(file, text)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
