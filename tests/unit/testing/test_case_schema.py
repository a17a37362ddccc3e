"""The JSON schema of case files: it accepts all of them, and rejects what the reader rejects."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml
from pages import ROOT

from everfold.errors import UsageError
from everfold.testing.case_schema import make_schema
from everfold.testing.casefile import find_case_files, loads

VALIDATOR = jsonschema.Draft202012Validator(make_schema())


def read(text: str) -> Any:
    """Return YAML as an editor sees it: without dates."""
    return json.loads(json.dumps(yaml.load(text, yaml.CSafeLoader), default=str))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(make_schema())


def test_all_case_files_are_valid() -> None:
    files = find_case_files([ROOT / "tests" / "cases"])
    assert len(files) > 50
    for file in files:
        errors = [error.message for error in VALIDATOR.iter_errors(read(file.read_text(encoding="utf-8")))]
        assert errors == [], file


@pytest.mark.parametrize(
    "text",
    [
        "cases: []",
        "tables: x",
        "cases: [{name: a, sql: SELECT 1, expct: x}]",
        "cases: [{sql: SELECT 1, expect: x}]",
        "cases: [{name: a, sql: SELECT 1, error: x-y, modes: [stram]}]",
        "cases: [{name: a, sql: SELECT 1, error: x-y, batches: two}]",
        "cases: [{name: a, sql: SELECT 1, rows: [1], error: x-y}]",
        "cases: [{name: a, steps: [{sql: SELECT 1, error: x-y}, {sql: SELECT 2, error: x-y, on_change: rebuild}]}]",
    ],
)
def test_what_the_reader_rejects_is_not_valid(text: str) -> None:
    with pytest.raises(UsageError):
        loads(text)
    assert not VALIDATOR.is_valid(read(text))
