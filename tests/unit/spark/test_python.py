"""Functions on their way to workers, which have neither the user's modules nor the user's
directory.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everfold.plan.expressions import PythonCall
from everfold.plan.nodes import Project
from everfold.plan.python_aggregates import AggregateNode, collect_rows
from everfold.plan.walk import walk_plan
from everfold.spark.python import pickle_by_value
from everfold.sql.planner import Session, Submit
from everfold.udf.function import PythonFunction

HELPER = "FACTOR = 10\n\ndef times_ten(value):\n    return value * FACTOR\n"
MODULE = """
import functools

from everfold.udf import AggregateFunction, ScalarFunction, udf
from travelling.helpers import numbers


def added(one, other):
    return numbers.times_ten(one) + other


class Object(ScalarFunction):
    def eval(self, value):
        return numbers.times_ten(value)


class Total(AggregateFunction):
    def create_accumulator(self):
        return [0]

    def accumulate(self, accumulator, value):
        accumulator[0] += numbers.times_ten(value)

    def get_value(self, accumulator):
        return accumulator[0]

    def get_result_type(self):
        return 'BIGINT'

    def get_accumulator_type(self):
        return 'ARRAY<BIGINT>'


plain = udf(lambda value: numbers.times_ten(value), result_type='INT')
partial = udf(functools.partial(functools.partial(added), other=1), result_type='INT')
object_ = udf(Object(), result_type='INT')
"""
WORKER = """
import pickle, sys
call, args = pickle.loads(sys.stdin.buffer.read()), eval(sys.argv[1])
print(call(*args))
"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Create a session next to a package `travelling` that only this process can import."""
    package = tmp_path / "travelling"
    (package / "helpers").mkdir(parents=True)
    for place in (package, package / "helpers"):
        (place / "__init__.py").touch()
    (package / "helpers" / "numbers.py").write_text(HELPER)
    (package / "functions.py").write_text(MODULE)
    yield Session(folder=tmp_path, import_functions=True)
    for name in [name for name in sys.modules if name.partition(".")[0] == "travelling"]:
        del sys.modules[name]


def register(session: Session, attribute: str) -> PythonFunction:
    list(session.run(f"CREATE TEMPORARY FUNCTION f AS 'travelling.functions.{attribute}' LANGUAGE PYTHON"))
    (function,) = session.catalog.functions
    return function.python


def run_in_worker(function: PythonFunction, method: str, args: str, elsewhere: Path) -> str:
    """Return what a method returns in another process, in another directory."""
    from pyspark import cloudpickle

    pickle_by_value([function])
    pickled = cloudpickle.dumps(  # type: ignore[no-untyped-call]
        getattr(function.function, method)
    )
    done = subprocess.run(
        [sys.executable, "-c", WORKER, args], input=pickled, capture_output=True, check=True, timeout=60, cwd=elsewhere
    )
    return str(done.stdout.decode().strip())


@pytest.mark.parametrize(("attribute", "answer"), [("plain", "70"), ("partial", "71"), ("object_", "70")])
def test_a_function_is_sent_with_its_modules(
    session: Session, attribute: str, answer: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert run_in_worker(register(session, attribute), "eval", "(7,)", elsewhere) == answer


def test_an_aggregate_function_is_sent_as_batches_call_it(
    session: Session, tmp_path_factory: pytest.TempPathFactory
) -> None:
    register(session, "Total")
    *_, action = session.run("CREATE TABLE t (a INT); SELECT f(a) AS x FROM t")
    assert isinstance(action, Submit)
    (node,) = (each for each in walk_plan(action.roots[0].input) if isinstance(each, AggregateNode))
    collected = collect_rows(node)
    assert isinstance(collected, Project)
    (call,) = collected.expressions
    assert isinstance(call, PythonCall)
    assert run_in_worker(call.of, "eval", "([(1,), (2,)],)", tmp_path_factory.mktemp("elsewhere")) == "30"


def test_a_plan_with_functions_can_be_pickled(session: Session) -> None:
    function = register(session, "object_")
    assert pickle.loads(pickle.dumps(function)) == function
