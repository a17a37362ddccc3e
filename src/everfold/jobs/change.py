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
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from everfold.compat import Judgement, QueryShape, Verdict, judge, shape_of, succeeding
from everfold.compat.matching import matched, twins
from everfold.compat.report import as_text
from everfold.errors import StateError
from everfold.jobs.soundness import unfinished
from everfold.plan.nodes import Root


class OnChange(StrEnum):
    """What becomes of a job whose query has changed so that not all of its state is of use: nothing, the state goes on as far as it is of use, it is
    given up and the job goes on from where it was in its input, or it is given up and the job begins anew, at the beginning of its input."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    RESET = "reset"
    REBUILD = "rebuild"


Decide: TypeAlias = Callable[[Judgement], OnChange]
_REBUILD = "run it with --on-change rebuild, which gives the state up and reads the input from its beginning"
_OTHERS = "give it a --state folder of its own; or run the old query again"
_WAYS = f"{_REBUILD}; or with --on-change reset, which goes on where the job was; or {_OTHERS}"
_NO_PLACE = f"{_REBUILD}; or {_OTHERS}"
_SCHEMA_PATH = re.compile(r'"[^"]*?/state/(\d+)/_stateSchema')


def refuse(_: Judgement) -> OnChange:
    """Wants no change but one that keeps all."""
    return OnChange.REFUSE


def decided(
    folder: Path, old: Sequence[QueryShape], roots: Sequence[Root], *, ignore_filter: bool, decide: Decide
) -> OnChange:
    """How a changed job goes on: ACCEPT with its state, RESET without, REBUILD from the beginning of its input.

    StateError `incompatible-change`, `unknown-change`, `partial-change` (as it was decided), `reshaped-query`, with all that was found.
    """
    new = [shape_of(root) for root in roots]
    judgement = judge(old, new, ignore_filter=ignore_filter)
    said = f"the query has changed, and the state in `{folder}`"
    in_place = _in_place(old, new)
    how = OnChange.ACCEPT if judgement.verdict is Verdict.FULLY and in_place else decide(judgement)
    if how is OnChange.REBUILD:
        return how
    if how is OnChange.RESET:
        if sum(len(each.operators) for each in old) != sum(len(each.operators) for each in new):
            what = f"the query has changed, and the job in `{folder}` has another number of operators than it, which is not carried out yet"
            raise _refused("reshaped-query", what, judgement, _NO_PLACE)
        return how
    match judgement.verdict:
        case Verdict.INCOMPATIBLE:
            raise _refused("incompatible-change", f"{said} is of no use to the new one", judgement, _WAYS)
        case Verdict.UNKNOWN:
            raise _refused("unknown-change", f"{said} may mean something else to the new one", judgement, _WAYS)
        case Verdict.PARTIALLY if how is OnChange.REFUSE:
            way = "accept that with --on-change accept; or " + _WAYS
            raise _refused("partial-change", f"{said} is of use to a part of the new one only", judgement, way)
    if not in_place:
        what = f"{said} could go on, but its operators run in another order now, which is not carried out yet"
        raise _refused("reshaped-query", what, judgement, _NO_PLACE)
    return OnChange.ACCEPT


def _refused(code: str, message: str, judgement: Judgement, help_: str) -> StateError:
    return StateError.of(code, f"{message}\n\n{as_text(judgement)}\n", help=help_)


def _in_place(old: Sequence[QueryShape], new: Sequence[QueryShape]) -> bool:
    """Whether each operator is made at the place of the one whose state it goes on with: the state is found by that place."""
    if [(each.sink, len(each.operators)) for each in old] != [(each.sink, len(each.operators)) for each in new]:
        return False
    return all(
        one.upwards.index(a) == other.upwards.index(b)
        for one, other in zip(old, new, strict=True)
        for a, b in matched(one, other).pairs
    )


def going_on(old: Sequence[QueryShape], roots: Sequence[Root], version: int) -> tuple[Root, ...]:
    """The plans in which each aggregate knows since when it counts: kept ones since they did, others since this version."""
    pairs = twins(old, [shape_of(root) for root in roots])
    return tuple(succeeding(one, root, version).root for (one, _), root in zip(pairs, roots, strict=False))


def check_finished(folder: Path, checkpoint: Path) -> None:
    """StateError `unfinished-batch` if the last batch was begun and is not done: it belongs to the old query."""
    if unfinished(checkpoint):
        raise StateError.of(
            "unfinished-batch",
            f"the job in `{folder}` was cut off in a batch, which the query has to end that began it",
            help="run the old query once more, stop it, and then change it; --on-change rebuild needs no old state",
        )


def copied(old: Path, new: Path) -> None:
    """Makes a checkpoint of another, which stays as it is. What a cut off copy left behind is replaced. OSError when it cannot, and then nothing is left."""
    cleared(new)
    part = _part(new)
    try:
        _copy(old, part, new)
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


def _copy(old: Path, part: Path, new: Path) -> None:
    """Copies a checkpoint to where it is made; the places in it are those that it will have."""
    part.mkdir()
    for source in sorted(old.rglob("*")):
        target = part / source.relative_to(old)
        if source.is_dir():
            target.mkdir()
        else:
            _linked(source, target)
    for file in part.glob("state/*/_metadata/v2/[0-9]*"):
        text = file.read_text(encoding="utf-8")
        moved = _SCHEMA_PATH.sub(lambda found: json.dumps(f"file:{new}/state/{found[1]}/_stateSchema")[:-1], text)
        _replace(file, moved)


def _linked(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)


def _replace(file: Path, text: str) -> None:
    """Writes a file anew: it may be one with another checkpoint's. Its checksum is not its own any more."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
