"""Find the file of a Python module without importing it or its package."""

from __future__ import annotations

import pkgutil
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path

_LOADERS: tuple[tuple[type, list[str]], ...] = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)
"""As Python's own finder of files, whose cache may miss a new file."""


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A module that was found.

    file: its source, None for modules without one: namespace packages and compiled modules.
    is_compiled: whether it is written in another language, or only its bytecode is there. path:
    where its submodules are, None if it is not a package.
    """

    file: Path | None
    is_compiled: bool
    path: tuple[str, ...] | None


def find_module_file(name: str, path: Sequence[str]) -> ModuleFile | None:
    """Return the file of a module, None if there is none. path: where to search, as `sys.path`.

    A submodule is searched for in the folders of its package.
    """
    module: ModuleFile | None = None
    parts = name.split(".")
    for number in range(1, len(parts) + 1):
        module = _find(".".join(parts[:number]), path)
        if module is None:
            return None
        path = module.path or ()
    return module


def _find(name: str, path: Sequence[str]) -> ModuleFile | None:
    if name in sys.builtin_module_names:
        return ModuleFile(file=None, is_compiled=True, path=None)
    portions: list[str] = []
    for spec in _list_specs(name, path):
        if spec.loader is None:
            portions += spec.submodule_search_locations or ()
            continue
        locations = spec.submodule_search_locations
        has_source = isinstance(spec.loader, SourceFileLoader) and spec.origin is not None
        return ModuleFile(
            file=Path(spec.origin) if has_source and spec.origin else None,
            is_compiled=not has_source,
            path=None if locations is None else tuple(locations),
        )
    return ModuleFile(file=None, is_compiled=False, path=tuple(portions)) if portions else None


def _list_specs(name: str, path: Sequence[str]) -> Iterator[ModuleSpec]:
    for entry in path:
        folder = Path(entry)
        finder = FileFinder(entry, *_LOADERS) if folder.is_dir() else _find_archive(entry)
        spec = None if finder is None else finder.find_spec(name)
        if spec is not None:
            yield spec


def _find_archive(entry: str) -> FileFinder | None:
    """Return the finder of modules in a ZIP file, None for another file."""
    if not Path(entry).is_file():
        return None
    finder: FileFinder | None = pkgutil.get_importer(entry)  # type: ignore[assignment]
    return finder


def read_source(file: Path, max_bytes: int) -> bytes | None:
    """Return the content of a source file, None if it is not a regular file or too large."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
        return None
    return file.read_bytes()
