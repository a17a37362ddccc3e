"""Cases on Spark, in one session: the fewest that cover every shape of the case files. `make
test-all` runs all of them.

A shape consists of features. Operators over tables whose rows change come first, then features of
streams and batches (kinds of nodes, windows, time attributes, aggregates, result types), each in
each mode. The remaining cases cover scalar functions, which are the same SQL in both modes. The
case that adds most comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from everfold.errors import EverfoldError
from everfold.plan.emitted_changes import is_updating
from everfold.plan.expressions import Call, Expr, PythonCall, walk
from everfold.plan.nodes import (
    Filter,
    GroupAggregate,
    OverAggregate,
    Plan,
    Project,
    Scan,
    WindowAggregate,
    WindowTableFunction,
    is_stateful,
)
from everfold.plan.parts import children
from everfold.plan.walk import walk_plan
from everfold.testing.casefile import Case, Mode, find_case_files, load
from everfold.testing.runner import bind_query, run
from everfold.testing.spark_engine import SparkEngine

CASES = Path(__file__).parents[1] / "cases"
LENSES = CASES / "lenses"
MOST_OF_CHANGES, MOST_SHAPES, MOST = 8, 45, 60
MOST_OF_LENSES = 12


@dataclass(frozen=True)
class Features:
    """The features that a case covers in a mode."""

    changes: frozenset[str] = frozenset()
    shapes: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()


def find_features(case: Case, mode: Mode) -> Features:
    """Return the features that a case covers in a mode; none if the case is an error."""
    if any(step.error or mode in step.not_yet for step in case.steps):
        return Features()
    try:
        plan = bind_query(case, mode).input
    except EverfoldError:
        return Features()
    nodes = list(walk_plan(plan))
    shapes = {f"type {field.type.sql.partition('(')[0].partition('<')[0]}" for field in plan.schema}
    shapes |= {shape for node in nodes for shape in _shapes(node)}
    if len(case.steps) > 1:
        shapes.add("restart")
    if case.steps[0].batches == "row":
        shapes.add("late rows")
    functions = {name for node in nodes for expression in _expressions(node) for name in _functions(expression)}
    changes = {f"{mode} {_kind_of(node)}" for node in nodes if is_stateful(node) and _reads_changes(node)}
    return Features(frozenset(changes), frozenset(f"{mode} {shape}" for shape in shapes), frozenset(functions))


def _kind_of(node: Plan) -> str:
    window = getattr(node, "window", None)
    return f"{type(node).__name__} {type(window).__name__}"


def _reads_changes(node: Plan) -> bool:
    """Return whether an operator reads a table whose rows change, without another operator between."""
    (below,) = children(node)
    while not isinstance(below, Scan) and not is_stateful(below) and len(children(below)) == 1:
        (below,) = children(below)
    return isinstance(below, Scan) and is_updating(below)


def _shapes(node: Plan) -> Iterator[str]:
    kind = type(node).__name__
    yield kind
    if isinstance(node, WindowAggregate | WindowTableFunction):
        window = type(node.window).__name__
        yield f"{kind} {window} {node.time}"
        yield f"{window} zone={node.zone is not None}"
    if isinstance(node, OverAggregate):
        yield f"{kind} {node.time}"
    if isinstance(node, WindowAggregate | GroupAggregate):
        for call in node.calls:
            if call.python is not None:
                continue
            types = ",".join(type(arg.type).__name__ for arg in call.args)
            yield f"{call.function}({types})"
            yield f"distinct={call.distinct} filter={call.filter is not None}"


def _expressions(node: Plan) -> tuple[Expr, ...]:
    match node:
        case Project():
            return node.expressions
        case Filter():
            return (node.condition,)
        case _:
            return ()


def _functions(expression: Expr) -> Iterator[str]:
    """Return the SQL functions of an expression; Python functions have separate tests."""
    return (part.function for part in walk(expression) if isinstance(part, Call) and not isinstance(part, PythonCall))


@cache
def choose_cases() -> list[tuple[Case, Mode]]:
    """Choose the cases to run, each with its mode; those of Lenses SQL separately."""
    files = find_case_files([CASES])
    of_lenses = [path for path in files if LENSES in path.parents]
    others = [path for path in files if path not in of_lenses]
    return [*_choose(others), *_choose(of_lenses, MOST_OF_LENSES, MOST_OF_LENSES)]


def _choose(files: Sequence[Path], most_shapes: int = MOST_SHAPES, most: int = MOST) -> list[tuple[Case, Mode]]:
    shown = {
        (str(file.path), case.name, mode): (case, mode, find_features(case, mode))
        for file in map(load, files)
        for case in file.cases
        for mode in case.modes
    }
    taken: dict[tuple[str, str, Mode], None] = {}
    for limit, kind in ((MOST_OF_CHANGES, "changes"), (most_shapes, "shapes"), (most, "functions")):
        missing = frozenset().union(*(getattr(of, kind) for _, _, of in shown.values()))
        for key in taken:
            missing -= getattr(shown[key][2], kind)
        while missing and len(taken) < limit:
            # A batch costs Spark less than a stream.
            best = max(shown, key=lambda key: (len(getattr(shown[key][2], kind) & missing), key[2] == "batch"))
            missing -= getattr(shown[best][2], kind)
            taken[best] = None
    return [shown[key][:2] for key in taken]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each chosen case."""
    if "chosen_case" in metafunc.fixturenames:
        metafunc.parametrize(
            "chosen_case", choose_cases(), ids=lambda each: f"{each[0].file.path.stem}: {each[0].name} [{each[1]}]"
        )


@pytest.fixture(scope="session")
def spark_engine(spark: SparkSession) -> Iterator[SparkEngine]:
    """Run all cases in the one session of the tests."""
    made = SparkEngine(session=spark)
    yield made
    made.close()


@pytest.mark.spark
def test_case(chosen_case: tuple[Case, Mode], spark_engine: SparkEngine) -> None:
    case, mode = chosen_case
    outcome = run(case, spark_engine, mode)
    assert outcome.passed, f"{case.id}\n{outcome.message}"
