"""Errors of the Python API name its arguments instead of options of the command line."""

from __future__ import annotations

import pytest

from everfold.errors import Diagnostic, SqlError, StateError
from everfold.jobs.answers import Answer
from everfold.jobs.change import OnChange, list_options
from everfold.jobs.read_cost import NOTHING
from everfold.table.arguments import errors_of_python, name_arguments


@pytest.mark.parametrize(
    ("option", "argument"),
    [
        ("--on-change accept starts new aggregates now", 'on_change="accept" starts new aggregates now'),
        ("or run the query with another --state folder", "or run the query with another state_dir"),
        ("To resume that job: --state /jobs/orders", 'To resume that job: state_dir="/jobs/orders"'),
        ("name another folder with --state", "name another folder with state_dir"),
        ("to accept duplicates, pass --sink-duplicates accept", 'to accept duplicates, pass sink_duplicates="accept"'),
        ("--source orders=new reads the new topics", 'sources={"orders": "new"} reads the new topics'),
        ("--source orders.a=b keeps it", 'sources={"orders.a": "b"} keeps it'),
        ("`--source orders=…`: no such table", '`sources={"orders": "…"}`: no such table'),
        ("`--sink totals=…`: no such table", '`sinks={"totals": "…"}`: no such table'),
        ("--sink totals=refresh", 'sinks={"totals": "refresh"}'),
        ("--prune deletes their rows", "prune=True deletes their rows"),
        ("--refresh re-emits them all", "refresh=True re-emits them all"),
        ("--conf spark.driver.memory=4g", 'conf={"spark.driver.memory": "4g"}'),
        ("run the same command again to resume", "run the same statement again to resume"),
        ("an -- SQL comment", "an -- SQL comment"),
    ],
)
def test_options_become_arguments(option: str, argument: str) -> None:
    assert name_arguments(option) == argument


def test_no_option_is_left_in_the_help_of_a_changed_query() -> None:
    answers = [Answer(how=how, duplicates=how is OnChange.REBUILD, cost=NOTHING) for how in OnChange]
    options = list_options([answer for answer in answers if answer.how is not OnChange.REFUSE])
    assert "--" in options
    assert "--" not in name_arguments(options)


def test_an_error_keeps_its_class_code_and_other_findings() -> None:
    found = (Diagnostic("no-past", "x", help="pass --prune"), Diagnostic("no-job", "y"))
    with pytest.raises(StateError) as caught, errors_of_python():
        raise StateError(*found)
    assert [each.code for each in caught.value.diagnostics] == ["no-past", "no-job"]
    assert caught.value.diagnostics[0].help == "pass prune=True"


def test_an_error_without_options_is_the_same_object() -> None:
    error = SqlError.of("unknown-table", "no table `t`")
    with pytest.raises(SqlError) as caught, errors_of_python():
        raise error
    assert caught.value is error
