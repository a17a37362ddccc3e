"""Paths as users write them, and how Spark is given local ones.

A local path may be written as `file:` URI. Another scheme names a file system; without a check,
`ftp://host/job` would be a local folder named `ftp:`. Spark always gets a scheme, because its
default file system may be another one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from everfold.errors import UsageError
from everfold.secrets import CONTAINER_SCHEMES

SCHEMES = ("s3a", "hdfs", "gs", "abfs", "abfss")
"""The stores besides the local disk; `gs` and the last two were not tried."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_LOCAL = "file"
_S3 = ("s3", "s3n")
_GLOB = re.compile(r"([\\*?\[\]{}])")


def foreign_scheme(text: str) -> str | None:
    """Return the scheme of a path that is not local in lower case, None for a local path."""
    found = _SCHEME.match(text)
    scheme = None if found is None else found[1].lower()
    return None if scheme == _LOCAL else scheme


def is_remote(text: str | os.PathLike[str]) -> bool:
    """Return whether a path is the URI of a supported store besides the local disk."""
    path = os.fspath(text)
    return foreign_scheme(path) in SCHEMES and "://" in path


def has_credentials(path: str) -> bool:
    """Return whether a URI names a user or password, as `s3a://key:secret@bucket/folder` does."""
    user, at, _ = path.partition("://")[2].partition("/")[0].rpartition("@")
    return at != "" and (foreign_scheme(path) not in CONTAINER_SCHEMES or ":" in user)


def require_no_credentials(path: str) -> None:
    """Check that a path can be shown. Raises UsageError `credentials-in-path`."""
    if has_credentials(path):
        raise UsageError.of("credentials-in-path", "the URI has a user name or password")


def suggest_path(text: str) -> str:
    """Return what to write instead of a path with a scheme that is not supported."""
    scheme = foreign_scheme(text) or _LOCAL
    if scheme in _S3:
        return f"write s3a{text[len(scheme) :]}"
    if "//" in text:
        return f"mount the file system, and use its local path; other stores: {', '.join(SCHEMES)}"
    return f"mount the file system, and use its local path; a local name: ./{text}"


def parse_local_path(text: str | os.PathLike[str]) -> Path:
    """Return a local path, also from a `file:` URI.

    Raises UsageError `file-system` for a path of another file system, `credentials-in-path`.
    """
    path = os.fspath(text)
    require_no_credentials(path)
    scheme = foreign_scheme(path)
    if scheme is not None:
        raise UsageError.of(
            "file-system",
            f"`{path}`: paths of `{scheme}` are not supported{' here' if is_remote(path) else ''}",
            help="name a local path" if is_remote(path) else suggest_path(path),
        )
    return Path(unquote(urlsplit(path).path) if path[: len(_LOCAL) + 1].lower() == f"{_LOCAL}:" else path)


def spark_path(path: Path) -> str:
    """Return an absolute path for Spark's writers and for readers of one file or folder."""
    return f"{_LOCAL}://{path}"


def spark_pattern(path: Path) -> str:
    """Return an absolute path for Spark's readers, which take it for a glob."""
    return escape_pattern(spark_path(path))


def escape_pattern(path: str) -> str:
    """Return a pattern that matches a path of Spark only."""
    return _GLOB.sub(r"\\\1", path)
