"""One entry of the registry of error codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from textwrap import fill

from everfold.errors import EXIT_FAILED, EXIT_WRONG_USE

_WIDTH = 96
_CODE_SPAN = re.compile(r"`[^`]*`")
_NO_BREAK = "\0"


class Family(Enum):
    """What kind of failure an error is, who can act on it, and the exit code of the command."""

    SQL = ("Wrong SQL, for its author to fix", EXIT_WRONG_USE)
    UNSUPPORTED = ("Valid SQL that everfold does not support, for its author to rewrite", EXIT_WRONG_USE)
    COMMAND = ("A wrong command, file or API call, for its author to fix", EXIT_WRONG_USE)
    SETUP = ("An incomplete installation, for the administrator of the machine to fix", EXIT_WRONG_USE)
    FUNCTION = ("A failed Python function, for its author to fix", EXIT_FAILED)
    DATA = ("Invalid data, for its provider or the author of the SQL to handle", EXIT_FAILED)
    ENVIRONMENT = ("A failure of an external system or of the machine, for its operator to fix", EXIT_FAILED)
    JOB = ("A job that cannot continue as it is, for its operator to decide", EXIT_FAILED)

    def __init__(self, meaning: str, exit_code: int) -> None:
        self.meaning = meaning
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.meaning}. Exit code {self.exit_code}."


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """The documentation of an error code, from which its page is generated.

    meaning: one sentence. why: when and why the error occurs, a short paragraph. fix: what to do, a
    clause that completes "To resolve this, …".
    """

    code: str
    family: Family
    meaning: str
    why: str
    fix: str

    @property
    def page(self) -> str:
        """Return the page of the code: its paragraphs as Markdown, in lines of limited length."""
        return "\n\n".join(map(_wrap, self._paragraphs()))

    def _paragraphs(self) -> Iterator[str]:
        yield self.meaning
        yield self.why
        yield f"To resolve this, {self.fix}"


def _wrap(paragraph: str) -> str:
    """Wrap a paragraph, but not within a code span."""
    solid = _CODE_SPAN.sub(lambda span: span[0].replace(" ", _NO_BREAK), paragraph)
    return fill(solid, _WIDTH, break_on_hyphens=False, break_long_words=False).replace(_NO_BREAK, " ")
