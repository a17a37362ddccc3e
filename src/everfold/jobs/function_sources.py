"""The source code of the Python functions of a job.

A function is compared by its module and attribute. That its code has changed does not change the
verdict, but is reported: values in the state were computed by the old code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from everfold.plan.expressions import PythonCall, walk
from everfold.plan.nodes import Root
from everfold.plan.parts import calls_of, expressions_of
from everfold.plan.walk import walk_plan
from everfold.udf.function import PythonFunction


def digest_functions(roots: Iterable[Root]) -> dict[str, str]:
    """Return a digest of the source of each Python function, by module and attribute.

    Empty for a function whose source cannot be read.
    """
    return {function.identifier: function.digest_source() for function in _functions_of(roots)}


def describe_changed_functions(recorded: Mapping[str, str], roots: Sequence[Root]) -> list[str]:
    """Return a sentence for each function whose source differs from the recorded one, or may."""
    sentences: dict[str, str] = {}
    for function in _functions_of(roots):
        identifier, digest = function.identifier, function.digest_source()
        if not recorded.get(identifier):
            continue
        if not function.is_source_known:
            sentences[identifier] = (
                f"whether the code of the Python function `{identifier}` has changed is not known: only importing its "
                "module shows which code it runs"
            )
        elif digest and recorded[identifier] != digest:
            sentences[identifier] = (
                f"the code of the Python function `{identifier}` has changed: kept values were computed by the old code"
            )
    return list(sentences.values())


def describe_compared_functions(roots: Sequence[Root]) -> list[str]:
    """Return a sentence about the Python functions of queries that were compared without a job."""
    names = dict.fromkeys(f"`{function.identifier}`" for function in _functions_of(roots))
    if not names:
        return []
    return [f"Python functions are compared by name ({', '.join(names)}): whether their code has changed is not known"]


def _functions_of(roots: Iterable[Root]) -> Iterator[PythonFunction]:
    for root in roots:
        for node in walk_plan(root.input):
            yield from (call.python for call in calls_of(node) if call.python is not None)
            for expression in expressions_of(node):
                yield from (part.of for part in walk(expression) if isinstance(part, PythonCall))
