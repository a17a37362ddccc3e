"""Paths of a filesystem table: its location, its files, and the folders of its partitions."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.connectors.formats.text_decode import excerpt
from everfold.connectors.options import wrong_option_error
from everfold.errors import ConnectorError, SqlError, UnsupportedFeature
from everfold.local_paths import foreign_scheme, has_credentials, is_remote, parse_local_path, suggest_path
from everfold.plan.nodes import Table
from everfold.storage import LOCAL, Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_PATH_CHARACTERS = 1000
_CLOCK_STEP_NS = 2_000_000_000
"""Two changes within this time may give a folder the same modification time."""
_ESCAPED = set("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(0x20)}
"""Characters that are escaped in the folder name of a partition (as in Hive)."""
_HEX = "[0-9A-Fa-f]{2}"


def check_path(table: Table, path: str, option: str = "path") -> None:
    """Check that an option is a supported path. Raises SqlError."""
    if has_credentials(path):
        message = f"table `{table.name}`: the URI of `{option}` has a user name or password"
        raise SqlError.of("credentials-in-path", message, table.span_of_option(option))
    scheme = foreign_scheme(path)
    if scheme is not None and not is_remote(path):
        raise UnsupportedFeature.of(
            "file-system",
            f"table `{table.name}`: paths of `{scheme}` are not supported",
            table.span_of_option(option),
            suggest_path(path),
        )
    if not path.strip() or "\0" in path:
        raise wrong_option_error(table, option, f"option `{option}` is not a path")


def resolve(path: str, base_folder: Path) -> Path:
    """Return the absolute path of a table, with links resolved.

    base_folder: the folder of the script, which relative paths are resolved against.
    """
    return Path(os.path.realpath(base_folder / parse_local_path(path)))


def normalize_path(path: str, base_folder: Path) -> str:
    """Return the real path of a table, or its URI in another store."""
    return path.rstrip("/") if is_remote(path) else str(resolve(path, base_folder))


def locate(path: str, base_folder: Path, spark: SparkSession | None) -> Location:
    """Return the location of a table. spark: for a table in another store."""
    if not is_remote(path):
        return Location(str(resolve(path, base_folder)), LOCAL)
    from everfold.storage.hadoop_store import HadoopStore

    assert spark is not None, "tables in other stores are only read and written with Spark"
    return Location(path.rstrip("/"), HadoopStore(spark._jvm, spark._jsc.hadoopConfiguration()))


def require_readable(table: Table, root: Path, shown: str) -> None:
    """Check that the path of a table exists and is readable.

    Raises ConnectorError `no-such-path`, `no-permission`, `link-loop`.
    """
    if not root.exists():
        raise ConnectorError.of(
            "no-such-path",
            f"table `{table.name}`: there is no file or folder `{shown}`",
            table.span_of_option("path"),
            f"the full path is {root}" if shown != str(root) else None,
        )
    if not os.access(root, os.R_OK | (os.X_OK if root.is_dir() else 0)):
        raise ConnectorError.of(
            "no-permission",
            f"table `{table.name}`: no permission to read `{shown}`",
            table.span_of_option("path"),
        )
    loop = _find_loop(root)
    if loop is not None:
        raise ConnectorError.of(
            "link-loop",
            f"table `{table.name}`: the link `{loop}` leads back to a folder that contains it:"
            " files would be read again and again",
            table.span_of_option("path"),
            "move the link to another folder",
        )


def _find_loop(root: Path) -> Path | None:
    """Return a link below the folder that leads back to a folder that contains it."""
    for folder, folders, _ in os.walk(root, followlinks=True):
        folders[:] = [each for each in folders if not is_hidden(each)]
        for link in (path for name in folders if (path := Path(folder, name)).is_symlink()):
            if os.path.realpath(link) in map(os.path.realpath, link.parents):
                return link
    return None


ListedFolders = dict[str, tuple[int, list[str]]]
"""Listed folders: the last modification of each (ns), and its subfolders."""


def check_names(
    table: Table, root: Path, base_folder: Path, *, for_spark: bool = False, listed: ListedFolders | None = None
) -> None:
    """Refuse names that Spark would skip silently, and what is not a file, such as a pipe.

    for_spark: refuse names of files that Spark cannot open, too. listed: folders that were checked
    before; they are checked again only if they have changed, and newly checked ones are added.
    Raises ConnectorError `bad-file-name`, `bad-file`.
    """
    for folder, folders, names, others in _changed_folders(root, {} if listed is None else listed):
        for name in others:
            shown = display_path(Path(folder, name), base_folder)
            message = f"table `{table.name}`: `{shown}` is a pipe, a socket or a device, not a file"
            help = "move it, or give it a name with a leading dot"
            raise ConnectorError.of("bad-file", message, table.span_of_option("path"), help)
        for name in (each for each in (*folders, *names) if not is_hidden(each)):
            if not _is_unicode(name):
                shown = display_path(Path(folder, os.fsencode(name).decode("utf-8", "backslashreplace")), base_folder)
                message = f"table `{table.name}`: the name of `{shown}` is not UTF-8, and Spark does not see such files"
                raise ConnectorError.of("bad-file-name", message, table.span_of_option("path"), "rename it")
            if for_spark and ":" in name and name in names:
                raise colon_in_name_error(table, display_path(Path(folder, name), base_folder))


def _changed_folders(root: Path, listed: ListedFolders) -> Iterator[tuple[str, list[str], list[str], list[str]]]:
    """List the folders of a table that have changed since they were listed.

    Yields path, names of subfolders, names of files, names of what is neither.
    """
    if not root.is_dir():
        is_other = root.exists() and not root.is_file()
        yield str(root.parent), [], [root.name], [root.name] * is_other
        return
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            changed_ns = os.stat(folder).st_mtime_ns
        except OSError:  # it was just deleted
            continue
        known_ns, below = listed.get(folder, (0, []))
        if known_ns != changed_ns:
            now_ns = time.time_ns()
            folders, names, others = _list_folder(folder)
            yield folder, folders, names, others
            below = [os.path.join(folder, each) for each in folders]
            if now_ns - changed_ns > _CLOCK_STEP_NS:  # a later change shows in the folder's time
                listed[folder] = (changed_ns, below)
        waiting += below


def _list_folder(folder: str) -> tuple[list[str], list[str], list[str]]:
    """Return the names of subfolders, of files, and of what is neither, hidden files too."""
    folders, names, others = list[str](), list[str](), list[str]()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                folders += [] if is_hidden(entry.name) else [entry.name]
                continue
            names.append(entry.name)
            if not entry.is_file() and not is_hidden(entry.name) and os.path.exists(entry.path):
                others.append(entry.name)
    return folders, names, others


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def colon_in_name_error(table: Table, shown: str) -> ConnectorError:
    """Return the error for a file that Spark cannot open."""
    message = f"table `{table.name}`: `{shown}` has a `:` in its name, and Spark cannot open such files"
    return ConnectorError.of("bad-file-name", message, table.span_of_option("path"), "rename it")


def is_hidden(name: str) -> bool:
    """Return whether a file or folder does not belong to a table, by its name.

    Such files are unfinished files, markers and checksums.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def list_files(root: Path) -> Iterator[Path]:
    """Yield the files of a table, oldest first, as Spark does."""
    if root.is_file():
        yield root
        return
    files: list[tuple[int, str]] = []
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(each for each in folders if not is_hidden(each))
        for path in (Path(folder, name) for name in names if not is_hidden(name)):
            with suppress(FileNotFoundError):  # it was just deleted, or is a broken link
                files.append((path.stat().st_mtime_ns // 1_000_000, str(path)))
    yield from (Path(path) for _, path in sorted(files))


def display_path(path: Path | str, base_folder: Path) -> str:
    """Return a path or URI for messages: relative to the script's folder if it is inside.

    The path is safe on a terminal: a writer of data can choose any file name.
    """
    if is_remote(path):
        return excerpt(path, _MAX_PATH_CHARACTERS)
    home, path = os.path.realpath(base_folder), Path(path)
    return excerpt(path.relative_to(home) if path.is_relative_to(home) else path, _MAX_PATH_CHARACTERS)


# --- partitions -----------------------------------------------------------------------------------


def escape(value: str) -> str:
    """Return a partition's value as a folder name.

    Characters not allowed in a name become `%XX`, so that no value leads out of its folder.
    """
    name = "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in value)
    return name.replace(".", "%2E") if name.strip(".") == "" else name


def escape_key(name: str) -> str:
    """Return a partition key as a prefix of a folder name. The folder is never a hidden one."""
    escaped = escape(name)
    return f"%2E{escaped[1:]}" if escaped.startswith(".") else escaped


def escape_differently(name: str) -> str:
    """Return a different folder name for the same value, with one more character escaped."""
    return re.sub(r"[\x20-\x7e]", lambda found: f"%{ord(found[0]):02X}", name, count=1)


def unescape(name: str) -> str:
    """Return the value of a folder name, the inverse of `escape`."""
    return re.sub(rf"%({_HEX})", lambda found: chr(int(found.group(1), 16)), name)


def unescape_in_spark(name: str) -> str:
    """Return Spark SQL that does the same as `unescape`."""
    coded = "concat(char(CAST(conv(substring(piece, 2, 2), 16, 10) AS INT)), substring(piece, 4))"
    pieces = f"transform(split({name}, '(?=%{_HEX})'), piece -> IF(rlike(piece, '^%{_HEX}'), {coded}, piece))"
    return f"IF(instr({name}, '%') = 0, {name}, array_join({pieces}, ''))"


def partition_values(path: Path, root: Path, keys: tuple[str, ...], null_name: str) -> list[str | None] | None:
    """Return the values of a file's partition keys as strings, from its folders.

    None if a key is missing.
    """
    try:
        folders = path.relative_to(root).parts[:-1]
    except ValueError:
        return None
    values: dict[str, str] = {}
    for folder in folders:
        name, equals, value = folder.partition("=")
        if equals:
            values[unescape(name)] = value
    if any(key not in values for key in keys):
        return None
    return [None if values[key] == null_name else unescape(values[key]) for key in keys]
