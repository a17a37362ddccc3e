"""What a registry entry is: a function's names, its typing rule, and how each engine writes it.

A template is SQL with holes:

| hole | filled with |
| --- | --- |
| `{0}`, `{1}` | an argument, in parentheses where it needs them |
| `{*}`, `{1*}` | all arguments, or all from one on, with commas |
| `{t}`, `{t0}` | the engine's name of the result's type, of an argument's type |
| `{zone}` | the session's time zone as a text literal |
| `{fail: words}` | an expression that stops the job with `everfold[…]: words`, to which the place of the call is added |

An argument that stands in a template more than once is computed once: the writer binds it to a variable unless it is short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from everfold.plan.expressions import Call, Expr
from everfold.types import DataType

if TYPE_CHECKING:
    from everfold.sql.functions.render import Writer

Args: TypeAlias = tuple[Expr, ...]
Typed: TypeAlias = tuple[Args, DataType]
Rule: TypeAlias = Callable[[Args], "Typed | Expr | None"]
"""Arguments as written to arguments with their implicit casts and the result's type, or to another expression that means the same;
None if the function does not take them."""

Writing: TypeAlias = "Callable[[Writer, Call, Sequence[str]], str]"
"""Code for what a template cannot say: the writer, the call and the texts of its arguments (which may be used several times)."""


@dataclass(frozen=True, slots=True)
class Lacks:
    """An engine that cannot do the function (in this form): rendering it is refused with this reason."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A scalar function. `doc` says in a line what it means; `usage` shows the calls it takes."""

    name: str
    rule: Rule
    spark: str | Writing | Lacks
    duckdb: str | Writing | Lacks
    doc: str
    usage: str = ""
    aliases: tuple[str, ...] = ()
    deterministic: bool = True
    operator: bool = False
