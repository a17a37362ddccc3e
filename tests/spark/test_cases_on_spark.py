"""Cases on Spark, in one session: as few as show every shape that the case files know. `make test-all` runs all of them.

A shape is made of features: kinds of nodes, windows, time attributes, functions, types, modes. Cases are chosen so that together they have every
feature, the one that adds most first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from everfold.errors import EverfoldError
from everfold.plan.expressions import Call, Expr, walk
from everfold.plan.nodes import (
    GroupAggregate,
    Plan,
    Project,
    WatermarkAssigner,
    WindowAggregate,
    WindowTableFunction,
    walk_plan,
)
from everfold.testing.casefile import Case, Mode, find, load
from everfold.testing.engines import Engine, engine
from everfold.testing.runner import bound_query, run

CASES = Path(__file__).parents[1] / "cases"
MOST = 60


def features(case: Case, mode: Mode) -> frozenset[str]:
    """What a case shows in a mode; nothing if it is an error."""
    if any(step.error or step.not_yet for step in case.steps):
        return frozenset()
    try:
        plan = bound_query(case, mode).input
    except EverfoldError:
        return frozenset()
    found = {f"type {field.type.sql.partition('(')[0].partition('<')[0]}" for field in plan.schema}
    for node in walk_plan(plan):
        found |= {f"{mode} {each}" for each in _of_node(node)}
    if len(case.steps) > 1:
        found.add("restart")
    return frozenset(found)


def _of_node(node: Plan) -> Iterator[str]:
    kind = type(node).__name__
    yield kind
    if isinstance(node, WindowAggregate | WindowTableFunction):
        yield f"{kind} {type(node.window).__name__} {node.time} zone={node.zone is not None}"
    if isinstance(node, WindowAggregate | GroupAggregate):
        for call in node.calls:
            types = ",".join(type(arg.type).__name__ for arg in call.args)
            yield f"{call.function}({types}) distinct={call.distinct} filter={call.filter is not None}"
    if isinstance(node, WatermarkAssigner):
        yield f"watermark {type(node.watermark).__name__}"
    if isinstance(node, Project):
        yield from (f"function {name}" for expression in node.expressions for name in _functions(expression))


def _functions(expression: Expr) -> Iterator[str]:
    return (part.function for part in walk(expression) if isinstance(part, Call))


@cache
def chosen() -> list[tuple[Case, Mode]]:
    """The cases to run, each with its mode."""
    candidates = {
        (file.path, case.name, mode): (case, mode, features(case, mode))
        for file in map(load, find([CASES]))
        for case in file.cases
        for mode in case.modes
    }
    taken: list[tuple[Case, Mode]] = []
    covered: frozenset[str] = frozenset()
    while len(taken) < MOST and candidates:
        best = max(candidates, key=lambda key: len(candidates[key][2] - covered))
        case, mode, shown = candidates.pop(best)
        if not shown - covered:
            break
        covered |= shown
        taken.append((case, mode))
    return taken


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a chosen case."""
    if "chosen_case" in metafunc.fixturenames:
        metafunc.parametrize(
            "chosen_case", chosen(), ids=lambda each: f"{each[0].file.path.stem}: {each[0].name} [{each[1]}]"
        )


@pytest.fixture(scope="session")
def spark_engine() -> Iterator[Engine]:
    """One Spark session for all cases."""
    made = engine("spark")
    yield made
    made.close()


@pytest.mark.spark
def test_case(chosen_case: tuple[Case, Mode], spark_engine: Engine) -> None:
    case, mode = chosen_case
    outcome = run(case, spark_engine, mode)
    assert outcome.passed, f"{case.id}\n{outcome.message}"
