"""Run an operator as an engine does: prepare tasks, distribute rows over buckets, step every
bucket, restart between steps.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from everfold.operators.factory import operator_of
from everfold.operators.protocol import ClockSpec, Meta, Operator
from everfold.plan.expressions import Call, Expr, InputRef
from everfold.plan.nodes import (
    AggCall,
    Plan,
    Scan,
    Table,
    TableColumn,
    TimeKind,
    WindowAggregate,
    WindowTableFunction,
    is_stateful,
)
from everfold.plan.windows import Window
from everfold.state.store import MemoryStore
from everfold.types import BIGINT, STRING, TIMESTAMP3, DataType

SCAN = Scan(
    table=Table(
        name="t",
        columns=(
            TableColumn(name="ts", type=TIMESTAMP3),
            TableColumn(name="k", type=STRING),
            TableColumn(name="v", type=BIGINT),
        ),
    )
)
KEY = InputRef(type=STRING, position=1, name="k")
VALUE = InputRef(type=BIGINT, position=2, name="v")


def aggregate_of(
    window: Window, key: InputRef | None = KEY, zone: str | None = None, **changes: Any
) -> WindowAggregate:
    """Return the plan of COUNT(*), SUM(v), MAX(v) by window and key."""
    calls = (
        AggCall(function="COUNT", args=(), type=BIGINT.as_nullable(False)),
        AggCall(function="SUM", args=(VALUE,), type=BIGINT),
        AggCall(function="MAX", args=(VALUE,), type=BIGINT),
    )
    return WindowAggregate(
        **{
            "input": SCAN,
            "window": window,
            "time_column": 0,
            "time": TimeKind.ROWTIME,
            "keys": (key,) if key is not None else (),
            "calls": calls,
            "zone": zone,
            **changes,
        }
    )


def rows_of(window: Window, key: bool = True) -> WindowTableFunction:
    """Return the plan of SELECT * FROM SESSION(TABLE t PARTITION BY k, …)."""
    return WindowTableFunction(
        input=SCAN, window=window, time_column=0, time=TimeKind.ROWTIME, partition_keys=(1,) if key else ()
    )


class Runner:
    """An operator with its buckets."""

    def __init__(
        self,
        node: Plan,
        buckets: int = 1,
        delay_ms: int = 0,
        restart: bool = False,
        clock: ClockSpec | None = None,
        updating: bool = False,
    ):
        self.node, self.delay_ms, self.restart, self.updating = node, delay_ms, restart, updating
        self.clock = clock or ClockSpec(splits=("t",))
        self.stores = [MemoryStore() for _ in range(buckets)]
        self.operator: Operator = self._make_operator()
        self._arrived = 0
        self.types: dict[str, DataType] = {each.name: each.type for each in self.operator.inputs}
        self.late = self.state_rows = 0
        self.watermark: int | None = None
        self.meta: Meta | None = None

    def _make_operator(self) -> Operator:
        assert is_stateful(self.node)
        return operator_of(self.node, "w1", self.clock, updating=self.updating)

    def batch(
        self, tasks: Sequence[Sequence[tuple[Any, ...]]], flush: bool = False, now_ms: int = 0
    ) -> list[tuple[Any, ...]]:
        """Run a batch of rows (time, key, value, and their kind if they may be changes).

        The rows come in several tasks, which reach the buckets last task first. Return the rows
        emitted by all buckets.
        """
        if self.restart:
            self.operator = pickle.loads(pickle.dumps(self._make_operator()))
        parts: list[list[pl.DataFrame]] = [[] for _ in self.stores]
        metas = [Meta(now_ms, {}, flush)]
        for rows in tasks:
            if not rows:
                continue
            metas.append(Meta(now_ms, {"t": max(row[0] for row in rows) - self.delay_ms}))
            prepared = self.operator.prepare(self.frame(rows))
            for bucket, part in enumerate(parts):
                chosen = prepared.filter(pl.col("hash") % len(parts) == bucket)
                if chosen.height:
                    part.append(chosen)
        found: list[tuple[Any, ...]] = []
        self.late = self.state_rows = 0
        for store, part in zip(self.stores, parts, strict=True):
            step = self.operator.step(store, part[::-1], metas)
            assert dict(step.rows.schema) == {
                f"c{at}": field.type.polars for at, field in enumerate(self.operator.schema)
            }, step.rows.schema
            self.late += step.stats.late_rows
            self.state_rows += step.stats.state_rows
            assert self.watermark is None or store is self.stores[0] or self.watermark == step.stats.watermark_ms
            self.watermark, self.meta = step.stats.watermark_ms, step.meta
            found += step.rows.rows()
        return found

    def frame(self, rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
        """Return rows in the format of `prepare`."""
        types: dict[str, pl.DataType] = {"hash": pl.Int64(), "seq": pl.Int64(), "kind": pl.Int8()}
        values: dict[str, list[Any]] = {"hash": [_hash(row[1]) if self.operator.hash_columns else 0 for row in rows]}
        for each in self.operator.inputs:
            if each.as_ms:
                values[each.name] = [row[0] for row in rows]
            elif isinstance(each.expression, Call):
                assert each.expression.function == "IS NOT NULL", each.expression
                (of,) = each.expression.args
                values[each.name] = [_cell(of, row) is not None for row in rows]
            else:
                cells = [_cell(each.expression, row) for row in rows]
                values[each.name] = [_hash(cell) for cell in cells] if each.as_hash else cells
        if self.operator.ordered:
            values["seq"] = list(range(self._arrived, self._arrived + len(rows)))
            self._arrived += len(rows)
        if self.operator.updating:
            values["kind"] = [row[3] for row in rows]
        return pl.DataFrame(values, schema={name: types.get(name) or self.types[name].polars for name in values})


def _cell(of: Expr, row: tuple[Any, ...]) -> Any:
    assert isinstance(of, InputRef), of
    return _instant(row[0]) if of.position == 0 else row[of.position]


def _hash(key: Any) -> int:
    found = 7
    for char in repr(key):
        found = (found * 1_000_003 ^ ord(char)) & ((1 << 62) - 1)
    return found - (1 << 61)


def _instant(at: int) -> Any:
    from datetime import datetime, timedelta

    return datetime(1970, 1, 1) + timedelta(milliseconds=at)


def ms(at: Any) -> int:
    """Return a wall clock time as milliseconds."""
    from datetime import datetime, timedelta

    return int((at.replace(tzinfo=None) - datetime(1970, 1, 1)) / timedelta(milliseconds=1))


def plain(rows: Iterable[tuple[Any, ...]], keyed: bool = True) -> list[tuple[Any, ...]]:
    """Return emitted rows of `aggregate_of` in the format of the reference."""
    found = []
    for row in rows:
        key, rest = (row[0], row[1:]) if keyed else (None, row)
        count, total, most, start, end, time = rest
        assert ms(time) == ms(end) - 1
        found.append((key, ms(start), ms(end), count, total, most))
    return sorted(found, key=repr)
