"""The input of a job under another name, at another location, or other input: it is read once, or
the user is asked.

On Spark.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from broker import KafkaBroker
from manifests import newest_manifest, replace_manifest
from spark.running import Done, Run, runner

from everfold import TableEnvironment
from everfold.errors import StateError
from everfold.jobs.job_dir import JobDir, load_manifest
from everfold.storage import Location, local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parents[1] / "golden" / "state" / "job-v3.tar.gz"
SCRIPT = """
CREATE TABLE t (k STRING, x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json');
CREATE TABLE o (w TIMESTAMP(3), k STRING, a BIGINT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'json');
INSERT INTO o SELECT window_start, k, SUM(CAST(x AS BIGINT)) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)
GROUP BY window_start, window_end, k;
"""
HOUR = "2020-01-01 00:00:00"


class Job:
    """A job in a project folder that reads the subfolder `in`, and the expected sums."""

    def __init__(self, run: Run, project: Path) -> None:
        self._run, self.project = run, project
        self.sums: Counter[str] = Counter()
        self._files = 0

    def put(self, x: int, folder: str | Path = "in", *, counted: bool = True) -> Path:
        """Write a file with one row in the first hour."""
        self._files += 1
        # A name that is spelled differently in a URI.
        file = self.project / folder / f"ä #{self._files}%.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"k": "a", "x": x, "ts": f"2020-01-01 00:00:{self._files:02}"}) + "\n")
        self.sums["a"] += x * counted
        return file

    def run(self, path: str | Path = "in", *options: str, script: str = "job.sql") -> Done:
        """Run the job up to the end of its input, and keep its window open."""
        (self.project / "job.sql").write_text(SCRIPT.format(path=path, out=self.project / "out"))
        return self._run(script, "--suspend", *options)

    def run_ok(self, path: str | Path = "in", *options: str, script: str = "job.sql") -> str:
        """Run the job and check that it succeeds. Return what was printed."""
        done = self.run(path, *options, script=script)
        assert done.code == 0, done.err
        return done.err

    def finish(self, path: str | Path = "in") -> None:
        """Run the job to its end: each row counts once."""
        (self.project / "job.sql").write_text(SCRIPT.format(path=path, out=self.project / "out"))
        done = self._run("job.sql")
        assert done.code == 0, done.err
        assert read_rows(self.project) == [(HOUR, key, total) for key, total in self.sums.items()]


def read_rows(project: Path) -> list[tuple[str, str, int]]:
    """Return the rows that the job has written."""
    files = sorted(each for each in (project / "out").iterdir() if each.name[0] not in "._")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted((row["w"], row["k"], row["a"]) for row in rows)


@pytest.fixture
def job(spark: SparkSession, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Job:
    return Job(runner(spark, monkeypatch, capsys, command=("run",)), project)


def test_a_project_that_was_moved_resumes(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.put(1)
    job.put(2)
    job.run_ok()
    moved = tmp_path / "moved here"
    job.project.rename(moved)
    job.project = moved
    monkeypatch.chdir(moved)
    job.put(4)
    job.run_ok(moved / "in")
    assert [each.name for each in (moved / ".everfold" / "job").glob("checkpoints*/*")] == ["0.1"]
    job.finish("./in/")


@pytest.mark.slow
def test_one_location_has_many_spellings(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.put(1)
    job.run_ok("in")
    (tmp_path / "link").symlink_to(job.project / "in")
    (tmp_path / "elsewhere").mkdir()
    absolute = job.project / "in"
    paths: list[str | Path] = ["in/", "./in", "../project/in", absolute, f"file://{absolute}", tmp_path / "link"]
    for at, path in enumerate(paths):
        job.put(2 << at)
        job.run_ok(path)
    monkeypatch.chdir(tmp_path / "elsewhere")
    job.put(256)
    job.run_ok("in", script="../project/job.sql")
    (tmp_path / "jobs").symlink_to(job.project / ".everfold")
    job.put(512)
    job.run_ok(absolute, "--state", "../jobs/job", script="../project/job.sql")
    monkeypatch.chdir(job.project)
    job.finish()


@pytest.mark.slow
def test_the_user_is_asked_about_data_at_another_location(job: Job, tmp_path: Path) -> None:
    job.put(1)
    job.run_ok()
    before = newest_manifest(job.project / ".everfold" / "job").read_bytes()
    (job.project / "in").rename(tmp_path / "archive")
    refused = job.run(tmp_path / "archive")
    assert refused.code == 1
    assert (
        f"table `t`: the job has read `{job.project}/in` (filesystem), but the table is now at `{tmp_path}/archive`"
        in refused.err
    )
    assert "error[changed-source]" in refused.err
    assert "--source t=moved" in refused.err
    assert "--source t=new" in refused.err
    assert newest_manifest(job.project / ".everfold" / "job").read_bytes() == before
    job.put(2, tmp_path / "archive")
    job.run_ok(tmp_path / "archive", "--source", "t=moved")
    job.put(4, tmp_path / "archive")
    assert "t=moved has no effect" in job.run_ok(tmp_path / "archive", "--source", "t=moved")
    job.put(8, tmp_path / "other")
    assert job.run(tmp_path / "other").code == 1
    job.run_ok(tmp_path / "other", "--source", "t=new")
    job.put(16, tmp_path / "other")
    job.run_ok(tmp_path / "other")
    # Back to data that was read before: it counts as other data again, and is read from its start.
    assert job.run(tmp_path / "archive").code == 1
    job.sums["a"] += 1 + 2 + 4
    job.run_ok(tmp_path / "archive", "--source", "t=new")
    job.finish(tmp_path / "archive")


@pytest.mark.slow
def test_the_python_api_accepts_answers(spark: SparkSession, tmp_path: Path) -> None:
    def run(path: str, **answers: object) -> None:
        script = SCRIPT.format(path=path, out="out").replace("'1' HOUR", "'1' SECOND")
        TableEnvironment(spark, base_folder=tmp_path).execute_sql(script, state_dir=tmp_path / "job", **answers)  # type: ignore[call-overload]

    job = Job(lambda *_: Done(0, "", ""), tmp_path)
    job.put(1)
    run("in")
    (tmp_path / "in").rename(tmp_path / "there")
    with pytest.raises(StateError, match="changed-source"):
        run("there")
    job.put(2, "there")
    run("there", sources={"t": "moved"})
    job.put(4, "new")
    run("new", sources={"t": "new"})
    assert [a for _, _, a in read_rows(tmp_path)] == [1, 2, 4]


def downgrade_to_format_3(folder: Path, base_folder: Path) -> None:
    """Turn a job directory into one of an earlier everfold: without locations, its source named
    by the options as spelled.
    """
    from everfold.jobs.sources import name_by_options
    from everfold.sql.planner import Session, Submit

    manifest = json.loads(newest_manifest(folder).read_text())
    manifest.pop("folder")
    manifest["format"] = 3
    [note] = manifest["versions"][0]["sources"]
    new_name = note.pop("spark_name")
    del note["connector"], note["location"]
    (*_, submit) = Session().run((base_folder / "job.sql").read_text())
    assert isinstance(submit, Submit)
    old_name = name_by_options(submit.sources[0], "t", base_folder)
    checkpoint = folder / "checkpoints" / "0"
    (checkpoint / "sources" / new_name).rename(checkpoint / "sources" / old_name)
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        file.write_text(file.read_text().replace(new_name, old_name))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    replace_manifest(folder, manifest)


@pytest.mark.slow
@pytest.mark.parametrize("spelled", ["in", "./in/"])
def test_a_job_of_an_earlier_version_resumes(job: Job, spelled: str) -> None:
    job.put(1)
    job.run_ok()
    folder = job.project / ".everfold" / "job"
    downgrade_to_format_3(folder, job.project)
    job.put(2)
    job.run_ok(spelled)
    found = JobDir(local(folder)).read_manifest()
    assert found is not None
    assert found.version.sources is not None
    assert [each["location"] for each in found.version.sources] == [str(job.project / "in")]
    downgrade_to_format_3(folder, job.project)
    assert job.run(job.put(1000, "other", counted=False).parent).code == 1
    job.finish(spelled)


@pytest.mark.slow
def test_a_moved_job_of_an_earlier_version_resumes(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written at 37dde9e in /srv/shop: two rows and the end of the input, then two rows more,
    of which 20 waits in an open window.
    """
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    shop = tmp_path / "shop"
    monkeypatch.chdir(shop)
    (shop / "in" / "3.json").write_text('{"k":"b","x":300,"ts":"2020-01-01 00:07:30"}\n')
    done = job._run("job.sql", "--suspend")
    assert done.code == 0, done.err
    earlier = [("2020-01-01 00:00:00", "a", 1), ("2020-01-01 00:05:00", "a", 2), ("2020-01-01 00:06:00", "a", 10)]
    # The end of the input at /srv/shop was already processed and is not repeated: the window stays
    # open.
    assert read_rows(shop) == earlier
    done = job._run("job.sql")
    assert done.code == 0, done.err
    assert read_rows(shop) == [*earlier, ("2020-01-01 00:07:00", "b", 320)]


@pytest.mark.slow
def test_a_copied_project_resumes_with_its_own_data(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.put(1)
    job.run_ok()
    copy = tmp_path / "copy"
    shutil.copytree(job.project, copy)
    job.put(1000, counted=False)
    job.project = copy
    monkeypatch.chdir(copy)
    job.put(2)
    job.run_ok()
    os.replace(copy / ".everfold" / "job", tmp_path / "job")  # only the job directory
    job.put(4)
    job.run_ok("in", "--state", str(tmp_path / "job"))
    os.replace(tmp_path / "job", copy / ".everfold" / "job")
    job.finish()


@pytest.mark.slow
def test_files_that_have_changed_since_they_were_read_are_reported(job: Job) -> None:
    appended, same_time, renamed = (job.put(x) for x in (1, 2, 4))
    job.run_ok()
    row = json.dumps({"k": "a", "x": 1000, "ts": "2020-01-01 00:00:30"}) + "\n"
    for file in (appended, same_time):
        before = file.stat()
        with open(file, "a") as out:
            out.write(row)
        if file is same_time:
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    renamed.rename(job.project / "in" / "later.json")
    job.sums["a"] += 4  # its new path makes it another file
    notes = [line for line in job.run_ok().splitlines() if line.startswith("note: ")]
    assert notes == [
        f"note: table `t`: files that changed since they were read; what was added to them is not read: in/{appended.name}, in/{same_time.name}",
        f"note: table `t`: files that were read under another name and are read again: in/later.json (in/{renamed.name} before)",
    ]
    log = (job.project / ".everfold" / "job" / "job.log").read_text()
    assert all(f" WARN everfold: {line.removeprefix('note: ')}" in log for line in notes)
    assert "note:" not in job.run_ok()
    job.finish()


MOVE_STEPS = (
    ("copy_to", "checkpoints/[^/]+", False),
    ("write", "checkpoints/.+", False),
    ("create", "manifest/.+", False),
    ("delete", "checkpoints/[^/]+", True),
)
"""The steps of a move: a method of `Location`, files in the job directory, and whether the manifest
names the moved checkpoint then."""


@pytest.mark.slow
def test_a_move_that_is_killed_is_finished_at_the_next_start(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.put(1)
    job.run_ok()
    (job.project / "in").rename(job.project / "there")
    folder = local(job.project / ".everfold" / "job")
    for step, (method, files, is_decided) in enumerate(MOVE_STEPS):
        kills = Kills(getattr(Location, method), folder, files)
        with monkeypatch.context() as patched:
            patched.setattr(Location, method, lambda file, *rest, kills=kills: kills(file, *rest))
            done = job.run("there", "--source", "t=moved")
        assert (done.code, kills.killed) == (1, True), done.err
        # The new manifest decides: after it the user is not asked again.
        job.put(2 << step, "there")
        if not is_decided:
            assert "error[changed-source]" in job.run("there").err
        job.run_ok("there", *(["--source", "t=moved"] * (not is_decided)))
        (job.project / "there").rename(job.project / "in")
        job.run_ok("in", "--source", "t=moved")
        (used,) = (folder / "checkpoints").iterdir()
        assert used == JobDir(folder).checkpoint(load_manifest(folder), 0)
        (job.project / "in").rename(job.project / "there")
    job.run_ok("there", "--source", "t=moved")
    job.finish("there")


class Kills:
    """A method of `Location` that fails once, before it does anything, for a file of a folder.

    files: a regular expression for the path in the folder.
    """

    def __init__(self, method: Callable[..., Any], folder: Location, files: str) -> None:
        self._method, self._folder, self._files = method, folder, re.compile(files)
        self.killed = False

    def __call__(self, file: Location, *rest: object) -> Any:
        if not self.killed and file.is_in(self._folder) and self._files.fullmatch(file.relative_to(self._folder)):
            self.killed = True
            raise OSError(5, "killed here", str(file))
        return self._method(file, *rest)


KAFKA = """
CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
  'properties.bootstrap.servers' = '{servers}', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
SELECT k, SUM(x) AS a FROM t GROUP BY k;
"""


@pytest.mark.slow
def test_topics_are_identified_by_cluster_and_name(job: Job, kafka_broker: KafkaBroker) -> None:
    name = f"moved-{time.time_ns()}"

    def put(broker: KafkaBroker, topic: str, *xs: int) -> None:
        broker.produce(topic, [(None, json.dumps({"k": "a", "x": x})) for x in xs])

    def run(servers: str, topic: str = name, *options: str) -> Done:
        # A bounded topic keeps the end that it had when the job began; here it needs a new end.
        for ends in Path("state").rglob("*.ends.json"):
            ends.unlink()
        Path("job.sql").write_text(KAFKA.format(topic=topic, servers=servers))
        return job._run("job.sql", "--state", "state", "--format", "json", *options)

    def sums(done: Done) -> list[int]:
        assert done.code == 0, done.err
        return [row["a"] for row in map(json.loads, done.out.splitlines()) if row["op"] in ("+I", "+U")]

    def is_refused(done: Done) -> bool:
        return done.code == 1 and "error[changed-source]: table `t`" in done.err

    port = kafka_broker.bootstrap_servers.rpartition(":")[2]
    here, same = f"127.0.0.1:{port}", f"localhost:{port}"
    for topic in (name, f"{name}-2", f"{name}-3"):
        kafka_broker.create_topic(topic)
    put(kafka_broker, name, 1)
    assert sums(run(here)) == [1]
    put(kafka_broker, name, 2)
    assert sums(run(f"{same},{here}")) == [3]
    put(kafka_broker, name, 4)
    assert sums(run(f"{here},{same}")) == [7]
    put(kafka_broker, f"{name}-2", 1, 2, 4, 8)
    assert is_refused(run(here, f"{name}-2"))
    assert sums(run(here, f"{name}-2", "--source", "t=moved")) == [15]
    put(kafka_broker, f"{name}-3", 100)
    assert sums(run(here, f"{name}-3", "--source", "t=new")) == [115]
    with KafkaBroker("YW5vdGhlcl9jbHVzdGVyXw") as another:
        another.create_topic(f"{name}-3")
        put(another, f"{name}-3", 100, 5)
        assert is_refused(run(another.bootstrap_servers, f"{name}-3"))
        assert sums(run(another.bootstrap_servers, f"{name}-3", "--source", "t=moved")) == [120]
