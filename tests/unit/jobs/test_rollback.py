"""A job goes back to an earlier version, or is rebuilt.

The write of the manifest is the commit point, and nothing is changed before it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from manifests import newest_manifest
from unit.job_dirs import start_job
from unit.jobs.test_folder import MORE, QUERY, add_checkpoint, open_job, roots

from everfold.checkpoint import state_metadata
from everfold.errors import ConnectorError, EverfoldError, StateError, UsageError
from everfold.jobs.change import OnChange
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import MANIFEST_FORMAT, Manifest, Version
from everfold.jobs.rewind import NewSink, check_duplicates
from everfold.jobs.rollback import roll_back
from everfold.jobs.sink_tables import sink_notes
from everfold.storage import Location, local, local_store

OTHER = QUERY.replace("SUM(n)", "MAX(n)")
GOLDEN = Path(__file__).parents[2] / "golden" / "state" / "manifest-v1.json"
TABLES = """
CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'datagen');
CREATE TABLE files (k STRING) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
CREATE TABLE topic (k STRING) WITH ('connector' = 'kafka', 'topic' = 'x', 'properties.bootstrap.servers' = 'h:1', 'format' = 'json');
CREATE TABLE upserts (k STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'x',
  'properties.bootstrap.servers' = 'h:1', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE keyed (k STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/d', 'table-name' = 'x');
CREATE TABLE added (k STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/d', 'table-name' = 'x');
CREATE TABLE shown (k STRING) WITH ('connector' = 'print');
CREATE TABLE nowhere (k STRING) WITH ('connector' = 'blackhole');
"""


def insert_into(*tables: str, query: str = "SELECT k FROM t") -> str:
    """Return a statement set that writes a query to tables."""
    return (
        TABLES + "EXECUTE STATEMENT SET BEGIN " + " ".join(f"INSERT INTO {each} {query};" for each in tables) + " END"
    )


def run(
    path: Path, script: str, how: OnChange = OnChange.REFUSE, sinks: Mapping[str, NewSink] | None = None
) -> Manifest:
    from everfold.sql.planner import Session, Submit

    (*_, last) = Session().run(script)
    assert isinstance(last, Submit)
    return start_job(path, last.roots, how=how, sinks=sinks)


def roll_back_to(path: Path, number: int, *, duplicates: bool = False) -> list[str]:
    """Roll back and return the messages."""
    messages: list[str] = []
    roll_back(local(path), number, duplicates=duplicates, say=messages.append)
    return messages


def content(path: Path) -> dict[str, bytes]:
    """Return all files that are part of a job: its manifest, and the checkpoints that it names."""
    job = JobDir(local(path))
    manifest = job.read_manifest()
    assert manifest is not None
    found = [newest_manifest(path)]
    for version in manifest.versions:
        found += [Path(each.path) for each in job.checkpoint(manifest, version.epoch).walk()]
    return {str(each): each.read_bytes() for each in found}


def numbers(path: Path) -> list[int]:
    return sorted(int(each.name) for each in path.iterdir() if each.name.isdigit())


# --- rollback -------------------------------------------------------------------------------------


def test_a_rollback_makes_an_earlier_version_current(tmp_path: Path) -> None:
    first = open_job(tmp_path)
    old = add_checkpoint(tmp_path)
    open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    (tmp_path / "checkpoints" / "1" / "commits" / "4").write_text("v1\n{}")
    made = roll_back(local(tmp_path), 0, duplicates=False, say=lambda _: None)
    assert (made.number, made.epoch, made.back_to, made.back_after) == (2, 2, 0, 3)
    manifest = open_job(tmp_path)  # the query of that version resumes without a question
    assert manifest.version == made
    assert (made.fingerprint, made.shapes, made.sql) == (
        first.version.fingerprint,
        first.version.shapes,
        first.version.sql,
    )
    new = tmp_path / "checkpoints" / "2"
    assert numbers(new / "commits") == [0, 1, 2, 3]
    assert (new / "commits" / "3").samefile(old / "commits" / "3")
    assert f"file:{new}/state/0/_stateSchema" in (new / "state" / "0" / "_metadata" / "v2" / "0").read_text()
    with pytest.raises(StateError, match="partial-change"):
        open_job(tmp_path, MORE)
    assert open_job(tmp_path, MORE, how=OnChange.ACCEPT).version.number == 3


def test_a_rollback_can_be_undone(tmp_path: Path) -> None:
    open_job(tmp_path)
    add_checkpoint(tmp_path)
    open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    roll_back_to(tmp_path, 0)
    roll_back_to(tmp_path, 1)
    manifest = open_job(tmp_path, MORE)
    assert [each.back_to for each in manifest.versions] == [None, None, 0, 1]
    lineage = manifest.job_lineage
    assert lineage is not None
    assert dict(lineage.last_batches) == {3: None, 1: 3, 0: None}
    assert (lineage.rewind_epoch, lineage.first_discarded_epoch) == (
        3,
        2,
    )  # batches after the first rollback are left out
    again = open_job(tmp_path, MORE.replace("COUNT(*)", "COUNT(*), MAX(n)"), how=OnChange.ACCEPT).job_lineage
    assert again is not None
    assert (again.epoch, again.rewind_epoch, again.first_discarded_epoch) == (4, 3, 2)


@pytest.mark.parametrize(
    ("number", "code"), [(1, "current-version"), (7, "no-version"), (-1, "no-version"), (0, "checkpoint-gone")]
)
def test_a_wrong_rollback_is_refused(tmp_path: Path, number: int, code: str) -> None:
    open_job(tmp_path)
    open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    before = content(tmp_path)
    with pytest.raises(EverfoldError) as caught:
        roll_back_to(tmp_path, number)
    assert caught.value.code == code
    assert content(tmp_path) == before


def test_a_restored_directory_resumes_in_a_new_epoch(tmp_path: Path) -> None:
    open_job(tmp_path)
    old = add_checkpoint(tmp_path, begun=4)
    messages: list[str] = []
    made = roll_back(local(tmp_path), None, duplicates=True, say=messages.append)
    assert (made.number, made.epoch, made.back_to, made.back_after) == (1, 1, 0, 3)
    assert numbers(tmp_path / "checkpoints" / "1" / "offsets") == [0, 1, 2, 3]
    assert numbers(old / "offsets") == [0, 1, 2, 3, 4]
    manifest = open_job(tmp_path)
    assert manifest.abandoned_versions == ()
    lineage = manifest.job_lineage
    assert lineage is not None
    assert (dict(lineage.last_batches), lineage.rewind_epoch) == ({1: None, 0: 3}, 1)
    assert [lineage.includes(0, batch) for batch in (3, 4, 22)] == [True, False, False]
    again = roll_back(
        local(tmp_path), None, duplicates=True, say=messages.append
    )  # should the table know the epoch 1 of a lost change
    assert (again.epoch, again.back_to) == (2, 1)


def test_a_rollback_must_have_the_batches_that_it_was_made_with(tmp_path: Path) -> None:
    """The last batch that the sinks received is one of another epoch, and says nothing here."""
    open_job(tmp_path)
    add_checkpoint(tmp_path)
    open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    (tmp_path / "last_batch.json").write_text('{"epoch": 1, "batch": 9}')
    made = roll_back(local(tmp_path), 0, duplicates=False, say=lambda _: None)
    assert open_job(tmp_path).version == made
    shutil.rmtree(tmp_path / "checkpoints" / "2")
    with pytest.raises(StateError, match=r"damaged-checkpoint.*/offsets/3` is missing: the job has run batch 3"):
        open_job(tmp_path)


def test_a_rollback_to_a_batch_leaves_out_the_later_ones(tmp_path: Path) -> None:
    open_job(tmp_path)
    old = add_checkpoint(tmp_path, begun=4)
    (tmp_path / "last_batch.json").write_text('{"epoch": 0, "batch": 4}')
    made = roll_back(local(tmp_path), 0, batch=1, duplicates=False, say=lambda _: None)
    assert (made.number, made.epoch, made.back_to, made.back_after) == (1, 1, 0, 1)
    new = tmp_path / "checkpoints" / "1"
    assert numbers(new / "commits") == numbers(new / "offsets") == [0, 1]
    assert numbers(old / "commits") == [0, 1, 2, 3]
    manifest = open_job(tmp_path)  # nothing is missing, although the sinks have received batch 4
    lineage = manifest.job_lineage
    assert lineage is not None
    assert [lineage.includes(0, batch) for batch in (1, 2, 4)] == [True, False, False]


@pytest.mark.parametrize("batch", [4, 5, 1000])
def test_a_rollback_to_a_batch_that_is_not_there_is_refused(tmp_path: Path, batch: int) -> None:
    open_job(tmp_path)
    add_checkpoint(tmp_path, begun=4)
    before = content(tmp_path)
    with pytest.raises(StateError, match=f"batch-gone.*does not hold batch {batch}") as caught:
        roll_back(local(tmp_path), 0, batch=batch, duplicates=False, say=lambda _: None)
    assert "it holds 0 to 3" in str(caught.value)
    assert content(tmp_path) == before


def test_a_directory_without_a_job_is_unchanged(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-job"):
        roll_back_to(tmp_path / "missing", 0)
    with pytest.raises(UsageError, match="no-job"):
        roll_back_to(tmp_path, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_running_job_is_not_rolled_back(tmp_path: Path) -> None:
    open_job(tmp_path)
    add_checkpoint(tmp_path)
    open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    running = JobDir(local(tmp_path))
    running.lock()
    with pytest.raises(StateError, match="job-is-running"):
        roll_back_to(tmp_path, 0)
    running.release()
    roll_back_to(tmp_path, 0)
    running.lock()  # released
    running.release()


def test_an_unfinished_batch_is_planned_again(tmp_path: Path) -> None:
    open_job(tmp_path)
    old = add_checkpoint(tmp_path)
    open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    new = tmp_path / "checkpoints" / "1"
    for checkpoint in (old, new):  # neither query finished its last batch
        (checkpoint / "offsets" / "4").write_text("v1\n{}")
        (checkpoint / "offsets" / ".4.crc").write_bytes(b"crc")
    roll_back_to(tmp_path, 0)
    made = tmp_path / "checkpoints" / "2"
    assert numbers(made / "offsets") == numbers(made / "commits") == [0, 1, 2, 3]
    assert not (made / "offsets" / ".4.crc").exists()
    assert numbers(old / "offsets") == [0, 1, 2, 3, 4]


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    open_job(tmp_path)
    old = add_checkpoint(tmp_path)
    open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    (old / "commits" / "3").unlink()
    (old / "commits" / "3").write_text("v1\n{")
    with pytest.raises(StateError, match=r"damaged-checkpoint.*/0/commits/3"):
        roll_back_to(tmp_path, 0)


# --- killed, and a full disk ----------------------------------------------------------------------


class Killed(BaseException):
    """Simulates the end of the process."""


def fail_after(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: BaseException, after: int) -> None:
    """Make a function fail after `after` calls."""
    real: Callable[..., object] = getattr(owner, name)
    calls: list[int] = []

    def fails(*arguments: object, **named: object) -> object:
        if len(calls) >= after:
            raise error
        calls.append(1)
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, fails)


STEPS = [(local_store, "link", 0), (local_store, "link", 5), (state_metadata, "replace_file", 0), (Location, "create", 0), (os, "replace", 0), (os, "replace", 1)]  # fmt: skip
OURS = pytest.mark.parametrize(("owner", "name", "after"), STEPS, ids=lambda each: getattr(each, "__name__", str(each)))
WAYS: dict[str, Callable[[Path], object]] = {
    "rollback": lambda path: roll_back_to(path, 0),
    "accept": lambda path: open_job(path, MORE + " HAVING COUNT(*) > 0", how=OnChange.ACCEPT),
    "rebuild": lambda path: open_job(path, OTHER, how=OnChange.REBUILD),
}
NO_SUCH_STEP = {
    ("rebuild", "link"),
    ("rebuild", "replace_file"),
    ("rebuild", "replace", 1),
}


@pytest.mark.parametrize("way", WAYS)
@OURS
@pytest.mark.parametrize("error", [Killed(), OSError(errno.ENOSPC, "No space left on device")], ids=["killed", "full"])
def test_an_interrupted_change_leaves_the_old_version_unchanged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    owner: object,
    name: str,
    after: int,
    error: BaseException,
) -> None:
    open_job(tmp_path)
    add_checkpoint(tmp_path)
    open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    before = content(tmp_path)
    with monkeypatch.context() as patched:
        fail_after(patched, owner, name, error, after)
        if (way, name) in NO_SUCH_STEP or (way, name, after) in NO_SUCH_STEP:
            WAYS[way](tmp_path)
            return
        with pytest.raises(Killed if isinstance(error, Killed) else ConnectorError, match=r"^$|disk-full"):
            WAYS[way](tmp_path)
    assert content(tmp_path) == before
    WAYS[way](tmp_path)  # the same change succeeds the second time
    manifest = JobDir(local(tmp_path)).read_manifest()
    assert manifest is not None
    assert (len(manifest.versions), manifest.current) == (3, 2)
    left = {each.name for each in (tmp_path / "checkpoints").iterdir()}
    assert left == ({"0", "1"} if way == "rebuild" else {"0", "1", "2"})


def test_a_full_disk_leaves_no_part_of_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_job(tmp_path)
    add_checkpoint(tmp_path)
    fail_after(monkeypatch, local_store, "link", OSError(errno.ENOSPC, "No space left on device"), 3)
    with pytest.raises(ConnectorError, match="disk-full"):
        open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    assert [each.name for each in (tmp_path / "checkpoints").iterdir()] == ["0"]


# --- rebuild --------------------------------------------------------------------------------------

RESHAPED = f"SELECT window_end, COUNT(*) FROM ({QUERY}) AS w (window_end, m) GROUP BY window_end"


@pytest.mark.parametrize(
    ("old", "new"),
    [(QUERY, OTHER), (QUERY, MORE), (QUERY, RESHAPED)],
    ids=["incompatible", "partial", "more operators"],
)
def test_a_rebuild_has_no_checkpoint_and_counts_from_the_beginning(tmp_path: Path, old: str, new: str) -> None:
    open_job(tmp_path, old)
    add_checkpoint(tmp_path, begun=4, done=3)  # the batch that the old query did not finish is irrelevant
    (tmp_path / "checkpoints" / ".1.new").mkdir()
    (tmp_path / "checkpoints" / "1" / "commits").mkdir(parents=True)
    manifest = open_job(tmp_path, new, how=OnChange.REBUILD)
    assert [each.name for each in (tmp_path / "checkpoints").iterdir()] == ["0"]
    assert (manifest.current, manifest.version.rebuilt, manifest.version.state_epoch) == (1, True, 0)
    assert {
        call.since for shape in manifest.version.query_shapes for each in shape.operators for call in each.calls
    } == {0}
    assert open_job(tmp_path, new) == manifest
    assert manifest.origin == 1
    assert manifest.job_lineage is not None
    assert dict(manifest.job_lineage.last_batches) == {1: None}


def test_a_rebuilt_job_can_be_changed_and_rolled_back(tmp_path: Path) -> None:
    open_job(tmp_path)
    add_checkpoint(tmp_path)
    open_job(tmp_path, OTHER, how=OnChange.REBUILD)
    more = OTHER.replace("MAX(n)", "MAX(n), COUNT(*)")
    changed = open_job(tmp_path, more, how=OnChange.ACCEPT)
    assert changed.job_lineage is not None
    assert dict(changed.job_lineage.last_batches) == {2: None, 1: None}
    assert (changed.job_lineage.rewind_epoch, changed.job_lineage.first_discarded_epoch, changed.origin) == (1, None, 1)
    assert [each.epoch for each in changed.abandoned_versions] == [0]
    roll_back_to(tmp_path, 0)
    manifest = open_job(tmp_path)
    assert manifest.job_lineage is not None
    assert dict(manifest.job_lineage.last_batches) == {3: None, 0: 3}
    assert (manifest.job_lineage.rewind_epoch, manifest.job_lineage.first_discarded_epoch, manifest.origin) == (3, 1, 0)
    assert [each.epoch for each in manifest.abandoned_versions] == [1, 2]


def test_a_job_that_was_only_changed_has_nothing_to_undo(tmp_path: Path) -> None:
    assert open_job(tmp_path).job_lineage is None
    manifest = open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    assert manifest.job_lineage is not None
    assert (
        manifest.job_lineage.rewind_epoch,
        manifest.job_lineage.first_discarded_epoch,
        manifest.abandoned_versions,
    ) == (None, None, ())


def test_the_replay_effect_of_each_table_is_recorded_without_its_options(tmp_path: Path) -> None:
    manifest = run(tmp_path, insert_into("files", "topic", "upserts", "keyed", "added", "shown", "nowhere"))
    assert manifest.version.sinks is not None
    assert {each["table"]: each["again"] for each in manifest.version.sinks} == {
        "files": "withdrawn",
        "topic": "twice",
        "upserts": "compared",
        "keyed": "compared",
        "added": "twice",
        "shown": "twice",
        "nowhere": "forgotten",
    }
    assert "postgresql" not in newest_manifest(tmp_path).read_text()
    assert sink_notes(roots()) == ()


def test_a_rollback_reports_the_effect_on_each_table(tmp_path: Path) -> None:
    run(tmp_path, insert_into("files", "keyed", "nowhere"))
    add_checkpoint(tmp_path)
    run(tmp_path, insert_into("files", "keyed", "topic", "nowhere"), OnChange.RESET)
    assert roll_back_to(tmp_path, 0) == [
        "`files` (filesystem): the job's files of later batches are withdrawn when it starts",
        "`keyed` (jdbc): replayed rows overwrite existing rows by PRIMARY KEY; keys that only later versions wrote are counted when the job has caught up, and deleted with --prune",
        "`nowhere` (blackhole): nothing, it keeps no rows",
        "`topic` (kafka): stays as it is: version 0 does not write it",
    ]


def test_a_rollback_over_a_moved_table(tmp_path: Path) -> None:
    script = insert_into("files")
    run(tmp_path, script)
    add_checkpoint(tmp_path)
    run(tmp_path, script.replace("'out'", "'moved'"), sinks={"files": NewSink.REBUILD})
    assert roll_back_to(tmp_path, 0) == [
        "`files` (filesystem): the job's files of later batches are withdrawn when it starts"
    ]
    manifest = JobDir(local(tmp_path)).read_manifest()
    assert manifest is not None
    assert [version.number for version, _ in manifest.lineage(manifest.version)] == [2, 0]
    assert manifest.version.sinks is not None
    assert [note.get("location", "").rpartition("/")[2] for note in manifest.version.sinks] == ["moved"]


@pytest.mark.parametrize("table", ["topic", "added", "shown"])
def test_duplicate_rows_must_be_accepted(tmp_path: Path, table: str) -> None:
    run(tmp_path, insert_into("files", table))
    add_checkpoint(tmp_path)
    run(tmp_path, insert_into("files"), OnChange.RESET)
    before = content(tmp_path)
    with pytest.raises(StateError) as caught:
        roll_back_to(tmp_path, 0)
    assert caught.value.code == "sink-duplicates"
    assert f"`{table}` would hold duplicate rows" in str(caught.value)
    assert "--sink-duplicates accept" in str(caught.value)
    assert content(tmp_path) == before
    roll_back_to(tmp_path, 0, duplicates=True)


def test_tables_without_a_record_need_acceptance(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="were not recorded"):
        check_duplicates(None, accepted=False)
    check_duplicates(None, accepted=True)
    check_duplicates((), accepted=False)


def test_sink_names_of_all_versions_are_collected(tmp_path: Path) -> None:
    run(tmp_path, insert_into("files", "nowhere"))
    add_checkpoint(tmp_path)
    run(tmp_path, insert_into("nowhere"))
    roll_back(local(tmp_path), 0, duplicates=True, say=lambda _: None)
    manifest = JobDir(local(tmp_path)).read_manifest()
    assert manifest is not None
    assert manifest.job_lineage is not None
    assert dict(manifest.job_lineage.sinks) == {"files": {"0_files"}, "nowhere": {"1_nowhere", "0_nowhere"}}


def test_a_start_records_the_tables_as_declared_now(tmp_path: Path) -> None:
    run(tmp_path, insert_into("shown"))
    other = TABLES.replace("'connector' = 'print'", "'connector' = 'blackhole'")
    run(tmp_path, insert_into("shown").replace(TABLES, other))
    manifest = JobDir(local(tmp_path)).read_manifest()
    assert manifest is not None
    assert manifest.version.sinks == (
        {"table": "shown", "connector": "blackhole", "again": "forgotten", "location": ""},
    )
    assert len(manifest.versions) == 1


# --- the manifest's format ------------------------------------------------------------------------


def test_a_manifest_of_the_first_format_is_read_and_rolled_back(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(GOLDEN.read_bytes())
    found = JobDir(local(tmp_path)).read_manifest()
    assert found is not None
    assert [(each.number, each.back_to, each.rebuilt, each.sinks) for each in found.versions] == [
        (0, None, False, None),
        (1, None, False, None),
    ]
    (tmp_path / "checkpoints" / "0").mkdir(parents=True)
    with pytest.raises(StateError, match="sink-duplicates"):
        roll_back_to(tmp_path, 0)
    assert roll_back_to(tmp_path, 0, duplicates=True) == [
        "the tables of version 0 were not recorded: replayed rows may be duplicates there"
    ]
    written = json.loads(newest_manifest(tmp_path).read_text())
    assert (written["format"], written["versions"][2]["back_to"]) == (MANIFEST_FORMAT, 0)
    assert isinstance(written["versions"][2]["sql"], str)
    assert isinstance(Version(**{**written["versions"][2], "shapes": ()}), Version)
