"""`properties.*` of a Kafka table: the settings for Spark's client and for the local client.

No output shows a secret of them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from unit.connectors.tables import table
from unit.job_dirs import open_dir

from everfold.connectors.contract import OptionValues, Role
from everfold.connectors.kafka.client import Client, client_settings, java_settings, kafka_error
from everfold.connectors.registry import connector_of
from everfold.errors import ConnectorError, EverfoldError, SqlError
from everfold.plan.nodes import Table
from everfold.secrets import redact_command_line, redact_script
from everfold.sql.planner import Session, Show, Submit
from everfold.types import INT

CANARY = "hunter2-canary"
JAAS = f"org.apache.kafka.common.security.plain.PlainLoginModule required username='ann' password=\"{CANARY}\";"
KAFKA = {
    "connector": "kafka",
    "topic": "bids",
    "properties.bootstrap.servers": "localhost:9092",
    "format": "json",
    "scan.startup.mode": "earliest-offset",
}
OWN = {"isolation.level": "read_committed", "bootstrap.servers": "localhost:9092"}


def of(**properties: str) -> Table:
    """Return a table with settings of Kafka's client; `__` stands for a dot."""
    client_options = {f"properties.{name.replace('__', '.')}": value for name, value in properties.items()}
    return table("bids", n=INT).with_options({**KAFKA, **client_options})


def options(made: Table) -> OptionValues:
    return connector_of(made).check(made, Role.SOURCE)


@pytest.mark.parametrize(
    ("properties", "own"),
    [
        ({}, {}),
        (
            {"security__protocol": "SASL_SSL", "sasl__mechanism": "SCRAM-SHA-512", "sasl__jaas__config": JAAS},
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": CANARY},
        ),
        ({"sasl__jaas__config": r'x required username=ann password="a\"b\\c;d";'}, {"sasl.username": "ann", "sasl.password": r'a"b\c;d'}),
        ({"sasl__jaas__config": 'x required password="";'}, {"sasl.password": ""}),
        (
            {"ssl__truststore__type": "PEM", "ssl__truststore__location": "/ca.pem", "ssl__truststore__password": CANARY},
            {"ssl.ca.location": "/ca.pem"},
        ),
        (
            {"ssl__keystore__type": "PEM", "ssl__keystore__location": "/me.pem", "ssl__key__password": CANARY},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": CANARY},
        ),
        (
            {"ssl__truststore__certificates": "CA", "ssl__keystore__type": "PEM", "ssl__keystore__certificate__chain": "C", "ssl__keystore__key": "K"},
            {"ssl.ca.pem": "CA", "ssl.certificate.pem": "C", "ssl.key.pem": "K"},
        ),
        (
            {"ssl__keystore__type": "PKCS12", "ssl__keystore__location": "/me.p12", "ssl__keystore__password": CANARY},
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": CANARY},
        ),
        ({"ssl__endpoint__identification__algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"fetch__max__wait__ms": "5", "interceptor__classes": "x", "group__id": "g", "client__id": "me"}, {"client.id": "me"}),
    ],
)  # fmt: skip
def test_both_clients_get_equivalent_settings(properties: dict[str, str], own: dict[str, str]) -> None:
    checked = options(of(**properties))
    assert client_settings(checked) == {**OWN, **own}
    java = java_settings(checked)
    ours = {
        "isolation.level": "read_committed", "default.api.timeout.ms": "15000", "request.timeout.ms": "12000", "max.poll.records": "50000",
        "max.partition.fetch.bytes": "2097152", "fetch.max.wait.ms": "10",
    }  # fmt: skip
    theirs = {name.replace("__", "."): value for name, value in properties.items()}
    theirs = {name: value for name, value in theirs.items() if name not in ("interceptor.classes", "group.id")}
    assert java == {**ours, **theirs, "bootstrap.servers": "localhost:9092"}


def test_a_key_store_that_only_java_reads_is_refused() -> None:
    for properties, words in (
        ({"ssl__truststore__location": "/t.jks"}, "`properties.ssl.truststore.location` is a store of type JKS"),
        ({"ssl__truststore__location": "/t", "ssl__truststore__type": "PKCS12"}, "a store of type PKCS12"),
        ({"ssl__keystore__location": "/k.jks"}, "`properties.ssl.keystore.location` is a store of type JKS"),
    ):
        with pytest.raises(SqlError, match="java-key-store") as caught:
            options(of(**properties))
        assert words in str(caught.value)
        assert "'PEM'" in str(caught.value.diagnostics[0].help)


# --- secrets --------------------------------------------------------------------------------------

SECRETS = {
    "sasl.jaas.config": JAAS,
    "sasl.password": CANARY,
    "ssl.key.password": CANARY,
    "ssl.keystore.password": CANARY,
    "ssl.truststore.password": CANARY,
    "sasl.oauthbearer.client.secret": CANARY,
}
OPTIONS = ", ".join(
    f"'{key}' = '{value}'"
    for key, value in {**KAFKA, **{f"properties.{key}": value.replace("'", "''") for key, value in SECRETS.items()}}.items()
)  # fmt: skip
DDL = f"CREATE TABLE bids (ts TIMESTAMP(3), n INT, WATERMARK FOR ts AS ts) WITH ({OPTIONS});"
QUERY = "SELECT window_end, SUM(n) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"


@pytest.mark.parametrize("statement", ["SHOW CREATE TABLE bids", "DESCRIBE bids", f"EXPLAIN {QUERY}", "SHOW TABLES"])
def test_no_statement_shows_a_secret(statement: str) -> None:
    (*_, answer) = Session().run(DDL + statement)
    assert isinstance(answer, Show)
    assert CANARY not in json.dumps(answer.rows)
    if statement.startswith("SHOW CREATE"):
        assert json.dumps(answer.rows).count("'******'") == len(SECRETS)


def test_no_plan_and_no_manifest_contains_a_secret(tmp_path: Path) -> None:
    (*_, job) = Session().run(DDL + QUERY)
    assert isinstance(job, Submit)
    assert CANARY not in repr(job.roots)
    open_dir(tmp_path, job.roots)
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and CANARY in file.read_text()]


def check_script(script: str) -> None:
    """Bind a script and check its tables, as a run does before it starts."""
    for action in Session().run(script, source="job.sql"):
        if isinstance(action, Submit):
            connector_of(action.sources[0]).check(action.sources[0], Role.SOURCE)


@pytest.mark.parametrize(
    "script",
    [
        DDL + "SELECT m FROM bids",
        DDL.replace("'kafka'", "'kafak'") + "SELECT n FROM bids",
        DDL.replace("'scan.startup.mode' = 'earliest-offset'", "'scan.startup.mode' = 'soon'") + "SELECT n FROM bids",
        DDL.replace("'properties.sasl.password' =", "'properties.sasl.password'") + "SELECT n FROM bids",
        DDL.replace(f"'properties.sasl.password' = '{CANARY}'", f"'properties.sasl.password' = '{CANARY}' '{CANARY}'"),
        DDL.replace("'properties.ssl.key.password'", "'properties.sasl.password'"),
        f"CREATE TABLE t (n INT) WITH ('properties.sasl.password' = '{CANARY}",
        f"SET 'properties.sasl.password' = '{CANARY}'",
    ],
    ids=["query", "connector", "option", "no equals", "two values", "given twice", "no end", "set"],
)
def test_no_error_quotes_a_secret_of_the_script(script: str) -> None:
    with pytest.raises(EverfoldError) as caught:
        check_script(script)
    message = str(caught.value)
    assert CANARY not in message
    assert "--> job.sql:1:" in message


def test_redaction_keeps_all_positions() -> None:
    text = f"SET 'a.password'\n = '{CANARY}'; SELECT 'password' AS x, 'it''s' AS y"
    hidden = redact_script(text)
    assert hidden == text.replace(CANARY, "*" * len(CANARY))
    assert redact_script("WITH ('topic' = 'a', 'b.token' = 'x''y')") == "WITH ('topic' = 'a', 'b.token' = '*''*')"


def test_the_logged_command_line_has_no_secrets() -> None:
    command = ["everfold", "run", "-e", DDL, "--var", f"pw={CANARY}", f"--var=x={CANARY}", "--conf", f"a.password={CANARY}"]  # fmt: skip
    logged = redact_command_line([*command, "--conf", "spark.ui.enabled=true"])
    assert CANARY not in logged
    assert logged.endswith("--var pw=****** --var=****** --conf a.password=****** --conf spark.ui.enabled=true")


def test_errors_of_kafka_have_no_secrets() -> None:
    made = of(security__protocol="SSL", ssl__key__password=CANARY, ssl__keystore__type="PEM", ssl__keystore__key=CANARY)
    with pytest.raises(ConnectorError) as caught:
        Client(made, options(made)).partitions()
    assert caught.value.code == "kafka-refused"
    assert CANARY not in str(caught.value)
    message = kafka_error(
        made, options(made), KafkaException(KafkaError(KafkaError._INVALID_ARG, f"bad value {CANARY}"))
    )
    assert str(message) == "error[kafka-refused]: table `bids`: Kafka says: bad value ******"
