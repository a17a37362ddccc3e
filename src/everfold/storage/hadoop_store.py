"""A file system that Spark knows as a store: S3, HDFS and others, through Hadoop's `FileSystem`.

Calls go to the JVM over py4j, about 0.3 ms each, so content and listings cross in one call.
"""

from __future__ import annotations

import errno
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError, Py4JNetworkError

from everfold.errors import UsageError
from everfold.secrets import redact_log
from everfold.storage.file_status import parse_statuses
from everfold.storage.store import Entry

COPY_THREADS = 16
_CONDITIONAL = "fs.option.create.conditional.overwrite"
_ATTEMPTS = 3
_MAX_S3_COPY = 5 * 1000**3
"""Size of the largest object that S3 copies in one request, rounded down."""
_MISSING = frozenset({"java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"})
_EXISTS = frozenset(
    {
        "org.apache.hadoop.fs.FileAlreadyExistsException",
        "java.nio.file.FileAlreadyExistsException",
        "org.apache.hadoop.fs.s3a.RemoteFileChangedException",
    }
)
_DENIED = frozenset(
    {
        "java.nio.file.AccessDeniedException",
        "org.apache.hadoop.security.AccessControlException",
        "org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException",
        "org.apache.hadoop.fs.s3a.auth.NoAwsCredentialsException",
        "org.apache.hadoop.fs.s3a.CredentialInitializationException",
    }
)
_NOT_FOLDER = re.compile(r"ParentNotDirectoryException|\(is not a directory\)")
_CONFLICTS = ("409", "412")
"""What S3 answers to a conditional PUT of an object that exists, or that another one creates."""
_LONGEST_MESSAGE = 200
_CLASS = re.compile(r"(?:[a-z]\w*\.)+[\w$]+")
_STATUS = re.compile(r"Status Code: (\d+)")
_S3_CODE = re.compile(r"\)(?: \(SDK Attempt Count: \d+\))?:(\w+)\s*$")


class Creation(Enum):
    """How a file is created so that one of several writers wins and no reader sees a part of it."""

    CONDITIONAL = "a PUT that fails if the object exists (If-None-Match)"
    RENAME = "a complete file with a name of its own, renamed to one that must not exist"
    ON_CLOSE = "a file that appears when it is closed, and only if none exists"


_BY_SCHEME = {
    # HDFS' create would show an empty file, and for good if its writer died. Its rename is atomic.
    "hdfs": Creation.RENAME,
    "viewfs": Creation.RENAME,
    # Azure's rename is conditional in accounts with a hierarchical namespace. Not tested.
    "abfs": Creation.RENAME,
    "abfss": Creation.RENAME,
    # Google's connector uploads with the condition that there is no object yet. Not tested.
    "gs": Creation.ON_CLOSE,
}


@dataclass(slots=True)
class _FileSystem:
    """A Hadoop file system. context: for renames, None where they are not used."""

    java: Any
    scheme: str
    creation: Creation | None
    context: Any = None


@dataclass
class HadoopStore:
    """See `Store`. One object is enough for all paths that start with a scheme.

    jvm: the view of a py4j gateway. hadoop_conf: a Hadoop `Configuration`; with
    `fs.<scheme>.impl.disable.cache`, the store has connections of its own.
    """

    jvm: Any = field(repr=False)
    hadoop_conf: Any = field(repr=False)
    _systems: dict[str, _FileSystem] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    is_local = False

    # --- reading ----------------------------------------------------------------------------------

    def find(self, path: str) -> Entry | None:
        system = self._system(path)
        try:
            with _translate_errors(path):
                status = system.java.getFileStatus(self._path(path))
                is_folder = bool(status.isDirectory())
                size = 0 if is_folder else int(status.getLen())
                return Entry(path.rstrip("/").rpartition("/")[2], is_folder, size, int(status.getModificationTime()))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, folder: str) -> Sequence[Entry]:
        return self._list(folder, lambda system, path: system.java.listStatus(path))

    def walk(self, folder: str) -> Sequence[Entry]:
        return self._list(
            folder, lambda system, path: self._iterators.toList(system.java.listFiles(path, True)).toArray()
        )

    def _list(self, folder: str, find_all: Callable[[_FileSystem, Any], Any]) -> Sequence[Entry]:
        system = self._system(folder)
        try:
            with _translate_errors(folder):
                path = system.java.makeQualified(self._path(folder))
                found = find_all(system, path)
                # py4j passes an array only to a parameter of exactly its type.
                statuses = self._array(self._writable_class, len(found))
                self.jvm.java.lang.System.arraycopy(found, 0, statuses, 0, len(found))
                content = bytes(self._writables.toByteArray(statuses))
                base = str(path.toString()).rstrip("/") + "/"
        except (FileNotFoundError, NotADirectoryError):
            return []
        # A file has one entry, itself.
        below = (each for each in parse_statuses(content) if each.name.startswith(base))
        entries = [Entry(each.name[len(base) :], each.is_folder, each.size, each.modified_ms) for each in below]
        return sorted(entries, key=lambda each: each.name)

    def read(self, path: str) -> bytes:
        for _ in range(_ATTEMPTS):
            # S3A fails if the file is replaced between two of its requests.
            with suppress(FileExistsError):
                return self._read_once(path)
        raise OSError(errno.EBUSY, "the file is replaced again and again", path)

    def _read_once(self, path: str) -> bytes:
        system = self._system(path)
        with _translate_errors(path):
            stream = system.java.open(self._path(path))
            try:
                return bytes(self._io.toByteArray(stream))
            finally:
                stream.close()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        system = self._system(path)
        with _translate_errors(path):
            stream = system.java.open(self._path(path))
            try:
                stream.seek(start)
                return bytes(self._io.toByteArray(stream, length))
            finally:
                stream.close()

    def to_uri(self, path: str) -> str:
        return path

    # --- writing ----------------------------------------------------------------------------------

    def create(self, path: str, content: bytes) -> bool:
        system = self._system(path)
        if system.creation is None:
            raise OSError(errno.EOPNOTSUPP, _cannot_create(system.scheme), path)
        for _ in range(_ATTEMPTS):
            try:
                self._create(system, path, content)
                return True
            except PermissionError:
                raise
            except OSError as error:
                # A server may have created the file although its answer was lost: then our own
                # file is there, perhaps found by the repeated request.
                there = self._read_if_exists(path)
                if there is not None:
                    return there == content
                if not isinstance(error, FileExistsError):
                    raise
        raise OSError(errno.EBUSY, "a file could not be created, and there is none", path)

    def _create(self, system: _FileSystem, path: str, content: bytes) -> None:
        """Create a file. Raises FileExistsError, and OSError if it may have been created."""
        if system.creation is Creation.RENAME:
            self._write_and_rename(system, path, content, "NONE")
            return
        with _translate_errors(path):
            target = self._path(path)
            if system.creation is Creation.CONDITIONAL:
                builder = system.java.createFile(target).recursive().must(_CONDITIONAL, True)
                stream = builder.opt("fs.s3a.create.performance", True).build()
            else:
                stream = system.java.create(target, False)
            _write_and_close(stream, content)

    def _read_if_exists(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        system = self._system(path)
        if system.creation is Creation.RENAME:
            self._write_and_rename(system, path, content, "OVERWRITE")
            return
        with _translate_errors(path):
            builder = system.java.createFile(self._path(path)).recursive().overwrite(True)
            _write_and_close(builder.opt("fs.s3a.create.performance", True).build(), content)

    def _write_and_rename(self, system: _FileSystem, path: str, content: bytes, option: str) -> None:
        with self._hidden(system, path, option) as part, _translate_errors(path):
            _write_and_close(system.java.create(part, True), content)

    @contextmanager
    def _hidden(self, system: _FileSystem, path: str, option: str) -> Iterator[Any]:
        """Provide the path of a hidden file in the same folder, and rename it after the block."""
        folder, _, name = path.rpartition("/")
        part = self._path(f"{folder}/.{name}.{uuid.uuid4().hex}.part")
        try:
            yield part
            with _translate_errors(path):
                system.context.rename(part, self._path(path), self._rename_options[option])
        except BaseException:
            with suppress(Py4JJavaError):
                system.java.delete(part, False)
            raise

    def copy(self, old: str, new: str) -> None:
        found = self.find(old)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or folder", old)
        if not found.is_folder:
            self._copy_file(old, new, found.size)
            return
        files = self.walk(old)
        self.make_folder(new)
        with ThreadPoolExecutor(min(COPY_THREADS, max(1, len(files)))) as pool:
            copies = [
                pool.submit(self._copy_file, f"{old}/{each.name}", f"{new}/{each.name}", each.size) for each in files
            ]
            try:
                for each in copies:
                    each.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _copy_file(self, old: str, new: str, size: int) -> None:
        system = self._system(new)
        if system.scheme == "s3a" and size < _MAX_S3_COPY and not self._encrypts(new):
            with suppress(Py4JJavaError):
                self._copy_object(system, old, new)
                return
            # The file system repeats what has failed, and knows what has.
        if system.creation is Creation.RENAME:
            with self._hidden(system, new, "NONE") as part:
                self._copy_bytes(system, old, part)
        else:
            self._copy_bytes(system, old, self._path(new))

    def _copy_bytes(self, system: _FileSystem, old: str, target: Any) -> None:
        with _translate_errors(old):
            source = self._system(old).java
            self._file_util.copy(source, self._path(old), system.java, target, False, False, self.hadoop_conf)

    def _copy_object(self, system: _FileSystem, old: str, new: str) -> None:
        """Let S3 copy an object."""
        (from_bucket, from_key), (bucket, key) = _bucket_and_key(old), _bucket_and_key(new)
        request = self._copy_request.builder().sourceBucket(from_bucket).sourceKey(from_key)
        request = request.destinationBucket(bucket).destinationKey(key).build()
        system.java.getS3AInternals().getAmazonS3Client("copy").copyObject(request)

    def _encrypts(self, path: str) -> bool:
        """Return whether the file system adds its own encryption, which a copy by S3 would lack."""
        bucket, _ = _bucket_and_key(path)
        names = ("encryption.algorithm", "server-side-encryption-algorithm")
        return any(self.hadoop_conf.get(f"fs.s3a.{part}{name}") for part in ("", f"bucket.{bucket}.") for name in names)

    def delete(self, path: str) -> None:
        system = self._system(path)
        with suppress(FileNotFoundError), _translate_errors(path):
            system.java.delete(self._path(path), True)

    def make_folder(self, path: str) -> None:
        system = self._system(path)
        with _translate_errors(path):
            system.java.mkdirs(self._path(path))

    # --- Hadoop -----------------------------------------------------------------------------------

    def _system(self, path: str) -> _FileSystem:
        """Return the file system of a path. Raises UsageError `no-s3` without its classes."""
        parts = urlsplit(path)
        authority = f"{parts.scheme}://{parts.netloc}"
        with self._lock:
            known = self._systems.get(authority)
            if known is None:
                with _translate_errors(path):
                    known = self._systems[authority] = self._connect(f"{authority}/", parts.scheme)
            return known

    def _connect(self, root: str, scheme: str) -> _FileSystem:
        path = self._path(root)
        java = path.getFileSystem(self.hadoop_conf)
        if java.hasPathCapability(path, _CONDITIONAL):
            return _FileSystem(java, scheme, Creation.CONDITIONAL)
        creation = _BY_SCHEME.get(scheme)
        if creation is not Creation.RENAME:
            return _FileSystem(java, scheme, creation)
        contexts = self.jvm.org.apache.hadoop.fs.FileContext
        return _FileSystem(java, scheme, creation, contexts.getFileContext(java.getUri(), self.hadoop_conf))

    def _path(self, path: str) -> Any:
        return self._path_class(path)

    @cached_property
    def _path_class(self) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path

    @cached_property
    def _io(self) -> Any:
        return self.jvm.org.apache.commons.io.IOUtils

    @cached_property
    def _writables(self) -> Any:
        return self.jvm.org.apache.hadoop.io.WritableUtils

    @cached_property
    def _iterators(self) -> Any:
        return self.jvm.org.apache.hadoop.util.functional.RemoteIterators

    @cached_property
    def _file_util(self) -> Any:
        return self.jvm.org.apache.hadoop.fs.FileUtil

    @cached_property
    def _array(self) -> Any:
        return self.jvm.java.lang.reflect.Array.newInstance

    @cached_property
    def _writable_class(self) -> Any:
        return self.jvm.java.lang.Class.forName("org.apache.hadoop.io.Writable")

    @cached_property
    def _copy_request(self) -> Any:
        return self.jvm.software.amazon.awssdk.services.s3.model.CopyObjectRequest

    @cached_property
    def _rename_options(self) -> dict[str, Any]:
        """The arguments of FileContext's rename, by the name of the option."""
        options = getattr(self.jvm.org.apache.hadoop.fs, "Options$Rename")
        arrays = {}
        for name in ("NONE", "OVERWRITE"):
            option = getattr(options, name)
            arrays[name] = self._array(option.getDeclaringClass(), 1)
            arrays[name][0] = option
        return arrays


def _bucket_and_key(path: str) -> tuple[str, str]:
    bucket, *names = filter(None, path.removeprefix("s3a:").split("/"))
    return bucket, "/".join(names)


def _write_and_close(stream: Any, content: bytes) -> None:
    """Write a file durably. If that fails, no part of it becomes an object."""
    try:
        stream.write(content)
        if stream.hasCapability("hsync"):
            stream.hsync()
    except BaseException:
        with suppress(Py4JJavaError):
            if stream.hasCapability("fs.capability.outputstream.abortable"):
                stream.abort()
            stream.close()
        raise
    stream.close()


# --- errors ---------------------------------------------------------------------------------------


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Raise a Java exception of the block as OSError."""
    try:
        yield
    except Py4JJavaError as error:
        raise _to_os_error(str(error.java_exception.toString()), path) from None
    except Py4JNetworkError as error:
        raise ConnectionError(errno.ECONNRESET, "the JVM closed its connection", path) from error


def _to_os_error(thrown: str, path: str) -> Exception:
    """Return the error for a Java exception. thrown: its class and message."""
    name, _, message = thrown.partition(": ")
    name = name.rpartition("(")[2].rstrip(")")  # RemoteException(the class on the server)
    if name in _MISSING:
        return FileNotFoundError(errno.ENOENT, "no such file or folder", path)
    if _NOT_FOLDER.search(thrown.partition("\n")[0]):
        return NotADirectoryError(errno.ENOTDIR, "not a folder", path)
    status = _STATUS.search(message)
    if name in _EXISTS or (status and status[1] in _CONFLICTS):
        return FileExistsError(errno.EEXIST, "the file exists already", path)
    scheme = urlsplit(path).scheme
    if "ClassNotFound" in thrown or "NoClassDefFound" in name or "No FileSystem for scheme" in message:
        return no_file_system(scheme)
    if name in _DENIED:
        return PermissionError(errno.EACCES, f"access denied: {_describe(name, message)}", path)
    return OSError(errno.EIO, _describe(name, message), path)


def explain_java_error(thrown: str, path: str) -> str:
    """Return the reason of a Java exception in one line. thrown: its class and message."""
    error = _to_os_error(thrown, path)
    if isinstance(error, UsageError):
        return error.diagnostics[0].message
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def no_file_system(scheme: str) -> UsageError:
    """Return the error for a scheme whose classes Spark does not have."""
    if scheme == "s3a":
        return UsageError.of(
            "no-file-system",
            "paths of `s3a` need hadoop-aws and the AWS SDK, which Spark does not include",
            help="run `everfold check-setup --with s3` once on this machine to download them, or add them with --conf"
            " spark.driver.extraClassPath=… and spark.executor.extraClassPath=…",
        )
    return UsageError.of(
        "no-file-system",
        f"Spark has no file system for paths of `{scheme}`",
        help="add its jars with --conf spark.driver.extraClassPath=… and spark.executor.extraClassPath=…",
    )


def _cannot_create(scheme: str) -> str:
    if scheme == "s3a":
        return "the bucket must allow conditional creation, and fs.s3a.create.conditional.enabled must be true"
    return f"`{scheme}` is not known to let only one of several writers create a file"


def _describe(name: str, message: str) -> str:
    """Return the reason of a Java exception in one line, without secrets."""
    if name.endswith(".UnknownStoreException"):
        return "the bucket does not exist"
    status = _STATUS.search(message)
    if status:
        line = message.splitlines()[0]
        code = _S3_CODE.search(line)
        return f"S3 answered {status[1]}{f' {code[1]}' if code else ''}"
    line = next(iter(message.splitlines()), "")
    line = _CLASS.sub(lambda found: found[0].rpartition(".")[2] if "Exception" in found[0] else found[0], line)
    return redact_log(f"{name.rpartition('.')[2]}: {line}".rstrip(": "))[:_LONGEST_MESSAGE]
