"""The parts of the store for Hadoop's file systems that need no JVM: listings and errors."""

from __future__ import annotations

import pytest

from everfold.errors import UsageError
from everfold.storage import Entry
from everfold.storage.file_status import parse_statuses
from everfold.storage.hadoop_store import _to_os_error

PATH = "s3a://bucket/folder/file"
S3 = "org.apache.hadoop.fs.s3a"
SDK = "software.amazon.awssdk.services.s3.model.S3Exception"
DETAILS = "(Service: S3, Status Code: {}, Request ID: 7a62c49f, Extended Request ID: MtriGe) (SDK Attempt Count: 1)"


def test_a_listing_is_parsed() -> None:
    file = b"\x08\x02\x12\x0dhdfs://h:1/t/\x18\x01\x22\x03\x08\xa4\x03\x38\xf1\x85\xb7\xdb\xa04"
    folder = b"\x08\x01\x12\x07hdfs://\x39\0\0\0\0\0\0\0\0"
    content = b"".join(len(each).to_bytes(4, "big") + each for each in (file, folder)) + bytes(9)
    assert list(parse_statuses(content)) == [
        Entry("hdfs://h:1/t/", False, 1, 1795488072433),
        Entry("hdfs://", True, 0, 0),
    ]
    assert not list(parse_statuses(b""))


@pytest.mark.parametrize(
    ("thrown", "kind", "message"),
    [
        ("java.io.FileNotFoundException: No such file: s3a://x", FileNotFoundError, "no such file or folder"),
        (
            (
                f"java.nio.file.AccessDeniedException: {PATH}: getFileStatus on {PATH}: {SDK}: null {DETAILS.format(403)}"
                ":AccessDenied"
            ),
            PermissionError,
            "access denied: S3 answered 403 AccessDenied",
        ),
        (
            (
                "org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.security.AccessControlException):"
                " Permission denied: user=x\n\tat a.b.C"
            ),
            PermissionError,
            "access denied: AccessControlException: Permission denied: user=x",
        ),
        (
            "org.apache.hadoop.security.AccessControlException: /a (is not a directory)\n\tat a.B",
            NotADirectoryError,
            "not a folder",
        ),
        (f"{S3}.RemoteFileChangedException: {PATH}: changed", FileExistsError, "the file exists already"),
        (f"{S3}.AWSBadRequestException: {PATH}: {SDK}: {DETAILS.format(409)}", FileExistsError, "exists already"),
        (
            f"{S3}.AWSServiceThrottledException: put: {SDK}: slow {DETAILS.format(503)}:SlowDown",
            OSError,
            "S3 answered 503 SlowDown",
        ),
        (f"{S3}.UnknownStoreException: `{PATH}': Bucket does not exist", OSError, "the bucket does not exist"),
        (
            f"java.io.IOException: wrong: fs.s3a.secret.key=SECRET at {PATH}\n\tat a.b.C",
            OSError,
            "IOException: wrong: fs.s3a.secret.key=",
        ),
    ],
)
def test_errors_of_java(thrown: str, kind: type[OSError], message: str) -> None:
    error = _to_os_error(thrown, PATH)
    assert type(error) is kind
    assert isinstance(error, OSError)
    assert error.filename == PATH
    assert error.strerror is not None
    assert message in error.strerror
    for hidden in ("\n", "SECRET", "Request ID", "awssdk"):
        assert hidden not in str(error)


@pytest.mark.parametrize(
    "thrown",
    [
        "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class x.S3AFileSystem not found",
        "java.lang.NoClassDefFoundError: software/amazon/awssdk/core/exception/SdkException",
        'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3a"',
    ],
)
def test_missing_classes(thrown: str) -> None:
    error = _to_os_error(thrown, PATH)
    assert isinstance(error, UsageError)
    assert "check-setup --with s3" in str(error)
    other = _to_os_error(thrown, "gs://bucket/file")
    assert isinstance(other, UsageError)
    assert "no file system for paths of `gs`" in str(other)
