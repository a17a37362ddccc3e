"""One canary in every position of a job where a secret may appear: the job does not print, log
or leave it anywhere.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker import KafkaBroker
from postgres import Database

from everfold.connectors.kafka.jars import CONNECTOR_VERSION
from everfold.files import cache_folder

CANARY = "cAnary7301"
BAD_RECORD = '{"k": "a", "x": "bAdRecord"}'
PATIENCE_S = 900.0
KAFKA = """
  'properties.bootstrap.servers' = '{servers}', 'format' = 'json',
  'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="cAnary7301";',
  'properties.sasl.oauthbearer.client.credentials.client.secret' = '${{SECRET}}',
  'properties.ssl.key.password' = '${{env:CANARY_OF_ENVIRONMENT}}',
  'properties.ssl.truststore.password' = 'cAnary7301',
  'properties.basic.auth.user.info' = 'u:cAnary7301',
  'properties.schema.registry.url' = 'https://u:cAnary7301@127.0.0.1:1/',
  'properties.ssl.keystore.type' = 'PEM',
  'properties.ssl.keystore.key' = '-----BEGIN PRIVATE KEY-----
cAnary7301
-----END PRIVATE KEY-----'
"""
SCRIPT = """
-- properties.sasl.password = cAnary7301
SET 'defaults.topic.properties.sasl.password' = 'cAnary7301';
CREATE TABLE orders (k STRING, x INT) WITH ('connector' = 'kafka', 'topic' = '{topic}',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', {kafka});
CREATE TABLE names (k STRING, name STRING) WITH ({names});
CREATE TABLE totals (k STRING, s INT{column}, PRIMARY KEY (k) NOT ENFORCED) WITH ({totals});
CREATE TABLE files (k STRING, name STRING) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
CREATE TABLE alerts (k STRING, x INT) WITH ('connector' = 'kafka', 'topic' = '{topic}-out', {kafka});
SHOW CREATE TABLE orders;
SHOW CREATE TABLE totals;
EXECUTE STATEMENT SET BEGIN -- token=cAnary7301
INSERT INTO totals SELECT k, SUM(x){more} FROM orders /* password: cAnary7301 */ GROUP BY k;
INSERT INTO files SELECT o.k, n.name FROM orders AS o JOIN names AS n ON o.k = n.k;
INSERT INTO alerts SELECT k, x FROM orders;
END;
"""


def read_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Return the contents of the files below a folder, also of those in archives."""
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or file.is_symlink() or file.suffix == ".sql":
            continue
        content = file.read_bytes()
        yield str(file.relative_to(folder)), content
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for name in archive.namelist():
                    yield f"{file.relative_to(folder)}/{name}", archive.read(name)


@pytest.mark.slow
def test_a_job_does_not_reveal_secrets(kafka_broker: KafkaBroker, database: Database, tmp_path: Path) -> None:
    topic, user = "canary", f"canary_{database.name}"
    kafka_broker.create_topic(topic)
    kafka_broker.create_topic(f"{topic}-out")
    kafka_broker.produce(topic, [(None, '{"k": "a", "x": 1}'), (None, '{"k": "b", "x": 2}')])
    database.run(f"CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{CANARY}'")
    database.run("CREATE TABLE names (k text, name text)")
    database.run("INSERT INTO names VALUES ('a', 'Ann')")
    database.run("CREATE TABLE totals (k text PRIMARY KEY, s int, n bigint)")

    def jdbc(table: str) -> str:
        options = {**database.options(table), "username": user, "password": "${env:CANARY_OF_ENVIRONMENT}"}
        return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())

    def script(name: str, column: str = "", more: str = "") -> str:
        kafka = KAFKA.format(servers=kafka_broker.bootstrap_servers)
        text = SCRIPT.format(
            topic=topic, kafka=kafka, names=jdbc("names"), totals=jdbc("totals"), column=column, more=more
        )
        (tmp_path / name).write_text(text)
        return name

    cache = tmp_path / "cache"
    cache.mkdir()
    jars = f"spark-kafka-{CONNECTOR_VERSION}"
    (cache / jars).symlink_to(cache_folder() / jars)
    (tmp_path / "tmp").mkdir()
    environment = {
        **os.environ,
        "CANARY_OF_ENVIRONMENT": CANARY,
        "EVERFOLD_CACHE": str(cache),
        "TMPDIR": str(tmp_path / "tmp"),
    }
    output: dict[str, str] = {}

    def everfold(*arguments: str, code: int = 0) -> None:
        command = [sys.executable, "-m", "everfold", *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            umask=0,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        output[" ".join(arguments)] = done.stdout + done.stderr

    old, new = script("old.sql"), script("new.sql", ", n BIGINT", ", COUNT(*)")
    # The settings that make Spark log the most about itself.
    loud = (
        "spark.log.level=INFO",
        "spark.logConf=true",
        "spark.scheduler.listenerbus.logSlowEvent.threshold=1ms",
        f"spark.hadoop.fs.s3a.secret.key={CANARY}",
        f"spark.hadoop.fs.azure.account.key.x={CANARY}",
    )
    started = ("--state", "job", "--var", f"SECRET={CANARY}", *(f"--conf={each}" for each in loud))
    everfold("run", old, *started)
    assert sorted(database.run("SELECT k, s FROM totals")) == [("a", 1), ("b", 2)]
    for what in (["explain", old, "--var", "SECRET=x"], ["history", "job"], ["history", "job", "--format", "json"]):
        everfold(*what)
    for form in ("text", "json", "github"):
        everfold("check", new, "--state", "job", "--format", form, code=3)
    everfold("run", new, *started, code=1)
    everfold("run", new, *started, "--on-change", "accept")
    everfold("diff", "job", "0", "1")
    everfold("state", "job")
    # A failure in a worker, and one in the database.
    kafka_broker.produce(topic, [(None, BAD_RECORD)])
    everfold("run", new, "--state", "broken", *started[2:], code=1)
    database.run(f"ALTER ROLE {user} NOLOGIN")
    everfold("run", new, *started, code=1)
    log = "".join((tmp_path / name / "job.log").read_text() for name in ("job", "broken"))
    assert "fs.azure.account.key.x=*********(redacted)" in log
    private = ("", "manifest", "manifest/2.json", "lock", "job.log", "job.log4j2.properties", "control")
    assert [name for name in private if (tmp_path / "job" / name).stat().st_mode & 0o077] == []
    revealing = [name for name, text in output.items() if CANARY in text]
    left = [name for name, content in read_files(tmp_path) if CANARY.encode() in content]
    assert (revealing, left) == ([], [])
