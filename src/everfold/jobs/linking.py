"""One file under two names: how checkpoints and control files are copied without being copied."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def link(file: Path, target: Path) -> None:
    """Gives a file a second name. On a file system without links it is copied, and its name appears when it is whole."""
    try:
        os.link(file, target)
    except OSError:
        hidden = target.with_name(f".{target.name}.new")
        shutil.copy2(file, hidden)
        os.rename(hidden, target)
