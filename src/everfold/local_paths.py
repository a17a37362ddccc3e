"""Local paths: how users write them, and how Spark is given them.

A path may be written as `file:` URI. Every other scheme names a file system that everfold does not
support; without a check, `s3a://bucket/job` would be a local folder named `s3a:`. Spark always gets
a scheme, because its default file system may be another one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from everfold.errors import UsageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_LOCAL = "file"
_GLOB = re.compile(r"([\\*?\[\]{}])")


def foreign_scheme(text: str) -> str | None:
    """Return the scheme of a path that is not local in lower case, None for a local path."""
    found = _SCHEME.match(text)
    scheme = None if found is None else found[1].lower()
    return None if scheme == _LOCAL else scheme


def parse_local_path(text: str | os.PathLike[str]) -> Path:
    """Return a local path, also from a `file:` URI.

    Raises UsageError `file-system` for a path of another file system.
    """
    path = os.fspath(text)
    scheme = foreign_scheme(path)
    if scheme is not None:
        raise UsageError.of(
            "file-system",
            f"`{path}`: paths of `{scheme}` are not supported, only local paths",
            help=f"mount the file system, and use its local path{'' if '//' in path else f'; a local name: ./{path}'}",
        )
    return Path(unquote(urlsplit(path).path) if path[: len(_LOCAL) + 1].lower() == f"{_LOCAL}:" else path)


def spark_path(path: Path) -> str:
    """Return an absolute path for Spark's writers and for readers of one file or folder."""
    return f"{_LOCAL}://{path}"


def spark_pattern(path: Path) -> str:
    """Return an absolute path for Spark's readers, which take it for a glob."""
    return _GLOB.sub(r"\\\1", spark_path(path))
