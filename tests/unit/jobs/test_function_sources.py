"""Python functions of a changed query: what identifies them, and how a changed body is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everfold.compat import Judgement, judge, shape_of
from everfold.jobs.function_sources import describe_changed_functions, describe_compared_functions, digest_functions
from everfold.plan.nodes import Root
from everfold.sql.planner import Session, Submit

MODULE = """
from everfold.udf import udf

@udf(result_type='INT')
def f(value):
    return {of_f}

@udf(result_type='INT')
def g(value):
    return -value
"""
TABLE = "CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json');"


def make_plans(folder: Path, script: str, of_f: str = "value") -> list[Root]:
    """Return the plans of a script. of_f: what the function `m.f` returns."""
    module = folder / "m.py"
    module.write_text(MODULE.format(of_f=of_f))
    os.utime(module, ns=(len(of_f) * 10**12, len(of_f) * 10**12))
    submits = [action for action in Session(folder=folder).run(TABLE + script) if isinstance(action, Submit)]
    return [root for submit in submits for root in submit.roots]


def judge_scripts(folder: Path, old: str, new: str) -> Judgement:
    before, after = ([shape_of(root) for root in make_plans(folder, script)] for script in (old, new))
    return judge(before, after)


def declare(name: str, attribute: str, query: str) -> str:
    return f"CREATE FUNCTION {name} AS '{attribute}' LANGUAGE PYTHON; {query}"


@pytest.mark.parametrize(
    ("query", "verdict"),
    [
        ("SELECT k, SUM(h(x)) AS s, COUNT(*) AS n FROM t GROUP BY k", "partially compatible"),
        ("SELECT h(x) AS h, COUNT(*) AS n FROM t GROUP BY h(x)", "incompatible"),
        ("SELECT k, COUNT(*) AS n FROM t WHERE h(x) > 0 GROUP BY k", "incompatible"),
    ],
)
def test_a_function_is_what_it_runs(tmp_path: Path, query: str, verdict: str) -> None:
    old = declare("h", "m.f", query)
    assert judge_scripts(tmp_path, old, declare("h", "m.g", query)).verdict.value == verdict
    renamed = declare("other", "m.f", query.replace("h(", "other("))
    assert judge_scripts(tmp_path, old, renamed).verdict.value == "fully compatible"


def test_a_changed_body_is_reported(tmp_path: Path) -> None:
    script = declare("h", "m.f", "SELECT k, SUM(h(x)) AS s FROM t GROUP BY k")
    recorded = digest_functions(make_plans(tmp_path, script))
    assert describe_changed_functions(recorded, make_plans(tmp_path, script)) == []
    changed = make_plans(tmp_path, script, of_f="value + 100")
    assert describe_changed_functions(recorded, changed) == [
        "the code of the Python function `m.f` has changed: kept values were computed by the old code"
    ]
    assert describe_changed_functions({}, changed) == [], "jobs of earlier releases have recorded nothing"
    (note,) = describe_compared_functions(changed)
    assert note.startswith("Python functions are compared by name (`m.f`)")
