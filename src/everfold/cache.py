"""Where everfold keeps what it can make or fetch again: `$EVERFOLD_CACHE`, else `~/.cache/everfold`. Any of it may be deleted."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder; it need not exist yet."""
    named = os.environ.get("EVERFOLD_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "everfold"
