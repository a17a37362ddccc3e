"""`everfold rollback`, and what `history` and `diff` show after it: output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import newest_manifest
from unit.jobs.test_folder import add_checkpoint
from unit.jobs.test_rollback import insert_into, run

from everfold.jobs.change import OnChange
from everfold.jobs.job_dir import JobDir
from everfold.storage import local


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a job with two versions."""
    monkeypatch.chdir(tmp_path)
    run(Path("job").absolute(), insert_into("keyed", query="SELECT DISTINCT k FROM t"))
    add_checkpoint(Path("job").absolute())
    run(
        Path("job").absolute(), insert_into("keyed", "nowhere", query="SELECT k FROM t GROUP BY k, x"), OnChange.REBUILD
    )


def everfold(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "everfold", *arguments], capture_output=True, text=True, timeout=120)


def test_a_rollback_is_printed_and_recorded() -> None:
    done = everfold("rollback", "job", "0")
    assert (done.returncode, done.stderr) == (
        0,
        "resume with: everfold run SCRIPT --state job, with the script of version 0\n",
    )
    assert done.stdout == (
        "`keyed` (jdbc): replayed rows overwrite existing rows by PRIMARY KEY; keys that only later versions wrote are counted when the job has caught up, and deleted with --prune\n"
        "`nowhere` (blackhole): stays as it is: version 0 does not write it\n"
        "version 0 is current again, as version 2\n"
    )
    shown = everfold("history", "job").stdout
    assert "version 2 (current), since 2" in shown
    assert ", rolled back to version 0\n" in shown
    found = json.loads(everfold("history", "job", "--format", "json").stdout)
    assert [(each["version"], each["current"], each["back_to"], each["rebuilt"]) for each in found] == [
        (0, False, None, False),
        (1, False, None, True),
        (2, True, 0, False),
    ]
    assert "The change is fully compatible." in everfold("diff", "job", "0", "2").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["job", "1"], 1, "error[current-version]: version 1 is already the current one"),
        (["job", "3"], 2, "error[no-version]: the job has no version 3"),
        (["missing", "0"], 2, "missing` is not a job directory"),
        (["job"], 2, "Missing argument 'VERSION'"),
        (["job", "0", "--restored"], 2, "it takes no VERSION"),
        (["job", "x"], 2, "'x' is not a valid integer"),
        (["job", "0", "--sink-duplicates", "yes"], 2, "'yes' is not one of 'refuse', 'accept'"),
    ],
)
def test_a_wrong_rollback_is_refused(arguments: list[str], code: int, words: str) -> None:
    before = newest_manifest(Path("job")).read_bytes()
    done = everfold("rollback", *arguments)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert newest_manifest(Path("job")).read_bytes() == before


def test_a_running_job_and_a_missing_checkpoint_are_refused() -> None:
    running = JobDir(local(Path("job")))
    running.lock()
    done = everfold("rollback", "job", "0")
    assert (done.returncode, "error[job-is-running]" in done.stderr) == (1, True)
    running.release()
    Path("job", "checkpoints", "0").rename("elsewhere")
    done = everfold("rollback", "job", "0")
    assert (done.returncode, "error[checkpoint-gone]: version 0 has no checkpoint" in done.stderr) == (1, True)
    assert "--on-change rebuild" in done.stderr
