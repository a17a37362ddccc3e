"""Spark's metadata of the operators with state in a checkpoint: their numbers and schema files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from everfold.checkpoint.damage import check_file
from everfold.checkpoint.files import replace_file
from everfold.checkpoint.logs import newest_entry

_OPERATOR_ID = re.compile(r'("operatorId":)\d+')
_SCHEMA_PATH = re.compile(r'"[^"]*?/state/\d+/_stateSchema')
_JOB_IN_SCHEMA = re.compile(r'"(?:file:/*)?(/[^"]*)/checkpoints/\d+/state/\d+/_stateSchema')


def move_schemas(checkpoint: Path, path: Path) -> None:
    """Write a checkpoint's future path and the positions of its operators into its state metadata.

    path: the future path.
    """
    for file in checkpoint.glob("state/*/_metadata/v2/[0-9]*"):
        text = file.read_text(encoding="utf-8")
        at = file.relative_to(checkpoint).parts[1]
        schema = json.dumps(f"file:{path}/state/{at}/_stateSchema")[:-1]
        moved = _SCHEMA_PATH.sub(lambda _, schema=schema: schema, text)  # type: ignore[misc]
        replace_file(file, _OPERATOR_ID.sub(rf"\g<1>{at}", moved))


def find_job_dir_in_state(checkpoint: Path) -> Path | None:
    """Return the path of the job directory in the state metadata, None if there is none."""
    for file in sorted(checkpoint.glob("state/*/_metadata/v2/[0-9]*")):
        found = _JOB_IN_SCHEMA.search(file.read_text(encoding="utf-8"))
        if found is not None:
            return Path(os.path.normpath("/" + json.loads(f'"{found.group(1)}"').lstrip("/")))
    return None


def list_operators(checkpoint: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and Spark's number of each operator with state in a checkpoint.

    Raises StateError `damaged-checkpoint`.
    """
    for folder in (checkpoint / "state").glob("*/_metadata/v2"):
        file = newest_entry(folder)
        if file is None:
            continue
        with check_file(file):
            _, facts = file.read_text(encoding="utf-8").split("\n")
            found = json.loads(facts)
            variables = json.loads(found["operatorPropertiesJson"])["stateVariables"]
            number = int(found["operatorInfo"]["operatorId"])
        yield from ((each["stateName"].removeprefix("pages_"), number) for each in variables)
