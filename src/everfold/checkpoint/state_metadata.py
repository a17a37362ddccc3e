"""Spark's metadata of the operators with state in a checkpoint: their numbers and schema files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from everfold.checkpoint.damage import check_file
from everfold.checkpoint.files import replace_file
from everfold.checkpoint.logs import newest_entry
from everfold.storage import Location

_OPERATOR_ID = re.compile(r'("operatorId":)\d+')
_SCHEMA_PATH = re.compile(r'"[^"]*?/state/\d+/_stateSchema')
_JOB_IN_SCHEMA = re.compile(r'"(?:file:/*(?=/))?([^"]*)/checkpoints/[^/"]+/state/\d+/_stateSchema')


def move_schemas(checkpoint: Location) -> None:
    """Write a checkpoint's path and the positions of its operators into its state metadata."""
    place = f"file:{checkpoint}" if checkpoint.store.is_local else str(checkpoint)
    for file in checkpoint.glob("state/*/_metadata/v2/[0-9]*"):
        text = file.read_text()
        at = file.relative_to(checkpoint).split("/")[1]
        schema = json.dumps(f"{place}/state/{at}/_stateSchema")[:-1]
        moved = _SCHEMA_PATH.sub(lambda _, schema=schema: schema, text)  # type: ignore[misc]
        replace_file(file, _OPERATOR_ID.sub(rf"\g<1>{at}", moved))


def find_job_dir_in_state(checkpoint: Location) -> str | None:
    """Return the path of the job directory in the state metadata, None if there is none."""
    for file in checkpoint.glob("state/*/_metadata/v2/[0-9]*"):
        found = _JOB_IN_SCHEMA.search(file.read_text())
        if found is not None:
            place = str(json.loads(f'"{found.group(1)}"'))
            return place if "://" in place else os.path.normpath("/" + place.lstrip("/"))
    return None


@dataclass(frozen=True, slots=True)
class StoredOperator:
    """An operator whose state is in a checkpoint.

    position: of the operator in its job, which is Spark's number. name: that it has in the state.
    """

    position: int
    name: str


def list_operators(checkpoint: Location) -> Iterator[StoredOperator]:
    """Yield the operators with state in a checkpoint.

    Raises StateError `damaged-checkpoint`.
    """
    for folder in (checkpoint / "state").glob("*/_metadata/v2"):
        file = newest_entry(folder)
        if file is None:
            continue
        with check_file(file):
            _, facts = file.read_text().split("\n")
            found = json.loads(facts)
            variables = json.loads(found["operatorPropertiesJson"])["stateVariables"]
            number = int(found["operatorInfo"]["operatorId"])
        yield from (StoredOperator(number, variable["stateName"].removeprefix("pages_")) for variable in variables)
