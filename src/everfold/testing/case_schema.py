"""The JSON schema of case files, with which editors complete and check them.

It is written to `editors/vscode/case.schema.json` with the pages of the documentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from everfold.testing.casefile import CASE_KEYS, MODES, ON_CHANGE, STEP_KEYS, SUITE_KEYS
from everfold.testing.part import OnChange

_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}
_TABLE = {"type": "string", "description": "A pipe table: a line of column names, and a line for each row."}
_MODES = {"type": "array", "items": {"enum": list(MODES)}, "minItems": 1}

_KEYS: dict[str, dict[str, Any]] = {
    "tables": {
        "type": "string",
        "description": "DDL. A CREATE TABLE without WITH is fed from `rows`.",
    },
    "rows": {
        "type": "object",
        "additionalProperties": _TABLE,
        "description": "The rows of each table, by its name.",
    },
    "options": {
        "type": "object",
        "additionalProperties": _SCALAR,
        "description": "Options, as in SET. The session time zone is UTC by default.",
    },
    "batches": {
        "anyOf": [
            {"enum": ["one", "row"]},
            {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        ],
        "description": "How rows are divided into micro-batches: all at once, one row each, or numbers of rows.",
    },
    "modes": {**_MODES, "description": "How the cases run: as a stream (the default), in batch, or both."},
    "tolerance": {
        "type": ["number", "string"],
        "description": "The relative and absolute tolerance for FLOAT and DOUBLE values.",
    },
    "cases": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/case"}, "description": "The cases."},
    "name": {**_SCALAR, "description": "The name of the case in reports; unique in the file."},
    "sql": {"type": "string", "description": "Statements; one of them is the query or an INSERT."},
    "script": {
        "type": "string",
        "description": "A script instead of `sql`, relative to this file. Its tables are fed from `rows`.",
    },
    "result": {"type": "string", "description": "The table whose rows are compared, if there are several INSERTs."},
    "expect": {**_TABLE, "description": "The final table of the result."},
    "changelog": {**_TABLE, "description": "Every change of the result, with the row kind in a column `op`."},
    "error": {
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "code": {"type": "string"},
                    "words": {"anyOf": [{"type": "string"}, {"type": "array", "items": _SCALAR}]},
                },
            },
        ],
        "description": "The error that is expected: its code, or words of its message, or both.",
    },
    "not_yet": {
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {mode: {"type": "string"} for mode in MODES},
            },
        ],
        "description": "The code of the error that a missing feature of everfold still raises, or codes by mode.",
    },
    "steps": {
        "type": "array",
        "minItems": 1,
        "items": {"$ref": "#/$defs/step"},
        "description": "Consecutive runs, with a suspend and a restart between them.",
    },
    ON_CHANGE: {
        "enum": list(get_args(OnChange)),
        "description": "What to do with the state if the query of the step is another one.",
    },
}
"""The schema of each key's value, on all levels."""


def make_schema() -> dict[str, Any]:
    """Return the schema of a case file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "everfold case file",
        "description": "SQL queries with their input rows and expected results, for `everfold test`.",
        **_mapping(SUITE_KEYS, ["cases"]),
        "$defs": {
            "case": _mapping(CASE_KEYS, ["name"]),
            "step": _mapping((*STEP_KEYS, ON_CHANGE), []),
        },
    }


def _mapping(keys: Sequence[str], required: list[str]) -> dict[str, Any]:
    needs = {"required": required} if required else {}
    return {
        "type": "object",
        "additionalProperties": False,
        **needs,
        "properties": {key: _KEYS[key] for key in keys},
    }
