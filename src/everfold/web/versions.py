"""The versions of a job: what changed in each, the verdict on it, and since when columns count."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from everfold.cli.history import describe_origin, describe_start
from everfold.compat import Judgement
from everfold.jobs.manifest import Manifest, Version
from everfold.jobs.versions import judge_versions

DiffKind = Literal["same", "added", "removed", "place"]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a difference."""

    kind: DiffKind
    text: str


@dataclass(frozen=True, slots=True)
class VersionStep:
    """A version of a job, and how it differs from the one before.

    difference, judgement: empty and None for the first one. since: sentences, by aggregate.
    """

    version: Version
    is_current: bool
    origin: str
    difference: tuple[DiffLine, ...]
    judgement: Judgement | None
    since: tuple[tuple[str, str], ...]


def list_steps(manifest: Manifest) -> list[VersionStep]:
    """Return the versions of a job, newest first."""
    steps: list[VersionStep] = []
    before: Version | None = None
    for version in manifest.versions:
        changed = before is not None and before.sql != version.sql
        steps.append(
            VersionStep(
                version=version,
                is_current=version == manifest.version,
                origin=describe_origin(version, manifest),
                difference=compare_scripts(before.sql, version.sql) if before is not None and changed else (),
                judgement=judge_versions(manifest, before, version) if before is not None and changed else None,
                since=tuple(
                    (call.label, describe_start(call.since, call.counts_since))
                    for shape in version.query_shapes
                    for operator in shape.operators
                    for call in operator.calls
                ),
            )
        )
        before = version
    return steps[::-1]


def compare_scripts(old: str, new: str) -> tuple[DiffLine, ...]:
    """Return the difference of two scripts, with three lines around each change."""
    kinds: dict[str, DiffKind] = {"+": "added", "-": "removed", " ": "same", "@": "place"}
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm=""))[2:]
    return tuple(DiffLine(kinds[line[0]], line[1:] if line[0] != "@" else "…") for line in lines if line)
