"""The cache folder: `$EVERFOLD_CACHE`, or `~/.cache/everfold` by default.

It holds only files that everfold can create or download again. Any of them may be deleted.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder. It may not exist yet."""
    configured = os.environ.get("EVERFOLD_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "everfold"
