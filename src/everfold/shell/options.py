"""The options of a shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

JOBS_FOLDER = Path(".everfold") / "jobs"
"""The folder of the job directories of INSERTs, below the folder of the shell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellOptions:
    """The command-line options of a shell.

    folder: where relative paths start. jobs: the folder of the job directories; default: in
    `folder`. options: as set by SET, and those of Spark (`spark.*`). init: a script to run first.
    """

    folder: Path = field(default_factory=Path)
    jobs: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    init: Path | None = None

    @property
    def jobs_folder(self) -> Path:
        """The folder of the job directories."""
        return self.jobs or self.folder / JOBS_FOLDER
