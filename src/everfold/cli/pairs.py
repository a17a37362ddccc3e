"""Values of repeatable options: `--conf k=v`, `--var k=v`.

This module imports little: the shell reads its options before its prompt is on the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.errors import UsageError
from everfold.secrets import redact_log


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
