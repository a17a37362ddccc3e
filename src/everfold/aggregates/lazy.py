"""Polars, imported when a kernel is first built.

The binder asks entries only for types, and must start fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["pl"]

if TYPE_CHECKING:
    import polars as pl
else:

    class _Polars:
        def __getattr__(self, name: str) -> Any:
            found = getattr(importlib.import_module("polars"), name)
            setattr(self, name, found)  # asked for once
            return found

    pl = _Polars()
