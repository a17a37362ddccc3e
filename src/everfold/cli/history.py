"""`everfold history`: the versions of a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from everfold.cli.runner import open_job

if TYPE_CHECKING:
    from everfold.jobs.folders import FolderName
    from everfold.jobs.manifest import Manifest, Version


def history(folder: FolderName, format_: Literal["text", "json"], conf: Mapping[str, str]) -> None:
    """Print the versions of the job in a folder.

    Raises UsageError `no-job`, StateError `damaged-manifest`.
    """
    from everfold.jobs.job_dir import load_manifest

    manifest = load_manifest(open_job(folder, conf))
    if format_ == "json":
        found = [_to_json(each, manifest) for each in manifest.versions]
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
        return
    for at, version in enumerate(manifest.versions):
        facts = _to_json(version, manifest)
        origin = f", {described}" if (described := describe_origin(version, manifest)) else ""
        mark = " (current)" if facts["current"] else " (expired)" if facts["expired"] else ""
        sys.stdout.write(f"{chr(10) * bool(at)}version {version.number}{mark}, since {version.created}{origin}\n")
        sys.stdout.writelines(f"  {gap.summary}\n" for gap in version.gaps)
        for operator in facts["operators"]:
            sys.stdout.write(f"  {operator['operator']}\n")
            for call in operator["aggregates"]:
                sys.stdout.write(f"    {call['aggregate']}: {describe_start(call['since'], call['counts_since'])}\n")


def print_script(folder: FolderName, number: int, conf: Mapping[str, str]) -> None:
    """Print the script of a version, without secrets.

    Of a version that an earlier release has run, only the statement is known. Raises UsageError
    `no-job`, `no-version`, StateError `damaged-manifest`.
    """
    from everfold.jobs.job_dir import load_manifest

    sys.stdout.write(read_script(load_manifest(open_job(folder, conf)).find_version(number)) + "\n")


def read_script(version: Version) -> str:
    """Return the script of a version, or its statement if an earlier release has run it."""
    return (version.script or version.sql).rstrip()


def describe_start(version: int, counts_since: int) -> str:
    """Describe since when an aggregate has counted.

    version: the version that it was added with. counts_since: the version since which it covers
    rows.
    """
    if version and not counts_since:
        return f"since version {version} and backfilled"
    return f"since version {counts_since}" if counts_since else "since the beginning"


def describe_origin(version: Version, manifest: Manifest) -> str:
    """Describe what a version came from, if not from a change of the query."""
    if version.back_to is not None:
        return f"rolled back to version {version.back_to}"
    if version.rebuilt:
        return "rebuilt from the beginning of the input"
    if version.gaps:
        return "continued after lost input"
    before = [each for each, _ in manifest.lineage(version)[1:2]]
    partitions = manifest.count_partitions(version)
    return f"with {partitions} partitions" if before and manifest.count_partitions(before[0]) != partitions else ""


def _to_json(version: Version, manifest: Manifest) -> dict[str, Any]:
    filled = {each.number for each in manifest.versions if each.is_backfilled}
    operators = [
        {
            "operator": operator.label,
            "aggregates": [
                {
                    "aggregate": call.label,
                    "since": call.since,
                    "backfilled": call.since in filled,
                    "counts_since": call.counts_since,
                }
                for call in operator.calls
            ],
        }
        for shape in version.query_shapes
        for operator in shape.operators
    ]
    return {
        "version": version.number,
        "current": version == manifest.version,
        "expired": version.expired,
        "created": version.created,
        "back_to": version.back_to,
        "rebuilt": version.rebuilt,
        "partitions": manifest.count_partitions(version),
        "gaps": [asdict(gap) for gap in version.gaps],
        "operators": operators,
    }
