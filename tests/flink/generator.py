"""Make random questions: the same seed and number make the same question."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from flink.expressions import ANY, NUMBERS, Scope, expression
from flink.questions import Question, Row, Table
from flink.tree import Node, make_list

from everfold.testing.casefile import Mode

BOTH: tuple[Mode, ...] = ("stream", "batch")
STREAM: tuple[Mode, ...] = ("stream",)
BATCH: tuple[Mode, ...] = ("batch",)

COLUMNS = (
    ("id", "INT NOT NULL"),
    ("k", "STRING"),
    ("g", "INT"),
    ("n", "INT"),
    ("m", "BIGINT"),
    ("h", "SMALLINT"),
    ("p", "DECIMAL(10, 2)"),
    ("x", "DOUBLE"),
    ("f", "FLOAT"),
    ("s", "STRING"),
    ("b", "BOOLEAN"),
    ("d", "DATE"),
    ("c", "TIME"),
    ("a", "ARRAY<INT>"),
    ("at_", "TIMESTAMP(3)"),
)
SCOPE: Scope = {
    "INT": ("id", "g", "n", "n", "h"),
    "BIGINT": ("m",),
    "DECIMAL": ("p",),
    "DOUBLE": ("x",),
    "FLOAT": ("f",),
    "STRING": ("k", "s", "s"),
    "BOOLEAN": ("b",),
    "DATE": ("d",),
    "TIME": ("c",),
    "TIMESTAMP": ("at_",),
    "ARRAY": ("a",),
}
VALUES: dict[str, tuple[str, ...]] = {
    "k": ("a", "b", "c"),
    "g": ("1", "2", "3"),
    "n": ("-7", "0", "1", "2", "3", "10", "100", "2147483647"),
    "m": ("-5", "0", "4", "10000000000"),
    "h": ("-1", "3", "200"),
    "p": ("-1.25", "0.00", "0.99", "10.50", "12345678.90"),
    "x": ("-2.5", "0.0", "0.5", "1.25", "1000.0"),
    "f": ("-2.5", "0.5", "3.0", "0.1"),
    "s": ("a", "ab", "abc", "Bc", "x,y", "12", "-1.5", "Äö", "b,c,d", '{"a": 1}', "TRUE"),
    "b": ("TRUE", "FALSE"),
    "d": ("2019-12-31", "2020-01-01", "2020-02-29", "2021-06-15"),
    "c": ("00:00:00", "08:10:30", "23:59:59"),
    "a": ("[]", "[1]", "[2, 1, 2]", "[3, null]"),
}
AGGREGATES = (
    ("COUNT(*)", ()),
    ("COUNT(§)", ANY),
    ("COUNT(DISTINCT §)", ("INT", "STRING")),
    ("SUM(§)", NUMBERS),
    ("SUM(§)", ("FLOAT",)),
    ("SUM(DISTINCT §)", ("INT", "DECIMAL")),
    ("AVG(§)", NUMBERS),
    ("MIN(§)", (*NUMBERS, "DATE", "TIMESTAMP", "STRING")),
    ("MAX(§)", (*NUMBERS, "DATE", "TIMESTAMP", "STRING", "BOOLEAN")),
    ("VAR_POP(§)", ("DOUBLE", "DOUBLE", "INT")),
    ("STDDEV_SAMP(§)", ("DOUBLE", "DECIMAL")),
    ("COLLECT(§)", ("INT", "STRING")),
    ("PERCENTILE(§, 0.5)", ("DOUBLE", "INT")),
)
ORDERED_AGGREGATES = (
    ("LISTAGG(§)", ("STRING",)),
    ("LISTAGG(§, '/')", ("STRING",)),
    ("FIRST_VALUE(§)", ("INT", "STRING", "DECIMAL")),
    ("LAST_VALUE(§)", ("INT", "STRING", "TIMESTAMP")),
    ("ARRAY_AGG(§)", ("INT",)),
    ("JSON_ARRAYAGG(§)", ("INT", "STRING")),
)
"""Calls whose values depend on row order, which is defined only in a stream."""
START = datetime(2020, 1, 1, 8)
DELAY = timedelta(seconds=10)
"""How far rows may be out of order."""


@dataclass
class Maker:
    """Make one question. `modes`, `watermark` and `ties` hold what its parts allow so far."""

    random: Random
    name: str
    modes: tuple[Mode, ...] = BOTH
    watermark_by_row: bool = False
    unique_times: bool = False
    has_late_rows: bool = True
    changing: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    scope: Scope = field(default_factory=lambda: SCOPE)

    def make(self) -> Question:
        kinds = list(KINDS)
        kind = self.random.choices(kinds, [KINDS[each] for each in kinds])[0]
        query = kind(self)
        # A row that is too late for some of its windows is not counted as late.
        self.has_late_rows = self.watermark_by_row or re.search("HOP|CUMULATE", query.sql) is None
        tables = [self.table("t")]
        if " u" in query.sql:
            tables.append(self.small_table())
        if self.watermark_by_row:
            self.modes = STREAM
        return Question(
            name=f"{self.name} {kind.__name__}",
            query=query,
            tables=tuple(tables),
            modes=self.modes,
            watermark="row" if self.watermark_by_row else "end",
            options=self.options,
        )

    # --- tables -----------------------------------------------------------------------------------

    def table(self, name: str) -> Table:
        """Return the table `t`, with few rows."""
        size = self.random.choice((0, 1, 3, 6, 10, 15, 25))
        rows: list[Row] = []
        time = START
        for id in range(size):
            rows.append(("+I", *self.row(id + 1, self.time(time))))
            time += timedelta(seconds=self.random.choice((1, 7, 20, 60, 200, 600)))
        if not self.unique_times and size > 1 and self.random.random() < 0.5:
            at = self.random.randrange(1, size)
            rows[at] = (*rows[at][:-1], rows[at - 1][-1])
        if self.random.random() < 0.5:
            self.shuffle_a_little(rows)
        constraint = f"WATERMARK FOR at_ AS at_ - INTERVAL '{DELAY.seconds}' SECOND"
        if self.changing is not None:
            rows = self.changes(rows)
            constraint = "PRIMARY KEY (id) NOT ENFORCED" if self.changing == "upsert" else ""
        return Table(name, COLUMNS, tuple(rows), constraint)

    def small_table(self) -> Table:
        """Return the table `u (j INT, w STRING)`, for joins and set operations."""
        rows = [("+I", str(at + 1), self.value("g"), self.value("k")) for at in range(self.random.choice((0, 2, 5)))]
        return Table("u", (("i", "INT NOT NULL"), ("j", "INT"), ("w", "STRING")), tuple(rows))

    def row(self, id: int, time: str) -> tuple[str | None, ...]:
        return (str(id), *(self.value(name) for name, _ in COLUMNS[1:-1]), time)

    def value(self, name: str) -> str | None:
        return None if self.random.random() < 0.12 else self.random.choice(VALUES[name])

    def time(self, base: datetime) -> str:
        return base.isoformat(sep=" ", timespec="milliseconds")

    def shuffle_a_little(self, rows: list[Row]) -> None:
        """Swap neighbors, and with a watermark after each row make some row far too late."""
        for at in range(1, len(rows)):
            earlier, later = (datetime.fromisoformat(str(row[-1])) for row in rows[at - 1 : at + 1])
            if self.random.random() < 0.3 and (self.has_late_rows or later - earlier <= DELAY):
                rows[at - 1], rows[at] = rows[at], rows[at - 1]

    def changes(self, rows: list[Row]) -> list[Row]:
        """Return inserts, with updates and deletes of earlier rows in between."""
        alive: dict[str | None, Row] = {}
        made: list[Row] = []
        for row in rows:
            alive[row[1]] = row
            made.append(row)
            while alive and self.random.random() < 0.35:
                id = self.random.choice(list(alive))
                before = alive.pop(id)
                if self.random.random() < 0.5:
                    made.append(("-D", *before[1:]))
                    continue
                at = self.random.randrange(2, len(before) - 1)
                name = COLUMNS[at - 1][0]
                after = (*before[:at], self.value(name), *before[at + 1 :])
                if self.changing == "retract":
                    made.append(("-U", *before[1:]))
                made.append(("+U", *after[1:]))
                alive[id] = after
        return made

    # --- parts ------------------------------------------------------------------------------------

    def expr(self, type: str | None = None, depth: int = 2) -> Node:
        return expression(self.random, type or self.random.choice((*ANY, "ARRAY")), self.scope, depth)

    def where(self, chance: float = 0.3) -> Node:
        if self.random.random() > chance:
            return Node("")
        return Node("\nWHERE §", (self.expr("BOOLEAN"),), optional=True)

    def key(self) -> Node:
        """Return an expression to group by."""
        roll = self.random.random()
        if roll < 0.7:
            name, type = self.random.choice((("k", "STRING"), ("g", "INT"), ("b", "BOOLEAN"), ("d", "DATE")))
            return Node(name, type=type)
        return self.expr(self.random.choice(("INT", "STRING", "BOOLEAN")), 1)

    def call(self, *, ordered: bool) -> Node:
        """Return an aggregate call. ordered: it may depend on row order, and then the query
        runs as a stream only.
        """
        forms: Sequence[tuple[str, tuple[str, ...]]] = AGGREGATES
        if ordered and self.changing is None and self.random.random() < 0.2:
            forms = ORDERED_AGGREGATES
            self.modes = STREAM
        text, types = self.random.choice(forms)
        arguments = () if not types else (self.expr(self.random.choice(types), self.random.choice((0, 0, 1, 2))),)
        call = Node(text, arguments)
        if self.random.random() < 0.2:
            return Node("§§", (call, Node(" FILTER (WHERE §)", (self.expr("BOOLEAN", 1),), optional=True)))
        return call

    def items(self, *nodes: Node) -> Node:
        return make_list("§", *(Node(f"§ AS c{at}", (node,)) for at, node in enumerate(nodes)))

    def calls(self, least: int = 1, *, ordered: bool = True) -> list[Node]:
        found = [self.call(ordered=ordered) for _ in range(self.random.randint(least, 3))]
        if self.random.random() < 0.2:
            found.append(Node("SUM(§) + COUNT(*)", (self.expr("INT", 0),)))
        return found

    def having(self) -> Node:
        if self.random.random() > 0.25:
            return Node("")
        form, types = self.random.choice(
            (
                ("COUNT(*) > 1", ()),
                ("SUM(§) > 2", ("INT",)),
                ("MAX(§) IS NOT NULL", ("STRING",)),
                ("MIN(§) < 3", ("INT",)),
            )
        )
        return Node("\nHAVING §", (Node(form, tuple(self.expr(type, 0) for type in types)),), optional=True)

    def changes_sometimes(self) -> None:
        """Make the table change, in one question of three."""
        if self.random.random() < 0.35:
            self.changing = self.random.choice(("upsert", "retract"))
            self.modes = STREAM


# --- kinds of queries -----------------------------------------------------------------------------


def projection(make: Maker) -> Node:
    make.changes_sometimes()
    items = make.items(Node("id"), *(make.expr(depth=3) for _ in range(make.random.randint(1, 4))))
    return Node("SELECT §\nFROM t§", (items, make.where(0.5)))


def grouping(make: Maker) -> Node:
    make.changes_sometimes()
    keys = [make.key() for _ in range(make.random.choice((0, 1, 1, 2)))]
    items = make.items(*keys, *make.calls())
    group = make_list("\nGROUP BY §", *keys) if keys else Node("")
    return Node("SELECT §\nFROM t§§§", (items, make.where(), group, make.having()))


def grouping_sets(make: Maker) -> Node:
    make.changes_sometimes()
    form = make.random.choice(
        ("GROUPING SETS ((k, g), (k), ())", "GROUPING SETS ((k), (g))", "CUBE (k, g)", "ROLLUP (k, g)", "ROLLUP (g, k)")
    )
    extra = [Node("GROUPING(k)"), Node("GROUPING_ID(k, g)")] if make.random.random() < 0.4 else []
    items = make.items(Node("k"), Node("g"), *extra, *make.calls(ordered=False))
    return Node(f"SELECT §\nFROM t§\nGROUP BY {form}§", (items, make.where(), make.having()))


def nested_grouping(make: Maker) -> Node:
    make.changes_sometimes()
    inner = Node(
        "SELECT k, g, SUM(§) AS n, COUNT(*) AS m, MAX(§) AS s\n  FROM t§\n  GROUP BY k, g",
        (make.expr("INT", 1), make.expr("STRING", 0), make.where()),
    )
    make.scope = {"INT": ("n", "g"), "BIGINT": ("m",), "STRING": ("k", "s")}
    key = make.random.choice(("k", "g", "m"))
    items = make.items(Node(key), *make.calls(ordered=False))
    return Node(f"SELECT §\nFROM (\n  §\n)\nGROUP BY {key}§", (items, inner, make.having()))


def distinct(make: Maker) -> Node:
    make.changes_sometimes()
    return Node("SELECT DISTINCT §\nFROM t§", (make.items(make.key(), make.key()), make.where()))


def union(make: Maker) -> Node:
    make.changes_sometimes()
    word = make.random.choice(("UNION ALL", "UNION"))
    types = [make.random.choice(ANY) for _ in range(2)]
    sides = [
        Node("SELECT §\nFROM t§", (make.items(*(make.expr(type, 1) for type in types)), make.where())) for _ in range(2)
    ]
    return Node(f"§\n{word}\n§", tuple(sides))


WINDOWS = (
    ("TUMBLE", "INTERVAL '5' MINUTES"),
    ("TUMBLE", "INTERVAL '1' MINUTE"),
    ("TUMBLE", "INTERVAL '10' MINUTES, INTERVAL '2' MINUTES"),
    ("HOP", "INTERVAL '2' MINUTES, INTERVAL '6' MINUTES"),
    ("HOP", "INTERVAL '5' MINUTES, INTERVAL '10' MINUTES, INTERVAL '1' MINUTE"),
    ("CUMULATE", "INTERVAL '2' MINUTES, INTERVAL '10' MINUTES"),
    ("SESSION", "INTERVAL '1' MINUTE"),
    ("SESSION", "INTERVAL '4' MINUTES"),
)


def window(make: Maker, *, sessions: bool = True) -> tuple[str, str, bool]:
    """Return a window function in FROM, with its partition key, and whether it supports
    order-dependent aggregates.
    """
    make.watermark_by_row = make.random.random() < 0.3
    name, sizes = make.random.choice([each for each in WINDOWS if sessions or each[0] != "SESSION"])
    partition = ""
    if name == "SESSION":
        if make.random.random() < 0.8:
            make.modes = STREAM
        partition = make.random.choice(("", "k", "g"))
    data = f"TABLE t{f' PARTITION BY {partition}' if partition else ''}"
    return f"{name}({data}, DESCRIPTOR(at_), {sizes})", partition, name == "TUMBLE" or make.random.random() < 0.2


def window_aggregate(make: Maker) -> Node:
    source, partition, ordered = window(make)
    keys = [Node(partition)] if partition else []
    if not keys and not source.startswith("SESSION"):
        keys = [make.key() for _ in range(make.random.choice((0, 1, 1, 2)))]
    times = [Node(name) for name in make.random.choice((("window_start", "window_end"), ("window_end",), ()))]
    items = make.items(*times, *keys, *make.calls(ordered=ordered))
    group = make_list(
        "\nGROUP BY window_start, window_end§", *(Node(", §", (key,)) for key in keys), separator="", least=0
    )
    return Node(f"SELECT §\nFROM {source}§§§", (items, make.where(), group, make.having()))


def window_grouping_sets(make: Maker) -> Node:
    source, _, _ = window(make, sessions=False)
    form = make.random.choice(("GROUPING SETS ((k, g), (k), ())", "CUBE (k, g)", "ROLLUP (k, g)"))
    items = make.items(Node("window_start"), Node("k"), Node("g"), *make.calls(ordered=False))
    return Node(
        f"SELECT §\nFROM {source}§\nGROUP BY window_start, window_end, {form}§", (items, make.where(), make.having())
    )


def session_groups(make: Maker) -> Node:
    """SESSION, grouped by other keys than its PARTITION BY column, or by several sets."""
    make.watermark_by_row = True
    partition = make.random.choice(("", "k", "g"))
    data = f"TABLE t{f' PARTITION BY {partition}' if partition else ''}"
    source = f"SESSION({data}, DESCRIPTOR(at_), INTERVAL '{make.random.choice((1, 4))}' MINUTE)"
    times = make.random.choice((("window_start", "window_end"), ("window_time",), ()))
    group = "\nGROUP BY window_start, window_end" + ", window_time" * ("window_time" in times)
    if make.random.random() < 0.4:
        # With the PARTITION BY column in its sets, Flink forms other sessions.
        one, other = make.random.sample([name for name in ("k", "g", "b") if name != partition], 2)
        sets = make.random.choice(("GROUPING SETS (({}), ({}), ())", "CUBE ({}, {})", "ROLLUP ({}, {})"))
        items = make.items(*map(Node, (*times, one, other)), *make.calls(ordered=False))
        return Node(
            f"SELECT §\nFROM {source}§{group}, {sets.format(one, other)}§", (items, make.where(), make.having())
        )
    keys = [make.key() for _ in range(make.random.choice((0, 1, 2)))]
    if partition and make.random.random() < 0.5:
        keys.append(Node(partition))
    items = make.items(*map(Node, times), *keys, *make.calls(ordered=False))
    grouped = make_list(f"{group}§", *(Node(", §", (key,)) for key in keys), separator="", least=0)
    return Node(f"SELECT §\nFROM {source}§§§", (items, make.where(), grouped, make.having()))


def window_rows(make: Maker) -> Node:
    source, _, _ = window(make)
    items = make.items(Node("id"), Node("window_start"), Node("window_end"), Node("window_time"), make.expr())
    return Node(f"SELECT §\nFROM {source}§", (items, make.where()))


def window_of_windows(make: Maker) -> Node:
    make.watermark_by_row = make.random.random() < 0.3
    inner = (
        "SELECT window_start AS ws, window_end AS we, window_time AS at_, k, COUNT(*) AS m, SUM(§) AS n\n"
        "  FROM TUMBLE(TABLE t, DESCRIPTOR(at_), INTERVAL '1' MINUTE)§\n  GROUP BY window_start, window_end, window_time, k"
    )
    first = Node(inner, (make.expr("INT", 0), make.where()))
    make.scope = {"INT": ("n",), "BIGINT": ("m",), "STRING": ("k",)}
    items = make.items(Node("window_start"), *make.calls(ordered=False))
    second = make.random.choice(
        (
            "TUMBLE(TABLE q, DESCRIPTOR(at_), INTERVAL '10' MINUTES)",
            "HOP(TABLE q, DESCRIPTOR(at_), INTERVAL '2' MINUTES, INTERVAL '4' MINUTES)",
        )
    )
    return Node(f"WITH q AS (\n  §\n)\nSELECT §\nFROM {second}\nGROUP BY window_start, window_end", (first, items))


def group_window(make: Maker) -> Node:
    make.watermark_by_row = make.random.random() < 0.3
    name, sizes = make.random.choice(
        (
            ("TUMBLE", "INTERVAL '5' MINUTE"),
            ("HOP", "INTERVAL '2' MINUTE, INTERVAL '6' MINUTE"),
            ("SESSION", "INTERVAL '2' MINUTE"),
        )
    )
    key = [make.key()] if make.random.random() < 0.6 else []
    times = [
        Node(f"{name}_{part}(at_, {sizes})")
        for part in make.random.sample(("START", "END", "ROWTIME"), make.random.randint(0, 2))
    ]
    items = make.items(*times, *key, *make.calls(ordered=name == "TUMBLE" or make.random.random() < 0.2))
    group = make_list(
        f"\nGROUP BY {name}(at_, {sizes})§", *(Node(", §", (each,)) for each in key), separator="", least=0
    )
    return Node("SELECT §\nFROM t§§§", (items, make.where(), group, make.having()))


FRAMES = (
    "",
    "ROWS UNBOUNDED PRECEDING",
    "ROWS 2 PRECEDING",
    "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
    "RANGE UNBOUNDED PRECEDING",
    "RANGE INTERVAL '2' MINUTE PRECEDING",
    "RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW",
)
OVER_CALLS = (
    ("COUNT(*)", ()),
    ("COUNT(§)", ("STRING", "INT")),
    ("SUM(§)", ("INT", "DECIMAL", "DOUBLE")),
    ("AVG(§)", ("DECIMAL", "DOUBLE")),
    ("MIN(§)", ("INT", "STRING")),
    ("MAX(§)", ("INT", "DECIMAL")),
    ("FIRST_VALUE(§)", ("INT", "STRING")),
    ("LAST_VALUE(§)", ("INT", "STRING")),
)


def over(make: Maker) -> Node:
    """OVER by event time, in both modes."""
    make.unique_times = True
    frame = make.random.choice(FRAMES)
    by = make.random.choice(("", "PARTITION BY k ", "PARTITION BY k, g "))
    calls = []
    for _ in range(make.random.randint(1, 3)):
        text, types = make.random.choice(OVER_CALLS)
        calls.append(Node(f"{text} OVER w", (make.expr(make.random.choice(types), 1),) if types else ()))
    items = make.items(Node("id"), *calls)
    return Node(f"SELECT §\nFROM t§\nWINDOW w AS ({by}ORDER BY at_ {frame})", (items, make.where()))


def over_late(make: Maker) -> Node:
    """OVER without a lower bound, with a watermark after each row."""
    node = over(make)
    while "RANGE I" in node.sql or "RANGE B" in node.sql or " 2 PRE" in node.sql or " 3 PRE" in node.sql:
        node = over(make)
    make.watermark_by_row = True
    return node


def over_functions(make: Maker) -> Node:
    make.unique_times = make.random.random() < 0.8
    known = (
        ("ROW_NUMBER()", "RANK()", "DENSE_RANK()", "LAG(n)", "LAG(s, 2)")
        if make.unique_times
        else ("RANK()", "DENSE_RANK()")
    )
    by = make.random.choice(
        (
            ("", ""),
            ("PARTITION BY k ", "PARTITION BY k "),
            ("PARTITION BY k ", "PARTITION BY k "),
            ("", "PARTITION BY k "),
        )
    )
    calls = zip(make.random.sample(known, 2), by, strict=True)
    items = make.items(Node("id"), *(Node(f"{call} OVER ({each}ORDER BY at_)") for call, each in calls))
    return Node("SELECT §\nFROM t§", (items, make.where()))


def over_any_order(make: Maker) -> Node:
    """OVER by one ascending column, the order that Flink also accepts in a stream.

    Equal values are in the order of arrival, which is defined only in a stream.
    """
    make.changes_sometimes()
    time = "d" if make.changing is None else "at_"
    order = make.random.choice(("id", "n", "n", "s", "p", "x NULLS LAST", "d", "c", "b", "m", "n + id", time))
    by = make.random.choice(("", "PARTITION BY k ", "PARTITION BY k ", "PARTITION BY g, b "))
    frame = make.random.choice(("", "RANGE UNBOUNDED PRECEDING", "ROWS UNBOUNDED PRECEDING"))
    ordered = order != "id"
    if ordered and frame.startswith("ROWS"):
        make.modes = STREAM
    items = [Node("id")]
    for _ in range(make.random.randint(1, 3)):
        text, types = make.random.choice(OVER_CALLS)
        while frame.startswith("ROWS") and "_VALUE" in text:
            text, types = make.random.choice(OVER_CALLS)
        if ordered and "_VALUE" in text:
            make.modes = STREAM
        arguments = (make.expr(make.random.choice(types), 1),) if types else ()
        items.append(Node(f"{text} OVER w", arguments))
    return Node(f"SELECT §\nFROM t§\nWINDOW w AS ({by}ORDER BY {order} {frame})", (make.items(*items), make.where()))


def over_ranks(make: Maker) -> Node:
    """Row numbers by any column."""
    make.changes_sometimes()
    order = make.random.choice(("id", "id", "n", "s", "p", "d"))
    by = make.random.choice(("", "PARTITION BY k "))
    call = make.random.choice(("ROW_NUMBER()", "RANK()", "DENSE_RANK()"))
    if call == "ROW_NUMBER()" and order != "id":
        make.modes = STREAM
    items = make.items(Node("id"), Node(f"{call} OVER ({by}ORDER BY {order})"), make.expr(depth=1))
    return Node("SELECT §\nFROM t§", (items, make.where()))


def over_arrival(make: Maker) -> Node:
    """OVER by processing time."""
    make.modes = STREAM
    by = make.random.choice(("", "PARTITION BY k ", "PARTITION BY g "))
    frame = make.random.choice(("", "ROWS UNBOUNDED PRECEDING", "RANGE UNBOUNDED PRECEDING", "ROWS 2 PRECEDING"))
    items = [Node("id")]
    for _ in range(make.random.randint(1, 2)):
        text, types = make.random.choice(OVER_CALLS)
        items.append(Node(f"{text} OVER w", (make.expr(make.random.choice(types), 1),) if types else ()))
    return Node(f"SELECT §\nFROM t§\nWINDOW w AS ({by}ORDER BY PROCTIME() {frame})", (make.items(*items), make.where()))


def over_batch(make: Maker) -> Node:
    """Orders and frames that Flink supports in batch only."""
    make.modes = BATCH
    by = make.random.choice(("", "PARTITION BY k "))
    order = make.random.choice(("g, id", "n DESC, id", "s NULLS LAST, id", "p, id DESC"))
    frame = make.random.choice(
        (
            "",
            "ROWS 2 PRECEDING",
            "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
            "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            "RANGE UNBOUNDED PRECEDING",
        )
    )
    items = [Node("id")]
    for _ in range(make.random.randint(1, 2)):
        text, types = make.random.choice(OVER_CALLS)
        arguments = (make.expr(make.random.choice(types), 1),) if types else ()
        items.append(Node(f"{text} OVER ({by}ORDER BY {order} {frame})", arguments))
    for call in make.random.sample(("ROW_NUMBER()", "RANK()", "DENSE_RANK()", "LAG(n)", "LEAD(s)", "LEAD(p, 2)"), 2):
        items.append(Node(f"{call} OVER ({by}ORDER BY {order})"))
    return Node("SELECT §\nFROM t§", (make.items(*items), make.where()))


def top_n(make: Maker) -> Node:
    make.changes_sometimes()
    by = make.random.choice(("", "PARTITION BY k ", "PARTITION BY g, b "))
    order = make.random.choice(
        ("n", "n DESC", "p DESC NULLS LAST", "s", "x DESC", "at_" if make.changing is None else "d")
    )
    condition = make.random.choice(("rn <= 1", "rn <= 2", "rn <= 3", "rn = 1", "rn < 3", "rn BETWEEN 2 AND 3"))
    shown = make.random.choice(("id, k, n", "id, rn", "id, s, rn"))
    return Node(
        f"SELECT {shown}\nFROM (\n  SELECT *, ROW_NUMBER() OVER ({by}ORDER BY {order}, id) AS rn FROM t§\n)\nWHERE {condition}",
        (make.where(),),
    )


def top_n_of_groups(make: Maker) -> Node:
    make.changes_sometimes()
    order = make.random.choice(("m DESC", "n", "n DESC"))
    return Node(
        "SELECT k, g, n, m\nFROM (\n  SELECT *, ROW_NUMBER() OVER ("
        f"PARTITION BY k ORDER BY {order}, g) AS rn\n  FROM (SELECT k, g, SUM(§) AS n, COUNT(*) AS m FROM t§ GROUP BY k, g)\n"
        ")\nWHERE rn <= 2",
        (make.expr("INT", 1), make.where()),
    )


def window_top_n(make: Maker) -> Node:
    make.watermark_by_row = make.random.random() < 0.3
    size = make.random.choice(("INTERVAL '5' MINUTES", "INTERVAL '1' MINUTE"))
    order = make.random.choice(("n DESC", "p", "s DESC"))
    by = make.random.choice(("", ", k"))
    return Node(
        f"SELECT id, window_end, rn\nFROM (\n  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end{by} ORDER BY {order}, id) AS rn\n"
        f"  FROM TUMBLE(TABLE t, DESCRIPTOR(at_), {size})\n)\nWHERE rn <= 2",
    )


def deduplication(make: Maker) -> Node:
    make.unique_times = make.random.random() < 0.8
    if not make.unique_times:
        make.modes = STREAM
    order = make.random.choice(("", " DESC"))
    if make.random.random() < 0.5:
        return Node(
            "SELECT id, k, s\nFROM (\n"
            f"  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at_{order}) AS rn FROM t§\n)\nWHERE rn = 1",
            (make.where(),),
        )
    inner = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at_{order}) AS rn FROM t"
    return Node(
        f"SELECT §\nFROM (\n  SELECT * FROM ({inner}) WHERE rn = 1\n)§\nGROUP BY g",
        (make.items(Node("g"), *make.calls(ordered=False)), make.where()),
    )


def first_rows(make: Maker) -> Node:
    make.changes_sometimes()
    order = make.random.choice(("n DESC", "s", "p NULLS LAST", "x"))
    limit = make.random.choice(("LIMIT 3", "LIMIT 2 OFFSET 1", "LIMIT 1"))
    return Node(f"SELECT id, §\nFROM t§\nORDER BY {order}, id {limit}", (make.items(make.expr(depth=1)), make.where()))


def join(make: Maker) -> Node:
    make.modes = BATCH
    word = make.random.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
    on = make.random.choice(("t.g = u.j", "t.k = u.w", "t.g = u.j AND t.k <> u.w"))
    make.scope = {**SCOPE, "INT": ("n", "j", "g"), "STRING": ("s", "w")}
    return Node(f"SELECT §\nFROM t {word} u ON {on}§", (make.items(Node("id"), Node("i"), make.expr()), make.where()))


def sets(make: Maker) -> Node:
    make.modes = BATCH
    form = make.random.choice(
        (
            "SELECT g, k FROM t§\nINTERSECT\nSELECT j, w FROM u",
            "SELECT g, k FROM t§\nEXCEPT\nSELECT j, w FROM u",
            "SELECT id FROM t§\nINTERSECT\nSELECT i FROM u",
            "SELECT id, k FROM (SELECT * FROM t§) AS t WHERE g IN (SELECT j FROM u)",
            "SELECT id, k FROM (SELECT * FROM t§) AS t WHERE EXISTS (SELECT 1 FROM u WHERE u.w = t.k)",
            "SELECT id, k FROM (SELECT * FROM t§) AS t WHERE g NOT IN (SELECT j FROM u WHERE j IS NOT NULL)",
            "SELECT id, (SELECT MAX(j) FROM u) AS c FROM t§",
        )
    )
    return Node(form, (make.where(),))


KINDS: dict[Callable[[Maker], Node], int] = {
    projection: 14,
    grouping: 14,
    grouping_sets: 4,
    nested_grouping: 5,
    distinct: 2,
    union: 3,
    window_aggregate: 14,
    window_grouping_sets: 3,
    session_groups: 4,
    window_rows: 3,
    window_of_windows: 4,
    group_window: 6,
    over: 7,
    over_late: 2,
    over_functions: 2,
    over_any_order: 6,
    over_ranks: 2,
    over_arrival: 2,
    over_batch: 4,
    top_n: 6,
    top_n_of_groups: 3,
    window_top_n: 3,
    deduplication: 4,
    first_rows: 3,
    join: 3,
    sets: 3,
}
"""Kinds of queries and how often each is asked."""


def question(seed: int, number: int) -> Question:
    """Return the question with a given seed and number."""
    return Maker(Random(f"{seed}/{number}"), f"seed {seed} query {number}").make()
