"""Change the query of a job: judge the change, then continue from a copy of the old checkpoint.

The copy consists of hard links. Spark writes its files once and never changes them, so the copy is
cheap and the old checkpoint stays intact if anything happens to the new one. Only files that
contain their own path are rewritten. The manifest names the checkpoint in use, so a single atomic
write carries out the change: a process that is killed before it leaves the old version, and one
that is killed after it leaves the new version.
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

from everfold.compat import REFERENCE, CompatOptions, Judgement, QueryShape, Verdict, carry_state, judge, shape_of
from everfold.compat.matching import pair_queries
from everfold.compat.report import as_text
from everfold.errors import StateError
from everfold.files import link, write_atomically
from everfold.jobs.spark_checkpoint import has_unfinished_batch, newest_entry, read_positions
from everfold.operators.backfill import NEW_OPERATOR, no_backfill_error, restrict_to_new_calls
from everfold.plan.emitted_changes import is_updating
from everfold.plan.nodes import ChangelogNormalize, Root, StatefulNode


class OnChange(StrEnum):
    """What to do with a job when its new query can reuse only part of the state.

    REFUSE: do not change the job.
    ACCEPT: keep the reusable state.
    BACKFILL: like ACCEPT, and compute what new aggregates have missed.
    RESET: discard the state and continue at the current position in the input.
    REBUILD: discard the state and start again at the beginning of the input.
    """

    REFUSE = "refuse"
    ACCEPT = "accept"
    BACKFILL = "backfill"
    RESET = "reset"
    REBUILD = "rebuild"


Decide: TypeAlias = Callable[[Judgement], OnChange]
_OPTIONS = {
    "--on-change accept": "keep the reusable state; new aggregates start now",
    "--on-change backfill": "keep the reusable state; compute new aggregates from the beginning of the input",
    "--on-change rebuild": "discard the state and read the input from its beginning",
    "--on-change reset": "discard the state and continue at the current position in the input",
    "--state FOLDER": "run the new query as a separate job in another folder",
    "the old query": "resume the job unchanged",
}
_WITH_STATE = ("--on-change accept", "--on-change backfill")
_IN_PLACE = (*_WITH_STATE, "--on-change reset")
_OPERATOR_ID = re.compile(r'("operatorId":)\d+')
_SCHEMA_PATH = re.compile(r'"[^"]*?/state/\d+/_stateSchema')


def refuse(_: Judgement) -> OnChange:
    """Refuse every change that does not keep the whole state."""
    return OnChange.REFUSE


def decide_change(
    folder: Path, old: Sequence[QueryShape], roots: Sequence[Root], *, terms: CompatOptions, decide: Decide
) -> OnChange:
    """Decide how a changed job continues; a change that keeps the whole state is accepted.

    Raises StateError `incompatible-change`, `unknown-change` or `partial-change`, with the report
    of the judgement, unless `decide` allows the change.
    """
    new = [shape_of(root) for root in roots]
    judgement = judge(old, new, terms)
    how = OnChange.ACCEPT if judgement.verdict is Verdict.FULLY else decide(judgement)
    if how in (OnChange.REBUILD, OnChange.RESET):
        return how
    match judgement.verdict:
        case Verdict.INCOMPATIBLE:
            message = f"the query has changed, and the new one cannot use the state in `{folder}`"
            raise _refusal("incompatible-change", message, judgement, _list_options(_WITH_STATE))
        case Verdict.UNKNOWN:
            message = f"the query has changed, and the state in `{folder}` may have another meaning in the new one"
            raise _refusal("unknown-change", message, judgement, _list_options(_WITH_STATE))
        case Verdict.PARTIALLY if how is OnChange.REFUSE:
            message = f"the query has changed, and the new one can reuse only part of the state in `{folder}`"
            raise _refusal("partial-change", message, judgement, _list_options())
    return OnChange.ACCEPT if judgement.verdict is Verdict.FULLY else how


def _list_options(without: Collection[str] = ()) -> str:
    """List the available options, one per line."""
    options = {option: what for option, what in _OPTIONS.items() if option not in without}
    width = max(map(len, options))
    return "\n".join(["choose one:", *(f"  {option:{width}}  {what}" for option, what in options.items())])


def _refusal(code: str, message: str, judgement: Judgement, help_: str) -> StateError:
    return StateError.of(code, f"{message}\n\n{as_text(judgement)}\n", help=help_)


def check_added_operators(folder: Path, operators: Sequence[str], *, noted: bool) -> None:
    """Raise StateError `reshaped-query` if operators cannot be added to a job.

    operators: those that the job has. noted: whether the manifest records the job's sources.
    """
    what = f"the new query adds an operator to the job in `{folder}`"
    if not operators:
        message = f"{what}, which has no operator and so no state that another one could be added to"
        raise StateError.of("reshaped-query", message, help=_list_options(_IN_PLACE))
    if not noted:
        message = f"{what}, whose sources were not recorded by the earlier everfold that ran it"
        raise StateError.of("reshaped-query", message, help="run the old query once more, and then change it")


def carry_plans(
    old: Sequence[QueryShape], roots: Sequence[Root], version: int, terms: CompatOptions = REFERENCE
) -> tuple[Root, ...]:
    """Return the plans with the version since which each aggregate counts.

    Kept aggregates keep theirs, others count since this version.
    """
    pairs = pair_queries(old, [shape_of(root) for root in roots])
    return tuple(carry_state(one, root, version, terms).root for (one, _), root in zip(pairs, roots, strict=False))


def check_backfill(operators: Iterable[StatefulNode], version: int, fresh: Collection[str]) -> None:
    """Raise StateError `no-backfill` if a new aggregate or operator cannot be backfilled.

    fresh: ids of the new operators. A new operator over a changelog needs no backfill: it
    starts with all current rows.
    """
    for node in operators:
        if node.operator_id not in fresh:
            restrict_to_new_calls(node, version)
        elif isinstance(node, ChangelogNormalize) or not is_updating(node.input):
            raise no_backfill_error(NEW_OPERATOR, node.span)


def check_finished(folder: Path, checkpoint: Path) -> None:
    """Raise StateError `unfinished-batch` if the last batch of the old query is not finished."""
    if has_unfinished_batch(checkpoint):
        raise StateError.of(
            "unfinished-batch",
            f"the job in `{folder}` was interrupted during a batch, which only the old query can finish",
            help="run the old query once more, stop it, and then change it; --on-change rebuild needs no old state",
        )


def unfinished_change_error(folder: Path) -> StateError:
    """Return the error `unfinished-change`: the first batch of the last change has not run yet.

    That batch reads the backfill of new aggregates.
    """
    return StateError.of(
        "unfinished-change",
        f"the job in `{folder}` was interrupted before the first batch of its last change, which fills new aggregates",
        help="run that query once more, and then change it; --on-change rebuild needs no old state",
    )


def copy_checkpoint(old: Path, new: Path, old_positions: Sequence[int | None] | None = None) -> None:
    """Copy a checkpoint by hard links, replacing the remains of an interrupted copy.

    old_positions: the old position of the operator at each position, None for a new one. The state
    of operators that are not in it is left out. Raises OSError, and then leaves no copy.
    """
    clear_checkpoint(new)
    part = _part_folder(new)
    try:
        copy_links(old, part)
        if old_positions is not None:
            _move_operators(part, old_positions)
        move_schemas(part, new)
        os.rename(part, new)
    except OSError:
        clear_checkpoint(new)
        raise


def clear_checkpoint(new: Path) -> None:
    """Remove the remains of an interrupted copy to a checkpoint that is not in use yet."""
    for left in (_part_folder(new), new):
        shutil.rmtree(left, ignore_errors=True)


def _part_folder(new: Path) -> Path:
    return new.with_name(f".{new.name}.new")


def copy_links(old: Path, part: Path) -> None:
    """Copy a folder by hard links."""
    part.mkdir()
    for source in sorted(old.rglob("*")):
        target = part / source.relative_to(old)
        if source.is_dir():
            target.mkdir()
        else:
            link(source, target)


def _move_operators(checkpoint: Path, old_positions: Sequence[int | None]) -> None:
    """Move the state of operators to their new positions.

    A new operator starts with a copy of another one's state, because Spark requires the state of
    all operators to have the same number of versions. Its pages have another name, so it finds none
    of its own, and its first batch removes the foreign ones (`BucketProcessor`).
    """
    state, moved = checkpoint / "state", checkpoint / "moved"
    there = {each.name for each in state.iterdir()} if state.is_dir() else set()
    if not there or (list(old_positions) == [*range(len(old_positions))] and there == set(map(str, old_positions))):
        return
    origins = {str(at): min(there) if before is None else str(before) for at, before in enumerate(old_positions)}
    state.rename(moved)
    state.mkdir()
    for at, before in origins.items():
        copy_links(moved / before, state / at)
    shutil.rmtree(moved)
    for file in (checkpoint / "commits").glob("[0-9]*"):
        version, _, text = file.read_text(encoding="utf-8").partition("\n")
        commit = json.loads(text)
        ids = commit.get("stateUniqueIds", {})
        commit["stateUniqueIds"] = {at: ids[before] for at, before in origins.items() if before in ids}
        _replace(file, f"{version}\n{json.dumps(commit)}")


def move_schemas(checkpoint: Path, path: Path) -> None:
    """Write a checkpoint's future path and the positions of its operators into its state metadata.

    path: the future path.
    """
    for file in checkpoint.glob("state/*/_metadata/v2/[0-9]*"):
        text = file.read_text(encoding="utf-8")
        at = file.relative_to(checkpoint).parts[1]
        schema = json.dumps(f"file:{path}/state/{at}/_stateSchema")[:-1]
        moved = _SCHEMA_PATH.sub(lambda _, schema=schema: schema, text)  # type: ignore[misc]
        _replace(file, _OPERATOR_ID.sub(rf"\g<1>{at}", moved))


def restore_positions(checkpoint: Path, earlier: Iterable[Path]) -> None:
    """Write the last positions in sources that the previous version did not read into a checkpoint.

    Otherwise Spark would read such a source from the beginning when it is used again. earlier: the
    checkpoints before this one, newest first.
    """
    log = newest_entry(checkpoint / "offsets")
    if log is None:
        return
    known: dict[str, str] = read_positions(checkpoint, int(log.name))
    more: dict[str, str] = {}
    for each in earlier:
        more |= {name: line for name, line in read_positions(each).items() if name not in known | more}
    if more:
        text = log.read_text(encoding="utf-8").rstrip("\n")
        _replace(log, "\n".join([text, *(f"{name}:{line}" for name, line in more.items())]))


def add_source_positions(checkpoint: Path, pairs: Mapping[str, str], kept: Path) -> None:
    """Give new sources in a checkpoint the positions of others.

    pairs: the other source of each new one, both by their names without the suffix for what they
    read (`Sources`). kept: the folder of copied rows; a source that has a copy is left out.
    """
    log = newest_entry(checkpoint / "offsets")
    if log is None:
        return
    text = log.read_text(encoding="utf-8").rstrip("\n")
    for name, line in read_positions(checkpoint, int(log.name)).items():
        for new, other in pairs.items():
            if re.fullmatch(f"{re.escape(other)}(_[0-9a-f]{{8}})?", name) and not [*kept.glob(f"**/{name}.rows")]:
                new_name = new + name.removeprefix(other)
                text += f"\n{new_name}:{line}"
                if (checkpoint / "sources" / name).is_dir():
                    copy_links(checkpoint / "sources" / name, checkpoint / "sources" / new_name)
    _replace(log, text)


def _replace(file: Path, text: str) -> None:
    """Replace a file, which may be hard-linked from another checkpoint, and drop its checksum."""
    write_atomically(file, text)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
