"""Random scripts with tables, options and queries, right and wrong in many ways."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

ENVIRONMENT = {"EVERFOLD_TEST_FOLDER": "orders", "EVERFOLD_TEST_PASSWORD": "hunter2"}
"""The variables that scripts read. They also read `EVERFOLD_TEST_MISSING`, which is not set."""
VARIABLES = {"folder": "orders", "format": "json"}
"""The values that `--var` may give."""

COLUMNS = "k STRING, j INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
KAFKA = "'properties.bootstrap.servers' = 'localhost:9092'"
STARTS = "'scan.startup.mode' = 'earliest-offset'"

SOURCES = (
    # right
    ("'connector' = 'filesystem', 'path' = 'orders', 'format' = 'json'", 30),
    ("'connector' = 'filesystem', 'path' = 'file:///tmp/orders', 'format' = 'csv', 'source.monitor-interval' = '1 s'", 10),
    ("'connector' = 'filesystem', 'path' = '${folder}', 'format' = '${format}'", 10),
    ("'connector' = 'filesystem', 'path' = '${env:EVERFOLD_TEST_FOLDER}', 'format' = 'parquet'", 10),
    (f"'connector' = 'kafka', 'topic' = 'orders', {KAFKA}, {STARTS}, 'format' = 'json'", 20),
    (f"'connector' = 'kafka', 'topic' = 'a;b', {KAFKA}, {STARTS}, 'format' = 'debezium-json'", 10),
    (f"'connector' = 'kafka', 'topic' = 'orders', {KAFKA}, {STARTS}, 'scan.bounded.mode' = 'latest-offset', 'format' = 'csv'", 5),
    ("'connector' = 'datagen'", 10),
    ("'connector' = 'datagen', 'number-of-rows' = '10', 'fields.v.min' = '1'", 15),
    ("'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/shop', 'table-name' = 'orders', 'username' = 'u', 'password' = '${env:EVERFOLD_TEST_PASSWORD}'", 10),
    ("'connector' = 'delta', 'table-path' = 'orders'", 10),
    ("'connector' = 'delta', 'table-path' = 's3a://bucket/orders', 'mode' = 'streaming'", 5),
    # wrong, or only in some mode
    ("'connector' = 'delta', 'table-path' = 'orders', 'versionAsOf' = '3'", 1),
    ("'connector' = 'filesystem', 'path' = 'orders', 'format' = 'xml'", 1),
    ("'connector' = 'filesystem', 'path' = 'orders'", 1),
    ("'connector' = 'filesystem', 'format' = 'json'", 1),
    ("'connector' = 'filesystem', 'path' = 'ftp://h/orders', 'format' = 'json'", 1),
    ("'connector' = 'filesystem', 'path' = 's3a://key:secret@bucket/orders', 'format' = 'json'", 1),
    ("'connector' = 'filesystem', 'path' = 'orders', 'format' = 'raw'", 1),
    ("'connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'json.ignore-parse-errors' = 'maybe'", 1),
    ("'connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'source.monitor-interval' = 'soon'", 1),
    ("'connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'pfad' = 'x'", 1),
    ("'connector' = 'filesystem', 'path' = '${missing}', 'format' = 'json'", 1),
    ("'connector' = 'filesystem', 'path' = '${env:EVERFOLD_TEST_MISSING}', 'format' = 'json'", 1),
    (f"'connector' = 'kafka', 'topic' = 'orders', {KAFKA}, 'format' = 'json'", 1),
    (f"'connector' = 'kafka', {KAFKA}, {STARTS}, 'format' = 'json'", 1),
    (f"'connector' = 'kafka', 'topic' = 'orders', {STARTS}, 'format' = 'json'", 1),
    (f"'connector' = 'kafka', 'topic' = 'orders', {KAFKA}, 'scan.startup.mode' = 'yesterday', 'format' = 'json'", 1),
    (f"'connector' = 'kafka', 'topic' = 'orders', {KAFKA}, {STARTS}, 'format' = 'protobuf'", 1),
    (f"'connector' = 'kafka', 'topic' = 'orders', {KAFKA}, {STARTS}, 'key.format' = 'raw', 'format' = 'json'", 1),
    ("'connector' = 'datagen', 'number-of-rows' = '-1'", 1),
    ("'connector' = 'datagen', 'fields.x.min' = '1'", 1),
    ("'connector' = 'jdbc', 'url' = 'jdbc:mysql://h/shop', 'table-name' = 'orders'", 1),
    ("'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/shop', 'table-name' = 'a.b.c'", 1),
    ("'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/shop', 'table-name' = 'orders', 'password' = 'hunter2'", 1),
    ("'connector' = 'print'", 1),
    ("'connector' = 'blackhole'", 1),
    ("'connector' = 'iceberg'", 1),
    ("'connector' = 'kafak', 'topic' = 'orders'", 1),
    ("'connector' = 'filesystem', 'path' = 'a', 'path' = 'b', 'format' = 'json'", 1),
    ("'topic' = 'orders'", 1),
    ("", 1),
)  # fmt: skip
"""The options of the table `orders`, with weights."""

SINKS = (
    ("'connector' = 'print'", 36),
    ("'connector' = 'blackhole'", 18),
    ("'connector' = 'filesystem', 'path' = 'totals', 'format' = 'json'", 18),
    ("'connector' = 'filesystem', 'path' = 'totals', 'format' = 'debezium-json'", 1),
    (f"'connector' = 'kafka', 'topic' = 'totals', {KAFKA}, 'format' = 'json'", 18),
    (f"'connector' = 'kafka', 'topic' = 'totals', {KAFKA}, 'format' = 'debezium-json'", 1),
    (f"'connector' = 'upsert-kafka', 'topic' = 'totals', {KAFKA}, 'key.format' = 'json', 'value.format' = 'json'", 30),
    (f"'connector' = 'upsert-kafka', 'topic' = 'totals', {KAFKA}, 'key.format' = 'json'", 1),
    (f"'connector' = 'upsert-kafka', 'topic' = 'totals', {KAFKA}, 'key.format' = 'debezium-json', 'value.format' = 'json'", 1),
    (f"'connector' = 'kafka', 'topic' = 'a;b', {KAFKA}, 'format' = 'json'", 1),
    ("'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/shop', 'table-name' = 'totals'", 24),
    ("'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/shop', 'table-name' = 'totals', 'sink.max-retries' = 'x'", 1),
    ("'connector' = 'delta', 'table-path' = 'totals'", 18),
    ("'connector' = 'delta', 'table-path' = 'totals', 'mode' = 'append'", 1),
    ("'connector' = 'datagen'", 1),
    ("'connector' = 'iceberg'", 1),
    ("'connector' = 'prnt'", 1),
    ("'connector' = 'print', 'print-identifer' = 'x'", 1),
    ("", 1),
)  # fmt: skip
"""The options of the table `totals`, with weights."""

KEYS = (
    ("", 3),
    (", PRIMARY KEY (k) NOT ENFORCED", 5),
    (", PRIMARY KEY (n) NOT ENFORCED", 1),
    (", PRIMARY KEY (k, n) NOT ENFORCED", 1),
)

QUERIES = (
    ("SELECT k, CAST(v AS BIGINT) AS n FROM orders", 16),
    ("SELECT k, COUNT(*) AS n FROM orders GROUP BY k", 24),
    ("SELECT k, COUNT(*) AS n FROM orders GROUP BY k, j", 8),
    ("SELECT 'all' AS k, COUNT(*) AS n FROM orders", 4),
    ("SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY k, window_start, window_end", 12),
    ("SELECT k, COUNT(*) AS n FROM SESSION(TABLE orders PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY k, window_start, window_end", 4),
    ("SELECT k, COUNT(*) OVER (PARTITION BY k ORDER BY ts) AS n FROM orders", 8),
    ("SELECT k, n FROM (SELECT k, CAST(v AS BIGINT) AS n, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM orders) WHERE r <= 2", 8),
    ("SELECT k, n FROM (SELECT k, CAST(v AS BIGINT) AS n, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM orders) WHERE r = 1", 4),
    ("SELECT k, COUNT(n) AS n FROM (SELECT k, j, MAX(v) AS n FROM orders GROUP BY k, j) GROUP BY k", 8),
    ("SELECT k, APPROX_COUNT_DISTINCT(n) AS n FROM (SELECT k, j, MAX(v) AS n FROM orders GROUP BY k, j) GROUP BY k", 4),
    ("SELECT DISTINCT k, CAST(v AS BIGINT) AS n FROM orders", 4),
    ("SELECT k, CAST(v AS BIGINT) AS n FROM orders ORDER BY v LIMIT 3", 4),
    ("SELECT k, CAST(v AS BIGINT) AS n FROM orders UNION ALL SELECT k, COUNT(*) FROM orders GROUP BY k", 4),
    ("SELECT k, COUNT(*) AS n FROM (SELECT k, v FROM orders UNION ALL SELECT 'all', 2 * v FROM orders) GROUP BY k", 4),
    ("SELECT o.k, o.n FROM (SELECT k, COUNT(*) AS n FROM orders GROUP BY k) AS o JOIN names ON o.k = names.k", 4),
    ("SELECT orders.k, CAST(v AS BIGINT) AS n FROM orders JOIN names ON orders.k = names.k", 4),
    ("SELECT k, CAST(v AS BIGINT) AS n FROM default_catalog.default_database.orders", 4),
    ("SELECT k, CAST(twice(v) AS BIGINT) AS n FROM orders", 4),
    ("SELECT 'x' AS k, CAST(1 AS BIGINT) AS n", 4),
    # wrong
    ("SELECT k, COUNT(*) AS n FROM ordrs GROUP BY k", 1),
    ("SELECT kk, COUNT(*) AS n FROM orders GROUP BY kk", 1),
    ("SELECT k, CUONT(*) AS n FROM orders GROUP BY k", 1),
    ("SELECT k, SUM(k) AS n FROM orders GROUP BY k", 1),
    ("SELECT k FROM orders", 1),
    ("SELECT k, COUNT(* AS n FROM orders GROUP BY k", 1),
)  # fmt: skip

SETTINGS = (
    ("SET 'execution.runtime-mode' = 'batch'", 3),
    ("SET 'execution.runtime-mode' = 'sometimes'", 1),
    ("SET 'table.local-time-zone' = 'Europe/Berlin'", 3),
    ("SET 'table.local-time-zone' = 'Mars/Base'", 1),
    ("SET 'parallelism.default' = 'two'", 1),
    ("SET 'table.exec.state.ttl' = '1 d'", 1),
    ("SET 'table.exec.state.ttl' = 'soon'", 1),
    ("SET 'pipeline.name' = '${missing}'", 1),
    ("SET 'pipeline.name' = '${folder}'", 1),
    ("SET 'everfold.engine' = 'memory'", 4),
    ("SET 'everfold.engine' = 'flink'", 1),
    ("SET 'everfold.no-such-option' = '1'", 1),
    ("SET 'execution.checkpointing.interval' = '1 min'", 1),
)  # fmt: skip

LOOKUPS = (
    ("'connector' = 'filesystem', 'path' = 'names', 'format' = 'json'", 3),
    ("'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/shop', 'table-name' = 'names'", 2),
    ("'connector' = 'delta', 'table-path' = 'names', 'versionAsOf' = '3'", 1),
    (f"'connector' = 'kafka', 'topic' = 'names', {KAFKA}, {STARTS}, 'format' = 'json'", 1),
)
TOPICS = (
    ("SET defaults.topic.properties.bootstrap.servers = 'localhost:9092'", 8),
    ("SET defaults.topic.properties.bootstrap.severs = 'localhost:9092'", 1),
    ("SET defaults.topic.autocreate = maybe", 1),
    ("SET defaults.topic.autocreate = true", 4),
    ("SET topic.totals.partitions = none", 1),
)
TOPIC_FORMATS = (
    ("(STRING, JSON)", 20),
    ("(STRING, AVRO)", 3),
    ("(STRING, XML)", 1),
    ("(JSON, JSON)", 1),
    ("(BYTES, STRING)", 1),
)
TOPIC_QUERIES = (
    "INSERT INTO totals SELECT STREAM COUNT(*) AS n FROM orders GROUP BY country",
    "INSERT INTO totals SELECT TABLE COUNT(*) AS n FROM orders GROUP BY country",
    "INSERT INTO totals SELECT STREAM points FROM orders",
    "SELECT STREAM SUM(points) AS n FROM orders GROUP BY country",
    "INSERT INTO totals SELECT STREAM COUNT(*) AS n FROM orders WINDOW BY TUMBLE 1m GROUP BY country",
    "INSERT INTO totals SELECT STREAM no_such_field FROM orders",
    "INSERT INTO orders SELECT STREAM points FROM orders",
)


@dataclass(frozen=True)
class Generated:
    """A script with the options of the command line."""

    text: str
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{' '.join(self.options)}\n{self.text}"


@dataclass
class Generator:
    """Makes scripts from a source of random numbers."""

    random: Random
    lines: list[str] = field(default_factory=list)

    def choose(self, weighted: tuple[tuple[str, int], ...]) -> str:
        """Return one of the texts, by their weights."""
        return self.random.choices([text for text, _ in weighted], [weight for _, weight in weighted])[0]

    def chance(self, share: float) -> bool:
        """Return True in this share of all calls."""
        return self.random.random() < share

    def make(self) -> Generated:
        """Return a script. It declares at least one of the tables that it uses."""
        self.lines = []
        options = [
            option for name, value in VARIABLES.items() if self.chance(0.9) for option in ("--var", f"{name}={value}")
        ]
        if self.chance(0.1):
            options.append("--batch")
        if self.chance(0.12):
            return Generated(self._lenses(), (*options, "--dialect", "lenses"))
        return Generated(self._flink(), tuple(options))

    def _flink(self) -> str:
        while self.chance(0.25):
            self.lines.append(self.choose(SETTINGS))
        self.lines += [
            self._table("orders", COLUMNS, self.choose(SOURCES)),
            self._table("totals", f"k STRING, n BIGINT{self.choose(KEYS)}", self.choose(SINKS)),
            self._table("names", "k STRING, name STRING", self.choose(LOOKUPS)),
        ]
        if self.chance(0.9):
            module = "no_shop" if self.chance(0.02) else "shop"
            self.lines.append(f"CREATE FUNCTION twice AS '{module}.twice' LANGUAGE PYTHON")
        query = self.choose(QUERIES)
        kind = self.random.randrange(10)
        if kind == 0:
            self.lines.append(query)
        elif kind == 1:
            self.lines += [f"CREATE VIEW counted AS {query}", "INSERT INTO totals SELECT k, n FROM counted"]
        elif kind == 2:
            other = f"INSERT INTO totals {self.choose(QUERIES)}"
            self.lines.append(f"EXECUTE STATEMENT SET BEGIN INSERT INTO totals {query}; {other}; END")
        elif kind == 3:
            self.lines.append(f"CREATE TABLE copy WITH ({self.choose(SINKS[:-1])}) AS {query}")
        elif kind == 4:
            self.lines += [f"INSERT INTO totals {query}", f"INSERT INTO totals {self.choose(QUERIES)}"]
        else:
            self.lines.append(f"INSERT INTO {'totls' if self.chance(0.05) else 'totals'} {query}")
        return ";\n".join(self.lines) + ";\n"

    @staticmethod
    def _table(name: str, columns: str, options: str) -> str:
        return f"CREATE TABLE {name} ({columns}){f' WITH ({options})' if options else ''}"

    def _lenses(self) -> str:
        while self.chance(0.7):
            self.lines.append(self.choose(TOPICS))
        form = self.choose(TOPIC_FORMATS)
        self.lines.append(f"CREATE TABLE orders(_key STRING, points INT, country STRING) FORMAT {form}")
        if self.chance(0.5):
            self.lines.append(f"CREATE TABLE totals(_key STRING, n BIGINT) FORMAT {self.choose(TOPIC_FORMATS)}")
        self.lines.append(self.random.choice(TOPIC_QUERIES))
        return ";\n".join(self.lines) + ";\n"
