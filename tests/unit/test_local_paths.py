"""Paths of users, and paths for Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from everfold.errors import UsageError
from everfold.jobs.folders import parse_folder
from everfold.local_paths import foreign_scheme, has_credentials, parse_local_path, spark_path, spark_pattern


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("jobs/a", "jobs/a"),
        ("/jobs/a%20b", "/jobs/a%20b"),
        ("file:///jobs/a%20b", "/jobs/a b"),
        ("FILE:/jobs/a", "/jobs/a"),
        ("./s3a:", "s3a:"),
        ("x:y", "x:y"),
        (Path("jobs"), "jobs"),
    ],
)
def test_local_paths(text: str | Path, path: str) -> None:
    assert parse_local_path(text) == Path(path)


@pytest.mark.parametrize("text", ["s3a://bucket/job", "S3A:job", "hdfs:///job", "gs://b/j", "no.such+fs:/x"])
def test_paths_of_other_file_systems_are_refused(text: str) -> None:
    scheme = text.partition(":")[0].lower()
    assert foreign_scheme(text) == scheme
    with pytest.raises(UsageError, match=f"paths of `{scheme.replace('+', '.')}` are not supported") as caught:
        parse_local_path(text)
    assert caught.value.diagnostics[0].code == "file-system"


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("s3a://KEY:s3cret@bucket/job", True),
        ("s3a://KEY@bucket/job", True),
        ("hdfs://s3cret@namenode:9000/job", True),
        ("ftp://user:s3cret@host/job", True),
        ("abfss://account:s3cret@container@account.dfs.core.windows.net/job", True),
        ("abfss://container@account.dfs.core.windows.net/job", False),
        ("s3a://bucket/a@b", False),
        ("jobs/a@b", False),
    ],
)
def test_paths_with_credentials_are_refused(path: str, refused: bool) -> None:
    assert has_credentials(path) is refused
    if refused:
        with pytest.raises(UsageError) as caught:
            parse_folder(path)
        assert caught.value.code == "credentials-in-path"
        assert "s3cret" not in str(caught.value)
    else:
        parse_folder(path)


def test_paths_for_spark_have_a_scheme() -> None:
    assert spark_path(Path("/a b/c%20{1}")) == "file:///a b/c%20{1}"
    assert spark_pattern(Path("/a*b/{1}[2]?")) == "file:///a\\*b/\\{1\\}\\[2\\]\\?"
