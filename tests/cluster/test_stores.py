"""The contract of a store, on a local disk, on S3 and on HDFS; and S3 with faults."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from fault_proxy import Fault, FaultProxy, Request, s3_error
from hdfs import HdfsCluster
from s3 import SECRET_KEY, S3Server, s3_conf

from everfold.errors import UsageError
from everfold.spark.hadoop import connect as connect_to_session
from everfold.spark.hadoop import connect_without_spark
from everfold.spark.session import start_spark, stop_jvm
from everfold.storage import LOCAL, Store
from everfold.storage.hadoop_store import HadoopStore

NAMES = ("plain", "with space", "per%cent", "per%41", "ha#sh", "größe-名前", "a+b", "k=v", ".hidden", "sub/deep/er")
RACES = 100
OWN_CONNECTION = {"spark.hadoop.fs.s3a.impl.disable.cache": "true", "spark.hadoop.fs.hdfs.impl.disable.cache": "true"}
IMPATIENT = {
    "spark.hadoop.fs.s3a.connection.timeout": "1s",
    "spark.hadoop.fs.s3a.connection.request.timeout": "5s",
    "spark.hadoop.fs.s3a.attempts.maximum": "2",
    "spark.hadoop.fs.s3a.retry.limit": "2",
    "spark.hadoop.fs.s3a.retry.interval": "50ms",
}


@dataclass(frozen=True, slots=True)
class Ground:
    """An empty folder in a store. connect: returns a store with connections of its own."""

    root: str
    connect: Callable[[], Store]


@pytest.fixture(scope="module")
def jvm(s3_jars: str) -> Iterator[Any]:
    """A JVM with the classes for S3."""
    yield connect_without_spark({}).jvm
    stop_jvm()


def connect(conf: Mapping[str, str]) -> HadoopStore:
    """Return a store in the JVM of the tests."""
    return connect_without_spark({**conf, **OWN_CONNECTION})


@pytest.fixture(params=["local", *(pytest.param(name, marks=pytest.mark.slow) for name in ("s3", "hdfs"))])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    """A folder in each kind of store."""
    if request.param == "local":
        return Ground(str(tmp_path), lambda: LOCAL)
    request.getfixturevalue("jvm")
    name = uuid.uuid4().hex
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        return Ground(f"s3a://everfold/{name}", lambda: connect(server.conf))
    cluster: HdfsCluster = request.getfixturevalue("hdfs_cluster")
    return Ground(f"{cluster.uri}/{name}", lambda: connect({}))


def names(entries: object) -> list[str]:
    assert isinstance(entries, list)
    return [each.name for each in entries]


# --- all stores -----------------------------------------------------------------------------------


def test_the_first_who_creates_a_file_wins(ground: Ground) -> None:
    first, second = ground.connect(), ground.connect()
    path = f"{ground.root}/a/b/file"
    assert first.create(path, b"first")
    assert not second.create(path, b"second")
    assert not first.create(path, b"third")
    assert second.read(path) == b"first"
    assert names(first.list(f"{ground.root}/a/b")) == ["file"]


def test_exactly_one_of_two_writers_creates_a_file(ground: Ground) -> None:
    stores, barrier = (ground.connect(), ground.connect()), Barrier(2)

    def create(writer: int, race: int) -> bool:
        barrier.wait(60)
        return stores[writer].create(f"{ground.root}/races/{race}", f"writer {writer}".encode())

    with ThreadPoolExecutor(2) as pool:
        for race in range(RACES):
            won = [each.result() for each in [pool.submit(create, writer, race) for writer in range(2)]]
            assert sorted(won) == [False, True], f"race {race}"
            assert stores[0].read(f"{ground.root}/races/{race}") == f"writer {won.index(True)}".encode()
    assert len(stores[0].list(f"{ground.root}/races")) == RACES


def test_content_is_unchanged(ground: Ground) -> None:
    store = ground.connect()
    for content in (b"", b"\0\xff\r\n", bytes(range(256)) * 5000):
        path = f"{ground.root}/{len(content)}"
        store.write(path, content)
        assert store.read(path) == content
        found = store.find(path)
        assert found is not None
        assert (found.name, found.is_folder, found.size) == (str(len(content)), False, len(content))
        assert found.modified_ms > 1_500_000_000_000


def test_writing_replaces(ground: Ground) -> None:
    store = ground.connect()
    for content in (b"long content", b"short", b"longer content"):
        store.write(f"{ground.root}/folder/file", content)
        assert store.read(f"{ground.root}/folder/file") == content
    assert names(store.list(f"{ground.root}/folder")) == ["file"]


def test_names_with_special_characters(ground: Ground) -> None:
    store = ground.connect()
    for name in NAMES:
        assert store.create(f"{ground.root}/in/{name}", name.encode())
        assert not store.create(f"{ground.root}/in/{name}", b"other")
    assert {each.name for each in store.list(f"{ground.root}/in")} == {name.partition("/")[0] for name in NAMES}
    assert {each.name for each in store.walk(f"{ground.root}/in")} == set(NAMES)
    store.copy(f"{ground.root}/in", f"{ground.root}/co py%#é")
    for name in NAMES:
        assert store.read(f"{ground.root}/co py%#é/{name}") == name.encode()
        store.delete(f"{ground.root}/in/{name}")
    assert not store.walk(f"{ground.root}/in")


def test_listing(ground: Ground) -> None:
    store = ground.connect()
    for name in ("b", "a", "sub/x", "sub/deep/y", "sub2/z"):
        store.write(f"{ground.root}/{name}", name.encode())
    listed = store.list(ground.root)
    assert [(each.name, each.is_folder) for each in listed] == [
        ("a", False),
        ("b", False),
        ("sub", True),
        ("sub2", True),
    ]
    assert [each.size for each in listed[:2]] == [1, 1]
    assert sorted((each.name, each.size, each.is_folder) for each in store.walk(ground.root)) == [
        ("a", 1, False),
        ("b", 1, False),
        ("sub/deep/y", 10, False),
        ("sub/x", 5, False),
        ("sub2/z", 6, False),
    ]
    for path in ("a", "none", "a/below"):
        assert not store.list(f"{ground.root}/{path}")
        assert not store.walk(f"{ground.root}/{path}")


def test_files_that_do_not_exist(ground: Ground) -> None:
    store, path = ground.connect(), f"{ground.root}/none"
    store.write(f"{ground.root}/file", b"1")
    assert store.find(path) is None
    assert store.find(f"{ground.root}/file/below") is None
    with pytest.raises(FileNotFoundError) as raised:
        store.read(path)
    assert raised.value.filename == path
    with pytest.raises(FileNotFoundError):
        store.copy(path, f"{ground.root}/copy")
    store.delete(path)


def test_folders(ground: Ground) -> None:
    store = ground.connect()
    folder = f"{ground.root}/a/b"
    for _ in range(2):
        store.make_folder(folder)
    for path in (folder, f"{ground.root}/a"):
        found = store.find(path)
        assert found is not None
        assert found.is_folder
        assert found.size >= 0
    assert not store.list(folder)
    store.write(f"{folder}/c/file", b"1")
    store.write(f"{folder}/other", b"2")
    store.delete(f"{folder}/c")
    assert names(store.list(folder)) == ["other"]
    store.delete(f"{ground.root}/a")
    assert store.find(folder) is None
    assert not store.walk(ground.root)


def test_copies(ground: Ground) -> None:
    store = ground.connect()
    store.write(f"{ground.root}/old/x", b"x")
    store.copy(f"{ground.root}/old/x", f"{ground.root}/new/folder/y")
    assert store.read(f"{ground.root}/new/folder/y") == b"x"
    store.write(f"{ground.root}/old/x", b"changed")
    assert store.read(f"{ground.root}/new/folder/y") == b"x"
    store.make_folder(f"{ground.root}/empty")
    store.copy(f"{ground.root}/empty", f"{ground.root}/empty2")
    assert store.find(f"{ground.root}/empty2") is not None


def test_a_folder_of_many_files_is_copied(ground: Ground) -> None:
    store = ground.connect()
    files = {f"{n % 7}/{n}": b"%d" % n * 100 for n in range(200)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.write(f"{ground.root}/old/{name}", files[name]), files))
    store.copy(f"{ground.root}/old", f"{ground.root}/new")
    found = store.walk(f"{ground.root}/new")
    assert {each.name: each.size for each in found} == {name: len(content) for name, content in files.items()}
    assert store.read(f"{ground.root}/new/3/10") == files["3/10"]


def test_the_path_for_spark(ground: Ground) -> None:
    uri = ground.connect().to_uri(f"{ground.root}/a b#%41")
    assert uri.endswith("/a b#%41")
    assert "://" in uri


# --- permissions ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_hdfs_denies_access(jvm: Any, hdfs_cluster: HdfsCluster) -> None:
    owner, folder = connect({}), f"{hdfs_cluster.uri}/{uuid.uuid4().hex}"
    owner.write(f"{folder}/file", b"1")
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    before = users.getLoginUser()
    users.setLoginUser(users.createRemoteUser("stranger"))
    try:
        stranger = connect({})
        assert stranger.read(f"{folder}/file") == b"1"
        for do in (
            lambda: stranger.create(f"{folder}/new", b"2"),
            lambda: stranger.write(f"{folder}/file", b"2"),
            lambda: stranger.delete(f"{folder}/file"),
            lambda: stranger.make_folder(f"{folder}/new"),
            lambda: stranger.copy(f"{folder}/file", f"{folder}/new"),
        ):
            with pytest.raises(PermissionError, match="access denied") as raised:
                do()
            assert "\n" not in str(raised.value)
    finally:
        users.setLoginUser(before)
    assert names(owner.list(folder)) == ["file"]


@pytest.mark.slow
def test_s3_without_credentials(jvm: Any, s3_server: S3Server) -> None:
    keys = {"spark.hadoop.fs.s3a.access.key": "", "spark.hadoop.fs.s3a.secret.key": ""}
    provider = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    store = connect({**s3_server.conf, **keys, "spark.hadoop.fs.s3a.aws.credentials.provider": provider})
    with pytest.raises(PermissionError, match="access denied"):
        store.read("s3a://everfold/file")


@pytest.mark.slow
@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "AccessDenied", "SignatureDoesNotMatch"])
def test_s3_denies_access(jvm: Any, s3_server: S3Server, code: str) -> None:
    with FaultProxy(s3_server.port, lambda request: s3_error(403, code)) as proxy:
        store = connect(s3_conf(proxy.port))
        for do in (
            lambda: store.read("s3a://everfold/file"),
            lambda: store.create("s3a://everfold/file", b"1"),
            lambda: store.find("s3a://everfold/file"),
            lambda: store.list("s3a://everfold/folder"),
        ):
            with pytest.raises(PermissionError, match="access denied: S3 answered 403") as raised:
                do()
            assert SECRET_KEY not in str(raised.value)
            assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_bucket_that_does_not_exist(jvm: Any, s3_server: S3Server) -> None:
    store = connect(s3_server.conf)
    with pytest.raises(OSError, match="the bucket does not exist"):
        store.find("s3a://none-of-ours/file")
    with pytest.raises(OSError, match="the bucket does not exist"):
        store.create("s3a://none-of-ours/file", b"1")


@pytest.mark.slow
def test_schemes_without_a_file_system(jvm: Any) -> None:
    with pytest.raises(UsageError, match=r"no-file-system.*`gs`"):
        connect({}).find("gs://bucket/file")
    missing = {"spark.hadoop.fs.s3a.impl": "org.apache.hadoop.fs.s3a.Missing"}
    with pytest.raises(UsageError, match="check-setup --with s3"):
        connect(missing).find("s3a://bucket/file")


@pytest.mark.slow
def test_a_store_that_cannot_let_one_writer_win(jvm: Any, s3_server: S3Server, tmp_path: Path) -> None:
    store = connect({**s3_server.conf, "spark.hadoop.fs.s3a.create.conditional.enabled": "false"})
    for path in ("s3a://everfold/file", f"file://{tmp_path}/file"):
        with pytest.raises(OSError, match="create"):
            store.create(path, b"1")
        assert store.find(path) is None


@pytest.mark.slow
def test_a_session_runs_in_the_jvm_that_was_started_for_the_store(
    jvm: Any, s3_server: S3Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark import SparkContext

    gateway, root = SparkContext._gateway, f"s3a://everfold/{uuid.uuid4().hex}"
    spark = start_spark(master="local[1]", conf=s3_server.conf, log_file=tmp_path / "spark.log", uses_s3=True)
    try:
        assert SparkContext._gateway is gateway
        store = connect_to_session(spark)
        path = f"{root}/a b#%41 é"
        spark.range(5).write.parquet(store.to_uri(path))
        assert "_SUCCESS" in names(store.list(path))
        assert spark.read.parquet(store.to_uri(path)).count() == 5
        assert store.create(f"{root}/x", b"1")
    finally:
        spark.stop()
    assert capfd.readouterr() == ("", "")


# --- faults of S3 ---------------------------------------------------------------------------------


def is_put(request: Request) -> bool:
    return request.method == "PUT" and "x-amz-copy-source" not in request.headers


class Once:
    """Applies a fault to the first request that a condition holds for."""

    def __init__(self, fault: Fault, applies: Callable[[Request], bool] = is_put) -> None:
        self.fault, self.applies, self.applied = fault, applies, 0

    def __call__(self, request: Request) -> Fault | None:
        if self.applied or not self.applies(request):
            return None
        self.applied += 1
        return self.fault


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault(loses_answer=True), Fault(delay_s=3.0)], ids=["closed", "timed-out"])
def test_the_writer_wins_although_the_answer_was_lost(jvm: Any, s3_server: S3Server, fault: Fault) -> None:
    path = f"s3a://everfold/{uuid.uuid4().hex}"
    choose = Once(fault)
    with short_timeouts(jvm), FaultProxy(s3_server.port, choose) as proxy:
        store = connect({**s3_conf(proxy.port), **IMPATIENT})
        assert store.create(path, b"ours")
        assert choose.applied == 1
        assert not store.create(path, b"theirs")
        assert store.read(path) == b"ours"


@pytest.mark.slow
def test_a_writer_loses_although_its_answer_was_lost(jvm: Any, s3_server: S3Server) -> None:
    path = f"s3a://everfold/{uuid.uuid4().hex}"
    assert connect(s3_server.conf).create(path, b"theirs")
    with FaultProxy(s3_server.port, Once(Fault(loses_answer=True))) as proxy:
        assert not connect(s3_conf(proxy.port)).create(path, b"ours")


@pytest.mark.slow
@pytest.mark.parametrize("status", [409, 412])
def test_a_conflict_without_a_file_is_repeated(jvm: Any, s3_server: S3Server, status: int) -> None:
    """S3 answers 409 if another conditional request is under way."""
    path = f"s3a://everfold/{uuid.uuid4().hex}"
    choose = Once(s3_error(status, "ConditionalRequestConflict" if status == 409 else "PreconditionFailed"))
    with FaultProxy(s3_server.port, choose) as proxy:
        store = connect(s3_conf(proxy.port))
        assert store.create(path, b"ours")
        assert choose.applied == 1
        assert store.read(path) == b"ours"


@pytest.mark.slow
def test_a_file_that_is_replaced_while_it_is_read(jvm: Any, s3_server: S3Server) -> None:
    """S3A then sends the version that it wants, and S3 answers that there is another one."""
    path = f"s3a://everfold/{uuid.uuid4().hex}"
    connect(s3_server.conf).write(path, b"beat 2")
    choose = Once(
        s3_error(412, "PreconditionFailed"), lambda request: request.method == "GET" and "list-type" not in request.path
    )
    with FaultProxy(s3_server.port, choose) as proxy:
        assert connect(s3_conf(proxy.port)).read(path) == b"beat 2"
    assert choose.applied == 1


@pytest.mark.slow
def test_one_in_twenty_requests_is_refused(jvm: Any, s3_server: S3Server) -> None:
    root = f"s3a://everfold/{uuid.uuid4().hex}"
    busy = s3_error(503, "SlowDown")
    with FaultProxy(s3_server.port, lambda request: busy if request.number % 20 == 7 else None) as proxy:
        store = connect(s3_conf(proxy.port))
        for n in range(60):
            assert store.create(f"{root}/old/{n}", b"%d" % n)
            assert not store.create(f"{root}/old/{n}", b"other")
        store.copy(f"{root}/old", f"{root}/new")
        assert {each.name for each in store.walk(f"{root}/new")} == set(map(str, range(60)))
        assert all(store.read(f"{root}/new/{n}") == b"%d" % n for n in range(60))
        store.delete(root)
        assert not store.walk(root)
        copies = [each for each in proxy.requests if "x-amz-copy-source" in each.headers]
        assert 60 <= len(copies) <= 70, "S3 itself copies"


@pytest.mark.slow
def test_a_server_that_does_not_answer(jvm: Any, s3_server: S3Server) -> None:
    with short_timeouts(jvm), FaultProxy(s3_server.port, lambda request: Fault(delay_s=3.0)) as proxy:
        store = connect({**s3_conf(proxy.port), **IMPATIENT})
        for do in (
            lambda: store.create(f"s3a://everfold/{uuid.uuid4().hex}", b"1"),
            lambda: store.read("s3a://everfold/none"),
        ):
            with pytest.raises(OSError, match=r"(?i)tim") as raised:
                do()
            assert "\n" not in str(raised.value)


class short_timeouts:  # noqa: N801
    """Lets S3A have timeouts below 15 s, as in the tests of Hadoop."""

    def __init__(self, jvm: Any) -> None:
        self.set = jvm.org.apache.hadoop.fs.s3a.impl.AWSClientConfig.setMinimumOperationDuration
        self.of = jvm.java.time.Duration.ofMillis

    def __enter__(self) -> None:
        self.set(self.of(500))

    def __exit__(self, *of: object) -> None:
        self.set(self.of(15_000))
