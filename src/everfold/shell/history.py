"""The history of a shell: a private file in which secrets are stars."""

from __future__ import annotations

from pathlib import Path

from prompt_toolkit.history import FileHistory

from everfold.files import make_private_file, make_private_folder
from everfold.secrets import redact_script


class PrivateHistory(FileHistory):
    """A history file that only its owner can read. Values of secret options are not stored.

    In the shell that they were typed in, statements come back with their secrets. Raises OSError if
    the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        make_private_folder(path.parent)
        make_private_file(path)
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        """Append an input to the file, without its secrets."""
        super().store_string(redact_script(string))
