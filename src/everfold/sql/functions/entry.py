"""Registry entries: the names of a function, its typing rule, and its SQL in each engine.

A template is SQL with placeholders:

| placeholder | value |
| --- | --- |
| `{0}`, `{1}` | an argument, in parentheses if necessary |
| `{*}`, `{1*}` | all arguments, or all from an index on, separated by commas |
| `{t}`, `{t0}` | the engine's name of the result type or of an argument's type |
| `{zone}` | the session's time zone as a string literal |
| `{fail: words}` | SQL that fails the job with `everfold[…]: words` and the call's position |

An argument that occurs in a template more than once is computed once: the writer binds it to a
variable unless it is short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from everfold.plan.expressions import Call, Expr
from everfold.sql.functions.writer import Writer
from everfold.types import DataType

Args: TypeAlias = tuple[Expr, ...]
Typed: TypeAlias = tuple[Args, DataType]
Rule: TypeAlias = Callable[[Args], "Typed | Expr | None"]
"""Maps arguments to converted arguments and the result type, or to an equivalent expression.

Returns None if the function does not accept the arguments.
"""

SqlWriter: TypeAlias = Callable[[Writer, Call, Sequence[str]], str]
"""Code for what a template cannot express.

Its arguments are the writer, the call and the SQL of the arguments, each usable several times.
"""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Marks a function, or a form of it, that an engine lacks; rendering raises the reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A scalar function. `doc` describes it in one line; `usage` shows its calls."""

    name: str
    rule: Rule
    spark: str | SqlWriter | Unsupported
    duckdb: str | SqlWriter | Unsupported
    doc: str
    usage: str = ""
    aliases: tuple[str, ...] = ()
    deterministic: bool = True
    operator: bool = False
