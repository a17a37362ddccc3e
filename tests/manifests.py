"""The manifest files of a job directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path


def newest_manifest(folder: Path) -> Path:
    """Return the manifest that counts: the one with the highest number, or that of old releases."""
    numbered = sorted((folder / "manifest").glob("*.json"), key=lambda file: int(file.stem))
    return numbered[-1] if numbered else folder / "manifest.json"


def replace_manifest(folder: Path, members: dict[str, object]) -> None:
    """Replace the manifests by one as an old release wrote it, without a number and a checksum."""
    shutil.rmtree(folder / "manifest")
    old = {name: value for name, value in members.items() if name not in ("checksum", "writer")}
    (folder / "manifest.json").write_text(json.dumps(old))
