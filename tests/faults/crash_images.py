"""Kill a driver after every operation on its store, at the price of two processes.

A driver that is killed leaves what its store holds at that moment. So one process runs the commands
and copies the content of the store after each operation (an image), and another process continues
from each image, as a user does after a kill: with the same command.

As a program: `crash_images.py record|recover PLAN`.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from warm_process import run_command

BEATS = "everfold-beat"
OPERATIONS = {
    "everfold.storage.local_store:LocalStore": ("create", "write", "copy", "delete", "make_folder"),
    "everfold.storage.hadoop_store:HadoopStore": ("create", "write", "_copy_file", "delete", "make_folder"),
}
File = tuple[str, int]
"""Digest of a file's content, and its time in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Step:
    """Commands of a user. adds: names and contents of input files that appear before."""

    name: str
    commands: Sequence[Sequence[str]]
    adds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run. root: a local folder, or the URI of a folder in a bucket. port: of S3.

    every, copies: of how many operations, and of how many copies within a checkpoint, there is one
    image.
    """

    root: str
    steps: Sequence[Step]
    file: str
    port: int = 0
    every: int = 1
    copies: int = 12


@dataclass(frozen=True, slots=True)
class Image:
    """The content of a store after an operation. step, command: what was being run."""

    step: int
    command: int
    operation: str
    files: Mapping[str, File]
    folders: frozenset[str] = frozenset()


@dataclass(slots=True)
class Recording:
    """The images of a run. contents: of files, by digest. ends: the images after each step."""

    contents: dict[str, bytes] = field(default_factory=dict)
    images: list[Image] = field(default_factory=list)
    ends: list[Image] = field(default_factory=list)

    def read_files(self, image: Image, folder: str) -> dict[str, str]:
        """Return names and contents of the files of an image below a folder."""
        below = {name: digest for name, (digest, _) in image.files.items() if name.startswith(f"{folder}/")}
        return {name: self.contents[digest].decode() for name, digest in below.items()}


class Ground(Protocol):
    """The place of a job and its tables."""

    def write(self, name: str, content: bytes) -> None: ...
    def capture(self, contents: dict[str, bytes]) -> tuple[dict[str, File], frozenset[str]]: ...
    def restore(self, image: Image, contents: Mapping[str, bytes]) -> None: ...


@dataclass(slots=True)
class LocalGround:
    """A folder on this machine."""

    root: Path

    def write(self, name: str, content: bytes) -> None:
        """Create a file."""
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(content)

    def capture(self, contents: dict[str, bytes]) -> tuple[dict[str, File], frozenset[str]]:
        """Return all files and folders, and add the contents of the files."""
        files: dict[str, File] = {}
        folders = set()
        for folder, _, names in os.walk(self.root):
            folders.add(os.path.relpath(folder, self.root))
            for path in (os.path.join(folder, name) for name in names):
                content = Path(path).read_bytes()
                digest = hashlib.sha256(content).hexdigest()
                contents[digest] = content
                files[os.path.relpath(path, self.root)] = digest, os.stat(path).st_mtime_ns
        return files, frozenset(folders)

    def restore(self, image: Image, contents: Mapping[str, bytes]) -> None:
        """Replace everything by an image."""
        shutil.rmtree(self.root)
        for folder in sorted(image.folders):
            (self.root / folder).mkdir(mode=0o700)
        for name, (digest, time_ns) in image.files.items():
            (self.root / name).write_bytes(contents[digest])
            os.utime(self.root / name, ns=(time_ns, time_ns))


@dataclass(slots=True)
class BucketGround:
    """A folder in a bucket."""

    bucket: str
    prefix: str
    client: Any

    def write(self, name: str, content: bytes) -> None:
        """Create an object."""
        self.client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/{name}", Body=content)

    def capture(self, contents: dict[str, bytes]) -> tuple[dict[str, File], frozenset[str]]:
        """Return all objects, and add their contents."""
        files: dict[str, File] = {}
        for name, digest in self._list():
            if digest not in contents:
                try:
                    answer = self.client.get_object(Bucket=self.bucket, Key=f"{self.prefix}/{name}")
                except self.client.exceptions.NoSuchKey:  # a task has deleted it meanwhile
                    continue
                digest = answer["ETag"].strip('"')
                contents[digest] = answer["Body"].read()
            files[name] = digest, 0
        return files, frozenset()

    def restore(self, image: Image, contents: Mapping[str, bytes]) -> None:
        """Replace everything by an image."""
        there = dict(self._list())
        for name in there.keys() - image.files.keys():
            self.client.delete_object(Bucket=self.bucket, Key=f"{self.prefix}/{name}")
        for name, (digest, _) in image.files.items():
            if there.get(name) != digest:
                self.write(name, contents[digest])

    def _list(self) -> Iterator[tuple[str, str]]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.prefix}/")
        for each in (each for page in pages for each in page.get("Contents", ())):
            yield each["Key"].removeprefix(f"{self.prefix}/"), each["ETag"].strip('"')


def open_ground(plan: Plan) -> Ground:
    """Return the ground of a plan."""
    if not plan.port:
        return LocalGround(Path(plan.root))
    from s3 import connect

    bucket, _, prefix = plan.root.removeprefix("s3a://").partition("/")
    return BucketGround(bucket, prefix, connect(plan.port))


# --- in the test ----------------------------------------------------------------------------------


def run_plan(plan: Plan, action: str, timeout_s: float) -> list[dict[str, Any]]:
    """Record the images of a plan, or recover from each of them. Return the lines of JSON printed."""
    file = Path(plan.file).with_suffix(".plan")
    file.write_text(json.dumps(asdict(plan)))
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "faults.crash_images", action, str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def load_recording(plan: Plan) -> Recording:
    """Return what `record` has written."""
    found = pickle.loads(Path(plan.file).read_bytes())
    assert isinstance(found, Recording)
    return found


# --- in the processes -----------------------------------------------------------------------------


def record(plan: Plan) -> None:
    """Run the plan, and write the images."""
    ground, recording = open_ground(plan), Recording()
    at: tuple[int, int] | None = None
    counts, lock, last = {True: 0, False: 0}, threading.RLock(), None

    def capture(operation: str) -> Image:
        assert at is not None
        return Image(*at, operation, *ground.capture(recording.contents))

    def watch(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(store: Any, path: str, *others: Any) -> Any:
            nonlocal last
            answer = operation(store, path, *others)
            if at is None or threading.current_thread().name == BEATS or not path.startswith(plan.root):
                return answer
            with lock:
                is_copy = "copy" in name and "/checkpoints/" in path
                counts[is_copy] += 1
                if counts[is_copy] % (plan.copies if is_copy else plan.every) == 0:
                    image = capture(f"{name} {re.sub(r'[0-9a-f-]{32,}', '…', path.removeprefix(plan.root))}")
                    if (image.files, image.folders) != last:
                        recording.images.append(image)
                        last = image.files, image.folders
            return answer

        return run

    for owner, names in OPERATIONS.items():
        module, _, cls = owner.partition(":")
        found = getattr(__import__(module, fromlist=[cls]), cls)
        for name in names:
            setattr(found, name, watch(name.strip("_"), getattr(found, name)))
    for number, step in enumerate(plan.steps):
        at = None
        for name, content in step.adds.items():
            ground.write(name, content.encode())
        for position, command in enumerate(step.commands):
            at = number, position
            done = run_command(command)
            assert done.returncode == 0, done.stderr
        recording.ends.append(capture("end"))
    Path(plan.file).write_bytes(pickle.dumps(recording))
    print(json.dumps({"operations": sum(counts.values()), "images": len(recording.images)}))


def recover(plan: Plan) -> None:
    """Continue from each image. Print what the tables then hold."""
    ground = open_ground(plan)
    recording = load_recording(plan)
    for number, image in enumerate(recording.images):
        ground.restore(image, recording.contents)
        found: dict[str, Any] = {"number": number, "step": image.step, "operation": image.operation, "failed": ""}
        for command in plan.steps[image.step].commands[image.command :]:
            done = run_command(command)
            if done.returncode:
                found["failed"] = f"{command}: {done.stderr}"
                break
        end = Image(image.step, image.command, "end", *ground.capture(recording.contents))
        found["totals"] = recording.read_files(end, "totals")
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    # The images are pickled: their classes must have the same names here and in the test.
    from faults import crash_images

    members = json.loads(Path(sys.argv[2]).read_text())
    members["steps"] = [crash_images.Step(**each) for each in members["steps"]]
    {"record": crash_images.record, "recover": crash_images.recover}[sys.argv[1]](crash_images.Plan(**members))
