"""What the shell shows, as a protocol: the session needs no terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.errors import EverfoldError
    from everfold.jobs.progress import Progress
    from everfold.sql.settings import Settings
    from everfold.types import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultInfo:
    """What is known of a result before its first row.

    is_updating: whether its rows are changes of a table. is_bounded: whether it ends by itself.
    """

    schema: Schema
    settings: Settings
    is_updating: bool
    is_bounded: bool


class ResultView(Protocol):
    """Shows the result of a query. Methods may be called in another thread than `finish`."""

    def write(self, rows: pa.Table) -> None:
        """Take rows."""

    def say(self, activity: str) -> None:
        """Take what the query does now, such as "starting Spark"."""

    def report(self, progress: Progress) -> None:
        """Take the progress of the query."""

    def finish(self) -> None:
        """Show the rows that are not on the screen yet. There are no more."""

    def discard(self) -> None:
        """Show nothing more, also of rows that arrive later."""


class Screen(Protocol):
    """Shows messages and results, and asks."""

    def show_message(self, text: str) -> None:
        """Show what a statement did."""

    def show_note(self, text: str) -> None:
        """Show something that the user should know although nothing is wrong."""

    def show_error(self, error: EverfoldError) -> None:
        """Show an error, with the position in the SQL."""

    def show_table(self, columns: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
        """Show the result of SHOW, DESCRIBE and the like."""

    def open_result(self, info: ResultInfo) -> ResultView:
        """Return a view for the result of a query."""

    def ask(self, question: str, answers: Mapping[str, str], default: str) -> str:
        """Return the user's choice of an answer. answers: with a description of each.

        Ctrl-C chooses the default.
        """
