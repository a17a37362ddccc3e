"""Input files that were read and have changed or were renamed since."""

from __future__ import annotations

import json
import os
from pathlib import Path

from everfold.checkpoint.file_log import uri
from everfold.connectors.filesystem.known_files import ChangedFiles, find_changed_files
from everfold.storage import local

NOTHING = ChangedFiles((), ())


def test_each_change_of_a_file_is_reported_once(tmp_path: Path) -> None:
    log, record, directory = tmp_path / "log", tmp_path / "record.json", tmp_path / "in"
    log.mkdir()
    directory.mkdir()
    files = [directory / f"{at}.json" for at in range(4)]
    lines = ["v1"]
    for at, file in enumerate(files):
        file.write_text("x" * (at + 1))
        os.utime(file, (1000 + at, 1000 + at))
        lines.append(json.dumps({"path": uri(file), "timestamp": (1000 + at) * 1000, "batchId": 0}))
    (log / "0").write_text("\n".join(lines))

    def look() -> ChangedFiles:
        return find_changed_files(local(log), local(record), directory, 0)

    assert look() == NOTHING
    files[0].write_text("more")  # other size and other time
    files[1].write_text("more")
    os.utime(files[1], (1001, 1001))  # other size only
    os.utime(files[2], (2000, 2000))  # other time only
    assert look() == ChangedFiles((files[0], files[1], files[2]), ())
    assert look() == NOTHING
    renamed = files[3].rename(directory / "renamed.json")
    (directory / "new.json").write_text("xxxx")
    assert look() == ChangedFiles((), ((renamed, files[3]),))


def test_a_change_before_the_first_check_is_detected_by_its_time(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    file = tmp_path / "a.json"
    file.write_text("x")
    entry = json.dumps({"path": uri(file), "timestamp": 1, "batchId": 0})
    (tmp_path / "log" / "0").write_text(f"v1\n{entry}")
    assert find_changed_files(local(tmp_path / "log"), local(tmp_path / "record.json"), tmp_path, 0).changed == (file,)
