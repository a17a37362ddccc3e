"""A job directory: one process at a time, one query, and a manifest that is complete or absent."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from manifests import newest_manifest, replace_manifest
from unit.job_dirs import carry_out, open_dir, start_job

from everfold.checkpoint.copying import copy_checkpoint
from everfold.checkpoint.logs import add_source_positions, read_positions, restore_positions
from everfold.compat import CompatOptions, shape_of
from everfold.compat.kept_types import find_changed_types
from everfold.compat.serde import from_json, to_json
from everfold.connectors.registry import apply_connector
from everfold.errors import StateError
from everfold.files import make_private_file
from everfold.jobs.change import OnChange
from everfold.jobs.engine import _warn
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import MANIFEST_FORMAT, Manifest
from everfold.jobs.rewind import Consent
from everfold.plan.nodes import Root
from everfold.sql.planner import Session, Submit
from everfold.storage import local

DDL = "CREATE TABLE t (ts TIMESTAMP(3), n INT, WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka', 'properties.password' = 'hunter2');"
DDL += DDL.replace("TABLE t", "TABLE u")
QUERY = "SELECT window_end, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"


def roots(query: str = QUERY) -> tuple[Root, ...]:
    (*_, last) = Session().run(DDL + query)
    assert isinstance(last, Submit)
    return last.roots


def open_job(
    path: Path, query: str = QUERY, zone: str = "UTC", how: OnChange = OnChange.REFUSE, refresh: bool = False
) -> Manifest:
    return start_job(path, roots(query), zone=zone, how=how, refresh=refresh)


def add_checkpoint(path: Path, *, begun: int = 3, done: int = 3) -> Path:
    """Write the files that Spark leaves after some batches, as far as a change reads them."""
    checkpoint = path / "checkpoints" / "0"
    metadata = checkpoint / "state" / "0" / "_metadata" / "v2"
    for folder, count in ((checkpoint / "offsets", begun), (checkpoint / "commits", done)):
        folder.mkdir(parents=True)
        for at in range(count + 1):
            (folder / str(at)).write_text("v1\n{}")
    (checkpoint / "metadata").write_text('{"id":"19c7a3bf-22bc-4de0-ba9f-96c0caea76a0"}')
    metadata.mkdir(parents=True)
    (metadata / "0").write_text(f'v2\n{{"path":"file:{checkpoint}/state/0/_stateSchema/default/0_x"}}')
    (metadata / ".0.crc").write_bytes(b"crc")
    return checkpoint


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    first, second = JobDir(local(tmp_path)), JobDir(local(tmp_path))
    first.lock()
    with pytest.raises(StateError, match=r"job-is-running.*process \d+"):
        second.lock()
    first.release()
    second.lock()
    second.release()


def test_the_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    """It was killed while it created or replaced a file; other hidden files stay."""
    open_job(tmp_path)
    left = [
        tmp_path / name
        for name in (".last_batch.json.7.new", "manifest/.2.json.7.9.part", "sinks/0_t/.0-1.json.x.part")
    ]
    kept = [tmp_path / "control" / ".hidden", tmp_path / "sinks" / "0_t" / "0-1.json"]
    for file in (*left, *kept):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{")
    with JobDir(local(tmp_path)).locked():
        assert not [file for file in left if file.exists()]
        assert all(file.exists() for file in kept)


def test_the_same_query_resumes(tmp_path: Path) -> None:
    assert open_job(tmp_path) == open_job(tmp_path)


@pytest.mark.parametrize(
    "same",
    [
        QUERY.replace("FROM", "\n  FROM  -- the same\n"),
        QUERY.replace("SUM(n)", "SUM(n) AS total"),
        QUERY.replace("TABLE t,", "(SELECT * FROM t),"),
    ],
    ids=["white space", "name", "query in between"],
)
def test_another_spelling_is_not_a_change(tmp_path: Path, same: str) -> None:
    fingerprint = open_job(tmp_path).version.fingerprint
    again = open_job(tmp_path, same).version
    assert (again.number, again.fingerprint) == (0, fingerprint)
    assert open_job(tmp_path, QUERY.replace("SUM(n)", "SUM(n) + 1")).version.number == 1


MORE = QUERY.replace("SUM(n)", "SUM(n), COUNT(*)")


@pytest.mark.parametrize(
    ("query", "zone", "code"),
    [
        (QUERY.replace("SUM(n)", "MAX(n)"), "UTC", "incompatible-change"),
        (MORE, "UTC", "partial-change"),
        (QUERY, "Asia/Tokyo", "changed-zone"),
    ],
    ids=["incompatible", "partial", "zone"],
)
def test_a_refused_change_leaves_the_job_unchanged(tmp_path: Path, query: str, zone: str, code: str) -> None:
    before = open_job(tmp_path)
    with pytest.raises(StateError, match=code):
        open_job(tmp_path, query, zone)
    assert open_job(tmp_path) == before


def test_a_change_is_a_new_version_with_its_own_checkpoint(tmp_path: Path) -> None:
    open_job(tmp_path)
    old = add_checkpoint(tmp_path)
    files = {file: file.read_bytes() for file in old.rglob("*") if file.is_file()}
    manifest = open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    assert [(each.number, each.epoch) for each in manifest.versions] == [(0, 0), (1, 1)]
    assert manifest.current == 1
    assert open_job(tmp_path, MORE) == manifest
    new = tmp_path / "checkpoints" / "1"
    assert (new / "commits" / "3").samefile(old / "commits" / "3")
    assert f"file:{new}/state/0/_stateSchema" in (new / "state" / "0" / "_metadata" / "v2" / "0").read_text()
    assert not (new / "state" / "0" / "_metadata" / "v2" / ".0.crc").exists()
    assert {file: file.read_bytes() for file in old.rglob("*") if file.is_file()} == files


def test_a_change_that_is_not_settled_leaves_the_job_unchanged(tmp_path: Path) -> None:
    before = open_job(tmp_path)
    add_checkpoint(tmp_path)
    assert open_dir(tmp_path, roots(MORE), how=OnChange.ACCEPT).manifest.current == 1
    assert open_job(tmp_path) == before
    assert not (tmp_path / "checkpoints" / "1").exists()


def test_an_aggregate_that_is_added_again_starts_from_scratch(tmp_path: Path) -> None:
    open_job(tmp_path, MORE)
    open_job(tmp_path, QUERY)
    manifest = open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    (operator,) = manifest.version.query_shapes[0].operators
    assert [(call.label, call.since) for call in operator.calls] == [("SUM(n)", 0), ("COUNT(*)", 2)]
    (root,) = open_dir(tmp_path, roots(MORE)).roots
    (shape,) = [shape_of(root)]
    assert [call.since for call in shape.operators[0].calls] == [0, 2]


def test_an_interrupted_copy_is_started_again(tmp_path: Path) -> None:
    open_job(tmp_path)
    add_checkpoint(tmp_path)
    for left in (".1.new", "1"):
        (tmp_path / "checkpoints" / left / "commits").mkdir(parents=True)
        (tmp_path / "checkpoints" / left / "commits" / "9").write_text("junk")
    open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    assert {each.name for each in (tmp_path / "checkpoints").iterdir()} == {"0", "1"}
    assert not (tmp_path / "checkpoints" / "1" / "commits" / "9").exists()


def test_an_unfinished_batch_belongs_to_the_old_query(tmp_path: Path) -> None:
    before = open_job(tmp_path)
    add_checkpoint(tmp_path, begun=4, done=3)
    with pytest.raises(StateError, match=r"unfinished-batch.*\n.*run the old query once more"):
        open_job(tmp_path, MORE, how=OnChange.ACCEPT)
    assert open_job(tmp_path) == before


def test_a_reset_discards_the_state_and_keeps_the_input_position(tmp_path: Path) -> None:
    open_job(tmp_path)
    add_checkpoint(tmp_path)
    other = QUERY.replace("SUM(n)", "MAX(n)")
    manifest = open_job(tmp_path, other, how=OnChange.RESET)
    assert (manifest.current, manifest.version.state_epoch) == (1, 1)
    assert (tmp_path / "checkpoints" / "1" / "offsets" / "3").exists()
    assert open_job(tmp_path, other.replace("MAX(n)", "MAX(n), COUNT(*)"), how=OnChange.ACCEPT).version.state_epoch == 1
    over = f"SELECT window_end, COUNT(*) FROM ({other}) AS w (window_end, m) GROUP BY window_end"
    manifest = open_job(tmp_path, over, how=OnChange.RESET)
    assert (manifest.version.operators, manifest.version.state_epoch) == (("w2", "w1"), 3)


def test_operators_that_swap_positions_keep_their_state(tmp_path: Path) -> None:
    sides = ["SELECT n, SUM(n) AS s FROM t GROUP BY n", "SELECT n, MAX(n) AS s FROM t GROUP BY n"]
    assert open_job(tmp_path, " UNION ALL ".join(sides)).version.operators == ("w1", "w2")
    add_state(tmp_path / "checkpoints" / "0", 2)
    swapped = open_job(tmp_path, " UNION ALL ".join(reversed(sides)))
    assert swapped.version.operators == ("w2", "w1")
    checkpoint = tmp_path / "checkpoints" / "1"
    for at, before in enumerate((1, 0)):
        state = checkpoint / "state" / str(at)
        assert (state / "0" / "1.zip").read_text() == f"state {before}"
        parsed = json.loads((state / "_metadata" / "v2" / "0").read_text().splitlines()[1])
        assert parsed["operatorInfo"]["operatorId"] == at
        assert parsed["stateStoreInfo"][0]["stateSchemaFilePaths"] == [f"file:{checkpoint}/state/{at}/_stateSchema/s"]
    ids = json.loads((checkpoint / "commits" / "0").read_text().splitlines()[1])["stateUniqueIds"]
    assert ids == {"0": [["id 1"]], "1": [["id 0"]]}
    assert open_job(tmp_path, " UNION ALL ".join(sides)).version.operators == ("w1", "w2")


def test_dropped_operators_lose_their_state_and_sources_keep_their_positions(tmp_path: Path) -> None:
    old, new = tmp_path / "0", tmp_path / "1"
    add_state(old, 3)
    (old / "offsets" / "0").write_text('v2\n{}\na_1:{"logOffset":4}')
    before = tmp_path / "before"
    add_state(before, 1)
    (before / "offsets" / "0").write_text('v2\n{}\na_1:{"logOffset":2}\nb_2:{"logOffset":7}')
    copy_checkpoint(local(old), local(new), [2, 0])
    assert sorted(each.name for each in (new / "state").iterdir()) == ["0", "1"]
    assert [(new / "state" / str(at) / "0" / "1.zip").read_text() for at in (0, 1)] == ["state 2", "state 0"]
    restore_positions(local(new), [local(before)])
    assert read_positions(local(new)) == {"a_1": '{"logOffset":4}', "b_2": '{"logOffset":7}'}
    assert read_positions(local(old)) == {"a_1": '{"logOffset":4}'}


GROUP = "SELECT n, SUM(n) AS s FROM t GROUP BY n"
NAMED = "SELECT n, MAX(n) AS s FROM u GROUP BY n UNION ALL SELECT n, COUNT(*) AS s FROM t GROUP BY n"
EXTENDED = CompatOptions(extended=True)
GOLDEN = Path(__file__).parents[2] / "golden" / "state" / "manifest-v2.json"
REMAINDERS = GOLDEN.with_name("job-v3-remainders.tar.gz")
"""A job written at 37dde9e: `MOD` of whole DECIMALs was a DECIMAL, and the elements of COLLECT and
ARRAY_AGG could be NULL.
"""


def graft_query(path: Path, query: str, how: OnChange = OnChange.ACCEPT) -> Manifest:
    return start_job(path, roots(query), extended=True, how=how)


def test_new_operators_start_next_to_reused_ones(tmp_path: Path) -> None:
    open_job(tmp_path, GROUP)
    old = tmp_path / "checkpoints" / "0"
    add_state(old, 1)
    (old / "offsets" / "0").write_text('v2\n{}\nt_0123abcd:{"logOffset":4}\ncontrol_w1:{"logOffset":2}')
    for name in ("t_0123abcd", "control_w1"):
        (old / "sources" / name).mkdir()
        (old / "sources" / name / "0").write_text("v1")
    found = graft_query(tmp_path, f"{NAMED} UNION ALL {GROUP}").version
    assert found.operators == ("w2", "w3", "w1")
    assert [(each["name"], each["table"], each["reader"]) for each in found.sources or ()] == [
        ("u", "u", "w2"),
        ("t_1", "t", "w3"),
        ("t", "t", "w1"),
    ]
    new = tmp_path / "checkpoints" / "1"
    # New readers of a table start where the job already reads it; another table has no position
    # yet.
    controls = {f"control_w{at}": '{"logOffset":2}' for at in (1, 2, 3)}
    assert read_positions(local(new)) == {
        "t_0123abcd": '{"logOffset":4}',
        "t_1_0123abcd": '{"logOffset":4}',
        **controls,
    }
    assert {each.name for each in (new / "sources").iterdir()} == {"t_0123abcd", "t_1_0123abcd", *controls}
    assert {each.name for each in (new / "state").iterdir()} == {"0", "1", "2"}
    ids = json.loads((new / "commits" / "0").read_text().splitlines()[1])["stateUniqueIds"]
    assert ids == {"0": [["id 0"]], "1": [["id 0"]], "2": [["id 0"]]}
    assert {each.name for each in (old / "sources").iterdir()} == {"t_0123abcd", "control_w1"}


def test_a_source_of_recorded_rows_has_its_own_position(tmp_path: Path) -> None:
    add_state(tmp_path / "1", 1)
    (tmp_path / "1" / "offsets" / "0").write_text('v2\n{}\nt_0123abcd:{"logOffset":4}')
    (tmp_path / "sources" / "3" / "t_0123abcd.rows").mkdir(parents=True)
    add_source_positions(local(tmp_path / "1"), {"t_1": "t"}, local(tmp_path / "sources"))
    assert read_positions(local(tmp_path / "1")) == {"t_0123abcd": '{"logOffset":4}'}


def test_an_operator_above_a_reused_one_starts_with_its_rows(tmp_path: Path) -> None:
    open_job(tmp_path, GROUP)
    above = f"SELECT s, COUNT(*) AS c FROM ({GROUP}) GROUP BY s"
    found = graft_query(tmp_path, above, OnChange.REFUSE).version
    assert (found.operators, found.again, found.history) == (("w2", "w1"), ("w1",), 1)


def test_queries_that_cannot_be_grafted_are_refused(tmp_path: Path) -> None:
    open_job(tmp_path / "a", GROUP)
    union = f"{GROUP} UNION ALL {NAMED}"
    with pytest.raises(StateError, match="no-backfill"):
        graft_query(tmp_path / "a", union, OnChange.BACKFILL)
    with pytest.raises(StateError, match="incompatible-change"):
        open_job(tmp_path / "a", union, how=OnChange.ACCEPT)
    open_job(tmp_path / "b", "SELECT n FROM t")
    with pytest.raises(StateError, match="reshaped-query"):
        graft_query(tmp_path / "b", GROUP)


def test_a_manifest_without_sources_must_resume_once_before_grafting(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(GOLDEN.read_bytes())
    assert JobDir(local(tmp_path)).read_manifest() is not None
    with pytest.raises(StateError, match=r"reshaped-query.*\n.*run the old query once more"):
        graft_query(tmp_path, f"SELECT s, COUNT(*) FROM ({MORE}) AS w (e, s, c) GROUP BY s, c, e")
    add_state(tmp_path / "checkpoints" / "1", 1)
    assert open_job(tmp_path, MORE).version.sources == ({"name": "t", "table": "t", "reader": "w1"},)


def add_state(checkpoint: Path, operators: int) -> None:
    """Write the files that Spark keeps of operators in a checkpoint after a batch."""
    for name in ("commits", "offsets", "sources"):
        (checkpoint / name).mkdir(parents=True)
    for at in range(operators):
        (checkpoint / "state" / str(at) / "0").mkdir(parents=True)
        (checkpoint / "state" / str(at) / "0" / "1.zip").write_text(f"state {at}")
        (checkpoint / "state" / str(at) / "_metadata" / "v2").mkdir(parents=True)
        metadata = {
            "operatorInfo": {"operatorId": at},
            "stateStoreInfo": [{"stateSchemaFilePaths": [f"file:{checkpoint}/state/{at}/_stateSchema/s"]}],
        }
        text = json.dumps(metadata, separators=(",", ":"))
        (checkpoint / "state" / str(at) / "_metadata" / "v2" / "0").write_text(f"v2\n{text}")
    ids = {str(at): [[f"id {at}"]] for at in range(operators)}
    (checkpoint / "commits" / "0").write_text("v2\n" + json.dumps({"stateUniqueIds": ids}))
    (checkpoint / "offsets" / "0").write_text("v2\n{}")


@pytest.mark.parametrize("query", [QUERY, MORE, "SELECT n, COUNT(DISTINCT ts) FROM t WHERE n > 0 GROUP BY n"])
def test_shapes_survive_the_manifest(query: str) -> None:
    (shape,) = map(shape_of, roots(query))
    assert from_json(json.loads(json.dumps(to_json(shape)))) == shape


def test_a_job_with_state_of_older_types_resumes_with_those_types(tmp_path: Path) -> None:
    with tarfile.open(REMAINDERS) as archive:
        archive.extractall(tmp_path / "golden", filter="data")
    golden = tmp_path / "golden" / "remainders"
    (*_, last) = Session().run((golden / "job.sql").read_text())
    assert isinstance(last, Submit)
    (tmp_path / "manifest.json").write_bytes((golden / ".everfold" / "job" / "manifest.json").read_bytes())
    folder = JobDir(local(tmp_path))
    old = folder.read_manifest()
    assert old is not None
    add_state(tmp_path / "checkpoints" / "0", len(old.version.operators))
    for number in (1, 1):  # the change, and the same query again
        plan = open_dir(tmp_path, last.roots)
        manifest, made = carry_out(tmp_path, plan), plan.roots
        assert manifest.version.number == number
        assert manifest.version.operators == old.version.operators
        assert [each.input.schema for each in made] == [each.input.schema for each in last.roots]
    for was, now in zip(old.version.query_shapes, manifest.version.query_shapes, strict=True):
        assert find_changed_types(*was.operators, *now.operators) == {}
        assert {call.since for call in now.operators[0].calls} <= {0}
    counts = manifest.version.query_shapes[1].operators[0]
    assert [each.type for each in counts.kept.expressions] == ["DECIMAL(10, 0)", "INT NOT NULL"]


LINES = """CREATE TABLE t (k STRING, x INT, y INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv');
SELECT k, SUM(x) FROM t GROUP BY k"""
SWAPPED = LINES.replace("x INT, y INT", "y INT, x INT")


def test_a_job_without_column_positions_records_them_when_it_resumes(tmp_path: Path) -> None:
    def run(query: str) -> Manifest:
        (*_, last) = Session(connected=apply_connector).run(query)
        assert isinstance(last, Submit)
        return start_job(tmp_path, last.roots)

    made = run(LINES)
    read = json.loads(newest_manifest(tmp_path).read_text())
    read["versions"][0]["shapes"][0]["operators"][0].pop("positions")
    read["format"] = 3
    replace_manifest(tmp_path, read)
    assert JobDir(local(tmp_path)).read_manifest() != made
    assert run(LINES) == made
    with pytest.raises(StateError, match=r"`t\.x` was field 2 of the line and is now field 3 of the line"):
        run(SWAPPED)
    replace_manifest(tmp_path, read)
    assert run(SWAPPED).current == 1


def test_a_damaged_manifest_is_reported(tmp_path: Path) -> None:
    open_job(tmp_path)
    newest_manifest(tmp_path).write_text("{")
    with pytest.raises(StateError, match="damaged-manifest"):
        open_job(tmp_path)


def test_a_manifest_of_a_newer_everfold_is_refused(tmp_path: Path) -> None:
    open_job(tmp_path)
    file = newest_manifest(tmp_path)
    file.write_text(file.read_text().replace(f'"format": {MANIFEST_FORMAT}', '"format": 99'))
    with pytest.raises(StateError, match="newer-manifest"):
        open_job(tmp_path)


def test_secrets_stay_out_of_the_manifest(tmp_path: Path) -> None:
    open_job(tmp_path)
    assert "hunter2" not in newest_manifest(tmp_path).read_text()


def record_control_file(path: Path, epoch: int, name: str) -> None:
    """Write what Spark records of a control file that a batch was planned with."""
    log = path / "checkpoints" / str(epoch) / "sources" / "control_w1" / "0"
    log.parent.mkdir(parents=True)
    log.write_text(f'v1\n{{"path":"file:/job/control/{name}","timestamp":1,"batchId":0}}')


def test_a_change_before_the_last_backfill_is_refused(tmp_path: Path) -> None:
    open_job(tmp_path)
    add_checkpoint(tmp_path)
    assert open_job(tmp_path, MORE, how=OnChange.BACKFILL).version.is_backfilled
    part = tmp_path / "backfill" / "1" / "part-0"
    part.parent.mkdir(parents=True)
    part.write_text("past w1 0 ")
    with pytest.raises(StateError, match="unfinished-change"):
        open_job(tmp_path, how=OnChange.ACCEPT)
    assert open_job(tmp_path, MORE).version.number == 1
    record_control_file(tmp_path, 1, "past-1-part-0")
    assert open_job(tmp_path, how=OnChange.ACCEPT).version.number == 2


def test_a_refresh_creates_a_version_that_re_emits_the_result(tmp_path: Path) -> None:
    query = "SELECT n, COUNT(*) FROM t GROUP BY n"
    open_job(tmp_path, query)
    add_checkpoint(tmp_path)
    version = open_job(tmp_path, query, refresh=True).version
    assert (version.number, version.again, version.history, version.is_backfilled) == (1, ("w1",), 1, False)
    assert (tmp_path / "backfill" / "1" / "part-again").read_text() == "again w1\n"
    # The same command again, as after a kill: the first batch of that version has not run yet.
    assert open_job(tmp_path, query, refresh=True).version.number == 1
    record_control_file(tmp_path, 1, "past-1-part-again")
    assert open_job(tmp_path, query).version.number == 1
    assert open_job(tmp_path, query, refresh=True).version.number == 2
    assert open_job(tmp_path, QUERY, how=OnChange.RESET, refresh=True).version.again == ()


def list_modes(folder: Path) -> dict[str, int]:
    """Return the modes of a directory and of everything in it."""
    return {str(each.relative_to(folder)): each.stat().st_mode & 0o777 for each in [folder, *folder.rglob("*")]}


@pytest.mark.parametrize("umask", [0o022, 0])
def test_only_the_owner_can_read_a_job(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        folder = JobDir(local(tmp_path / "missing" / "job"))
        folder.lock()
        open_job(tmp_path / "missing" / "job")
        _warn(folder, Consent(), "a file has changed")
        folder.release()
        there = JobDir(local(tmp_path / "there"))
        (tmp_path / "there").mkdir(mode=0o755)
        (tmp_path / "there").chmod(0o755)
        for name in ("job.log", "lock"):  # as an earlier version or a log rotation creates them
            (tmp_path / "there" / name).touch()
            (tmp_path / "there" / name).chmod(0o666)
        there.lock()
        open_job(tmp_path / "there")
        _warn(there, Consent(), "a file has changed")
        there.release()
    finally:
        os.umask(before)
    assert list_modes(tmp_path / "missing") == {
        ".": 0o700, "job": 0o700, "job/control": 0o700, "job/manifest": 0o700, "job/manifest/1.json": 0o600, "job/lock": 0o600, "job/job.log": 0o600,
    }  # fmt: skip
    assert list_modes(tmp_path / "there") == {
        ".": 0o755,
        "control": 0o700,
        "manifest": 0o700,
        "manifest/1.json": 0o600,
        "lock": 0o600,
        "job.log": 0o600,
    }


def test_a_log_that_is_not_a_regular_file_keeps_its_mode(tmp_path: Path) -> None:
    mode = os.stat(os.devnull).st_mode
    (tmp_path / "job.log").symlink_to(os.devnull)
    make_private_file(tmp_path / "job.log")
    assert os.stat(os.devnull).st_mode == mode
