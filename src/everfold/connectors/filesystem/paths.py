"""Paths of a filesystem table: where it lies, which files belong to it, and the folders of its partitions."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from everfold.connectors.connector_errors import trouble
from everfold.connectors.formats.text_decode import excerpt
from everfold.connectors.options import wrong_option
from everfold.errors import ConnectorError, UnsupportedFeature
from everfold.plan.nodes import Table

_SHOWN = 1000
_CLOCK_STEP_NS = 2_000_000_000
"""Two changes within that may give a folder the same time."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_ESCAPED = set("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(0x20)}
"""Characters that a folder's name of a partition does not hold as they are (those that Hive escapes)."""
_HEX = "[0-9A-Fa-f]{2}"


def check_path(table: Table, path: str) -> None:
    """Whether the option `path` names a place that everfold can work with. Raises SqlError."""
    scheme = _SCHEME.match(path)
    if scheme is not None and scheme.group().lower() != "file:":
        raise UnsupportedFeature.of(
            "file-system",
            f"table `{table.name}`: paths of `{scheme.group()[:-1].lower()}` are not supported, only those of this machine",
            dict(table.option_spans).get("path"),
            "mount it, and give its folder",
        )
    if not path.strip() or "\0" in path:
        raise wrong_option(table, "path", "option `path` is no path")


def resolve(path: str, base_folder: Path) -> Path:
    """The place of a table: absolute, links resolved; a relative path is relative to the script's folder."""
    if path[:5].lower() == "file:":
        parts = urlsplit(path)
        path = unquote(parts.path)
    return Path(os.path.realpath(base_folder / path))


def require(table: Table, place: Path, shown: str) -> None:
    """Raises ConnectorError `no-such-path` when nothing is there, `no-permission` when it cannot be read, `link-loop`."""
    if not place.exists():
        raise trouble(
            "no-such-path",
            f"table `{table.name}`: there is no file or folder `{shown}`",
            dict(table.option_spans).get("path"),
            f"it would be {place}" if shown != str(place) else None,
        )
    if not os.access(place, os.R_OK | (os.X_OK if place.is_dir() else 0)):
        raise trouble(
            "no-permission",
            f"table `{table.name}`: no permission to read `{shown}`",
            dict(table.option_spans).get("path"),
        )
    loop = _loop(place)
    if loop is not None:
        raise trouble(
            "link-loop",
            f"table `{table.name}`: the link `{loop}` leads back to a folder that it lies in: files would be read again and again",
            dict(table.option_spans).get("path"),
            "remove the link",
        )


def _loop(place: Path) -> Path | None:
    """A link below the folder that leads back to a folder it lies in."""
    for folder, folders, _ in os.walk(place, followlinks=True):
        folders[:] = [each for each in folders if not is_hidden(each)]
        for link in (path for name in folders if (path := Path(folder, name)).is_symlink()):
            if os.path.realpath(link) in map(os.path.realpath, link.parents):
                return link
    return None


Listed = dict[str, tuple[int, list[str]]]
"""Folders that were listed: when each had last changed, and the folders in it."""


def check_names(
    table: Table, place: Path, base_folder: Path, *, for_spark: bool = False, listed: Listed | None = None
) -> None:
    """Refuse names that Spark would leave out silently. for_spark: also those of files that it cannot open. listed: folders whose names are known to be good
    unless they have changed; those that are checked are added.

    Raises ConnectorError `bad-file-name`.
    """
    for folder, folders, names in _changed_folders(place, {} if listed is None else listed):
        for name in (each for each in (*folders, *names) if not is_hidden(each)):
            if not _is_unicode(name):
                shown = shown_path(Path(folder, os.fsencode(name).decode("utf-8", "backslashreplace")), base_folder)
                message = f"table `{table.name}`: the name of `{shown}` is not UTF-8, and Spark does not see such files"
                raise trouble("bad-file-name", message, dict(table.option_spans).get("path"), "rename it")
            if for_spark and ":" in name and name in names:
                raise colon_in_name(table, shown_path(Path(folder, name), base_folder))


def _changed_folders(place: Path, listed: Listed) -> Iterator[tuple[str, list[str], list[str]]]:
    """List the folders of a table, without those that have not changed since they were listed: path, names of folders, names of files."""
    if place.is_file():
        yield str(place.parent), [], [place.name]
        return
    waiting = [str(place)]
    while waiting:
        folder = waiting.pop()
        try:
            changed_ns = os.stat(folder).st_mtime_ns
        except OSError:  # it has just gone
            continue
        known_ns, below = listed.get(folder, (0, []))
        if known_ns != changed_ns:
            now_ns = time.time_ns()
            _, folders, names = next(os.walk(folder), (folder, [], []))
            folders = [each for each in folders if not is_hidden(each)]
            yield folder, folders, names
            below = [os.path.join(folder, each) for each in folders]
            if now_ns - changed_ns > _CLOCK_STEP_NS:  # a later change shows in the folder's time
                listed[folder] = (changed_ns, below)
        waiting += below


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def colon_in_name(table: Table, shown: str) -> ConnectorError:
    """The error of a file that Spark cannot open."""
    message = f"table `{table.name}`: `{shown}` has a `:` in its name, and Spark cannot open such files"
    return trouble("bad-file-name", message, dict(table.option_spans).get("path"), "rename it")


def is_hidden(name: str) -> bool:
    """Whether a file or folder of that name is no part of a table: unfinished, a marker, a checksum."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def files(place: Path) -> Iterator[Path]:
    """The files of a table, oldest first (Spark's order too)."""
    if place.is_file():
        yield place
        return
    found: list[tuple[int, Path]] = []
    for folder, folders, names in os.walk(place, followlinks=True):
        folders[:] = sorted(each for each in folders if not is_hidden(each))
        for path in (Path(folder, name) for name in names if not is_hidden(name)):
            with suppress(FileNotFoundError):  # it has just gone, or is a link to nothing
                found.append((path.stat().st_mtime_ns // 1_000_000, path))
    for _, path in sorted(found):
        yield path


def shown_path(path: Path, base_folder: Path) -> str:
    """A path for people: relative to the script's folder where it lies in it. Whoever writes data names files: no name commands a terminal."""
    home = os.path.realpath(base_folder)
    return excerpt(path.relative_to(home) if path.is_relative_to(home) else path, _SHOWN)


# --- partitions -----------------------------------------------------------------------------------


def escape(value: str) -> str:
    """A partition's value as the name of a folder: `%XX` for what a name cannot hold, so that no value leaves its folder."""
    name = "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in value)
    return name.replace(".", "%2E") if name.strip(".") == "" else name


def escape_key(name: str) -> str:
    """Return a partition key as the name of a folder begins with it. No key makes a folder a hidden one."""
    made = escape(name)
    return f"%2E{made[1:]}" if made.startswith(".") else made


def escape_anyway(name: str) -> str:
    """Return the name of a folder with one more character escaped, so that it stands for the same value and is another name."""
    return re.sub(r"[\x20-\x7e]", lambda found: f"%{ord(found[0]):02X}", name, count=1)


def unescape(name: str) -> str:
    """The value that `escape` made the name from."""
    return re.sub(rf"%({_HEX})", lambda found: chr(int(found.group(1), 16)), name)


def unescape_in_spark(name: str) -> str:
    """Return the same as Spark SQL."""
    coded = "concat(char(CAST(conv(substring(piece, 2, 2), 16, 10) AS INT)), substring(piece, 4))"
    pieces = f"transform(split({name}, '(?=%{_HEX})'), piece -> IF(rlike(piece, '^%{_HEX}'), {coded}, piece))"
    return f"IF(instr({name}, '%') = 0, {name}, array_join({pieces}, ''))"


def partition_values(path: Path, place: Path, keys: tuple[str, ...], null_name: str) -> list[str | None] | None:
    """The values of the partition keys of a file, as texts, by the folders it lies in; None if a key is missing."""
    try:
        folders = path.relative_to(place).parts[:-1]
    except ValueError:
        return None
    said: dict[str, str] = {}
    for folder in folders:
        name, equals, value = folder.partition("=")
        if equals:
            said[unescape(name)] = value
    if any(key not in said for key in keys):
        return None
    return [None if said[key] == null_name else unescape(said[key]) for key in keys]
