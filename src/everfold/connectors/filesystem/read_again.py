"""Read files again as they were when a job read them.

A file may have grown since. Its first bytes, as many as the job has read, are copied to the job
directory and read there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from everfold.checkpoint.file_log import LoggedFile
from everfold.connectors.connector_errors import file_system_error
from everfold.connectors.contract import SourceContext, no_past_error
from everfold.connectors.filesystem.known_files import find_stamp, read_known_files, record_of_files
from everfold.connectors.filesystem.paths import display_path
from everfold.files import make_private_folder

READ_AGAIN = "read_again"
"""The folder of the copies in a job directory."""
_BLOCK_BYTES = 16 << 20


def copies_folder(context: SourceContext) -> Path | None:
    """Return the folder of the copies, None if the job directory is not on this machine."""
    job = None if context.job_folder is None else context.job_folder.local_path
    return None if job is None else job / READ_AGAIN


def restore_read_files(context: SourceContext, files: Mapping[str, LoggedFile], root: Path) -> list[str]:
    """Return the paths of files as the job has read them.

    The copy of a file that has grown is at the path of the file below `copies_folder`. files: by
    path. root: the table's folder. Raises StateError `no-past` if what was read of a file is
    unknown or gone, ConnectorError `disk-full` and similar.
    """
    copies = copies_folder(context)
    known = read_known_files(record_of_files(context))
    paths = []
    for path, file in files.items():
        stamp, recorded = find_stamp(file.path), known.get(os.path.relpath(path, root))
        read_bytes = None if recorded is None else recorded.read_bytes
        # Earlier releases have not recorded sizes; an archive may have times in whole seconds.
        is_same_second = stamp is not None and stamp[0] // 1000 == file.modified_ms // 1000
        if stamp is None or stamp[1] == read_bytes or (read_bytes is None and is_same_second):
            paths.append(path)
            continue
        if copies is None or read_bytes is None or stamp[1] < read_bytes:
            shown = display_path(path, context.base_folder)
            raise no_past_error(context.table, f"the file `{shown}` has changed since the job read it")
        copy = Path(f"{copies}{path}")
        try:
            _copy_start(file.path, copy, read_bytes)
        except OSError as wrong:
            message = f"table `{context.table.name}`: `{copies}` cannot be written"
            raise file_system_error(wrong, message, "mend that and run the same command again") from wrong
        os.utime(copy, ns=(file.modified_ms * 1_000_000,) * 2)
        paths.append(str(copy))
    return paths


def _copy_start(file: Path, copy: Path, size: int) -> None:
    """Copy the first bytes of a file."""
    make_private_folder(copy.parent)
    handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(file, "rb") as source, open(handle, "wb") as target:
        while size > 0 and (block := source.read(min(size, _BLOCK_BYTES))):
            target.write(block)
            size -= len(block)
