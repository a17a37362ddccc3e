"""Values of repeatable options: `--conf k=v`, `--var k=v`, `--sink table=answer`.

This module imports little: the shell reads its options before its prompt is on the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from everfold.errors import UsageError
from everfold.secrets import redact_log

if TYPE_CHECKING:
    from everfold.jobs.rewind import Moved

_Answer = TypeVar("_Answer", bound=StrEnum)


def parse_pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """Parse the `k=v` values of a repeatable option. Raises UsageError `wrong-option-value`."""
    found: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError.of(
                "wrong-option-value",
                f"`{option} {redact_log(text)}` has no `=`",
                help=f"write {option} name=value",
            )
        found[key.strip()] = value
    return found


def parse_answers(values: Sequence[str], option: str, answers: type[_Answer]) -> dict[str, _Answer]:
    """Parse the `table=answer` values of an option.

    Raises UsageError `wrong-option-value`.
    """
    parsed = parse_pairs(values, option)
    for table, answer in parsed.items():
        if answer not in list(answers):
            options = " or ".join(f"{option} {table}={choice}" for choice in answers)
            names = ", ".join(f"`{choice}`" for choice in answers)
            raise UsageError.of(
                "wrong-option-value",
                f"`{option} {table}={answer}`: the value is not one of {names}",
                help=f"write {options}",
            )
    return {table: answers(answer) for table, answer in parsed.items()}


def parse_sources(values: Sequence[str]) -> tuple[dict[str, Moved], dict[str, str]]:
    """Parse the values of `--source` (`split_sources`). Raises UsageError `wrong-option-value`."""
    from everfold.jobs.rewind import split_sources

    return split_sources(pair for value in values for pair in parse_pairs([value], "--source").items())
