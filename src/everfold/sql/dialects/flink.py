"""Flink SQL: the specification of its trees, and the dialect for sqlglot.

everfold has its own grammar that builds sqlglot's nodes. sqlglot's stock parser reads thirty
dialects at once, accepts much that Flink rejects (`a::INT`, `SELECT TOP 5`), rewrites function
calls, and its output changes between versions, whereas everfold's canonical SQL identifies state.

## All nodes
- `meta["start"]`, `meta["end"]`: offsets in the script of the first and the last character
  (inclusive, as in sqlglot). `span_of(node, text, source)` returns them as a `Span`. Copies keep
  them. They do not compare.
- Names are case-sensitive with and without backticks: `exp.Identifier.quoted` is always true, so
  `a` and `` `a` `` are equal trees.
- Trees are at most `MAX_DEPTH` high, and scripts nest at most `MAX_NESTING` levels deep (otherwise
  SqlError `too-deep`), so recursion over them is safe. Long AND and OR chains are balanced.
- There is no `exp.Paren`: parentheses only shape the tree. `render(node)` adds them where they are
  needed.

## Expressions
| SQL | node |
| --- | --- |
| `a`, `t.a`, `a.b.c` | `ColumnPath(parts=[Identifier])`, `.names`; never `exp.Column` or `exp.Dot` |
| `f(x).a`, `x[1].a` | `FieldAccess(this, field)` |
| `*`, `t.*` (in SELECT and COUNT) | `exp.Star()`, `QualifiedStar(parts)`, `.names` |
| `1`, `1.5`, `1E3`, `'it''s'` | `exp.Literal` (`is_string`; a number with E is DOUBLE, else with a point DECIMAL, else integer) |
| `TRUE`, `NULL`, `x'0AFF'` | `exp.Boolean`, `exp.Null`, `exp.HexString(this="0AFF")`; `U&'\\00e9'` is a string Literal, decoded |
| `DATE '…'`, `TIME '…'`, `TIMESTAMP '…'` | `TemporalLiteral(this, kind, precision)`, validated |
| `INTERVAL '10' MINUTES` | `IntervalLiteral(this="10", unit="MINUTE", last=None)`; `interval_value(node)` = (milliseconds or months, is months) |
| `-a`, `+a` | `exp.Neg(this)` (also of numbers), `a` |
| `+ - * / % ||` | `exp.Add Sub Mul Div Mod DPipe` (`this`, `expression`) |
| `= <>` `!=` `< <= > >=` | `exp.EQ NEQ LT LTE GT GTE` |
| `IS [NOT] DISTINCT FROM` | `exp.NullSafeNEQ`, with NOT `exp.NullSafeEQ` |
| `AND OR NOT` | `exp.And Or Not` |
| `x IS NULL`, `IS TRUE`, `IS UNKNOWN` | `exp.Is(this, expression=exp.Null, exp.Boolean or exp.Var("UNKNOWN"))`; IS NOT: `exp.Not` around |
| `x BETWEEN [SYMMETRIC] a AND b` | `exp.Between(this, low, high, symmetric=bool)`; NOT around; likewise for IN, LIKE, SIMILAR TO |
| `x IN (1, 2)`, `x IN (SELECT …)` | `exp.In(this, expressions=[…])`, `exp.In(this, query=exp.Subquery)` |
| `x > ANY (SELECT …)`, `x > ALL (…)` | `exp.GT(this, expression=exp.Any(this=exp.Subquery))`, `exp.All`; SOME is ANY, `= ANY` is IN, `<> ALL` NOT IN; a list becomes OR or AND |
| `x LIKE p [ESCAPE e]`, `SIMILAR TO` | `exp.Like`, `exp.SimilarTo` (`this`, `expression`), with ESCAPE `exp.Escape(this=Like, expression)` around |
| `(a, b) OVERLAPS (c, d)` | `exp.Overlaps(this, expression)`: Tuples, or calls of ROW or PERIOD |
| `EXISTS (SELECT …)`, `(SELECT …)` | `exp.Exists(this=query)`, `exp.Subquery(this=query)` |
| `(a, b)` | `exp.Tuple(expressions)` |
| `CASE …` | `exp.Case(this=operand or None, ifs=[exp.If(this=condition, true=value)], default)` |
| `CAST(x AS t)`, `TRY_CAST` | `FlinkCast(this, to=DataType, safe=bool)` (`to_text` is only for comparing) |
| any `f(x)` | `FunctionCall(this="F", expressions, distinct, order, filter, nulls, options, special)`; `.name .spelled`; also IF, COALESCE … |
| `f(a => 1)` | an argument `exp.Kwarg(this=Identifier, expression)` |
| `f(x) OVER w`, `OVER (…)` | `exp.Window(this=FunctionCall, alias=Identifier("w") or partition_by=[…], order=exp.Order, spec=exp.WindowSpec)` |

`exp.WindowSpec(kind="ROWS"|"RANGE", start, start_side, end, end_side)`: start and end are
`"UNBOUNDED"`, `"CURRENT ROW"` or an expression; the sides are `"PRECEDING"`, `"FOLLOWING"` or None.
A frame without BETWEEN has end `"CURRENT ROW"`.

## Calls with special syntax, as FunctionCall
| SQL | name and arguments |
| --- | --- |
| `EXTRACT(unit FROM x)` | EXTRACT, (Var unit, x) |
| `FLOOR(x TO unit)`, `CEIL(x TO unit)` | FLOOR, (x, Var unit); without TO only (x) |
| `TIMESTAMPADD(unit, n, x)`, `TIMESTAMPDIFF(unit, a, b)` | (Var unit, n, x); (Var unit, a, b) |
| `TRIM([BOTH] ['c'] FROM x)`, `TRIM(x)` | TRIM, (Var BOTH, LEADING or TRAILING; the characters, Literal ' ' by default; x) |
| `SUBSTRING(x FROM a [FOR b])` | SUBSTRING, (x, a[, b]), the same as with commas |
| `POSITION(a IN b)` | POSITION, (a, b) |
| `OVERLAY(x PLACING y FROM a [FOR b])` | OVERLAY, (x, y, a[, b]) |
| `CURRENT_TIMESTAMP`, `CURRENT_DATE`, `CURRENT_TIME`, `LOCALTIME`, `LOCALTIMESTAMP` | that name, (), special |
| `ROW(a, b)`, `ARRAY[a, b]`, `MAP[k, v]`, `x[i]` | ROW (a, b); ARRAY (a, b); MAP (k, v, …); ITEM (x, i); all special. `(a, b)` is a Tuple |
| `JSON_VALUE(j, p [RETURNING t] [NULL, ERROR, DEFAULT d ON EMPTY] […ON ERROR])` | JSON_VALUE (j, p); options `RETURNING` (`.to`), `ON EMPTY`, `ON ERROR` (`.value` NULL, ERROR or DEFAULT with `.expression`) |
| `JSON_QUERY(j, p [RETURNING t] [… WRAPPER] [… ON EMPTY] [… ON ERROR])` | options as above (`.value` also EMPTY ARRAY, EMPTY OBJECT) and `WRAPPER` (WITHOUT, CONDITIONAL, UNCONDITIONAL) |
| `JSON_EXISTS(j, p [TRUE, FALSE, UNKNOWN, ERROR ON ERROR])` | option `ON ERROR` |
| `JSON_OBJECT([KEY] k VALUE v, … [NULL, ABSENT ON NULL])`, `JSON_OBJECTAGG` | (k, v, …), option `ON NULL` |
| `JSON_ARRAY(a, … [… ON NULL])`, `JSON_ARRAYAGG` | (a, …), option `ON NULL` |
| `x IS [NOT] JSON [VALUE, SCALAR, ARRAY, OBJECT]` | IS_JSON (x, Var kind), special; NOT around |

Units (`exp.Var`) are singular and in capitals. `exp.Var` is only used for such keyword arguments,
never for names.

## Queries (sqlglot's own nodes; only these args are set)
- `exp.Select`: `with_` (exp.With), `distinct` (exp.Distinct), `expressions` (an item or
  `exp.Alias(this, alias=Identifier)`), `from_` (exp.From(this=item)), `joins`, `where`, `group`,
  `having`, `qualify`, `windows` (list of `exp.Window(this=Identifier, …)`), `order`, `limit`,
  `offset`.
- `exp.Union`, `Intersect`, `Except` (`this`, `expression`, `distinct` bool);
  `exp.Values(expressions=[exp.Tuple])`; `TABLE t` is `SELECT * FROM t`. Like `exp.Select`, each may
  have `with_`, `order`, `limit`, `offset`. A query with one of these clauses inside a set
  operation, or under an outer ORDER BY or LIMIT, is `exp.Subquery(this=query)`; other parentheses
  around queries are dropped.
- Item of FROM: `exp.Table(this, db, catalog, alias=exp.TableAlias(this, columns), version,
  hints=[TableHint])`, `exp.Subquery(this=query, alias)` (also of VALUES),
  `exp.Unnest(expressions=[x], offset=True for WITH ORDINALITY, alias)`, `WindowTvf`,
  `TableFunction`, `exp.Lateral(this=Subquery, alias)`. `FOR SYSTEM_TIME AS OF x`:
  `version=exp.Version(this="TIMESTAMP", kind="AS OF", expression=x)`.
- `exp.Join(this=item, side=LEFT|RIGHT|FULL, kind=INNER|CROSS|",", method=NATURAL, on,
  using=[Identifier])`; `kind=","` is a comma (a cross join).
- `exp.Group(expressions)`, in the order written: expressions,
  `exp.GroupingSets(expressions=[exp.Tuple])`, `exp.Rollup(expressions)`, `exp.Cube(expressions)`.
- `exp.Order(expressions=[exp.Ordered(this, desc=bool, nulls_first=bool or None if unspecified)])`;
  LIMIT and FETCH FIRST are `exp.Limit(expression)`.
- `exp.With(expressions=[exp.CTE(this=query, alias=exp.TableAlias)])`.

## Errors
`syntax`, `too-deep`, `unknown-type`, `wrong-type`, `wrong-literal`, `unknown-variable` are SqlError.
`unsupported-statement`, `unsupported-clause`, `unsupported-type`, `timestamp-precision` are
UnsupportedFeature. All have a span.
"""

from __future__ import annotations

import sqlglot.generator
import sqlglot.parser
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token

from everfold.errors import Span
from everfold.sql.dialects.grammar import Grammar
from everfold.sql.dialects.literals import interval_value
from everfold.sql.dialects.nodes import (
    CallOption,
    ColumnPath,
    FieldAccess,
    FlinkCast,
    FunctionCall,
    IntervalLiteral,
    QualifiedStar,
    TableFunction,
    TableHint,
    TemporalLiteral,
    WindowTvf,
)
from everfold.sql.dialects.render import render
from everfold.sql.dialects.token_stream import MAX_DEPTH, MAX_NESTING, too_deep_error
from everfold.sql.dialects.tokens import FlinkTokenizer, Part
from everfold.sql.statements import Statement
from everfold.types import DataType

__all__ = [
    "MAX_DEPTH",
    "MAX_NESTING",
    "CallOption",
    "ColumnPath",
    "FieldAccess",
    "Flink",
    "FlinkCast",
    "FunctionCall",
    "IntervalLiteral",
    "QualifiedStar",
    "TableFunction",
    "TableHint",
    "TemporalLiteral",
    "WindowTvf",
    "interval_value",
    "parse_expression",
    "parse_query",
    "parse_statements",
    "parse_type",
    "render",
    "span_of",
]


class FlinkParser(sqlglot.parser.Parser):
    """Parser interface for sqlglot's own tools: parses one query or expression."""

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        """Return the tree of a query or an expression."""
        grammar = Grammar(sql, "<sql>")
        tree = (grammar.whole_query() if grammar.starts_query() else grammar.whole_expression()).tree
        if not grammar.is_at_end:
            raise grammar.expected_error("the end")
        return [tree]


class FlinkGenerator(sqlglot.generator.Generator):
    """Generator interface for sqlglot's own tools: renders a tree as SQL."""

    def generate(self, expression: exp.Expr, copy: bool = True) -> str:
        """Return the canonical SQL."""
        assert isinstance(expression, exp.Expression)
        return render(expression)


class Flink(Dialect):
    """The sqlglot dialect `flink`, as in `tree.sql("flink")`."""

    Tokenizer = FlinkTokenizer
    Parser = FlinkParser
    Generator = FlinkGenerator


def parse_statements(text: str, source: str = "<sql>", part: Part | None = None) -> tuple[Statement, ...]:
    """Parse the statements of a script or of a part of it."""
    grammar = Grammar(text, source, part)
    try:
        return grammar.script()
    except RecursionError:  # the caller was already near the recursion limit
        raise too_deep_error(grammar.here(), MAX_NESTING) from None


def parse_query(text: str, source: str = "<sql>") -> exp.Expression:
    """Parse one query."""
    return _whole(Grammar(text, source), query=True)


def parse_expression(text: str, source: str = "<sql>") -> exp.Expression:
    """Parse one expression."""
    return _whole(Grammar(text, source), query=False)


def parse_type(text: str, source: str = "<type>") -> DataType:
    """Parse a data type."""
    grammar = Grammar(text, source)
    found = grammar.data_type()
    if not grammar.is_at_end:
        raise grammar.expected_error("the end of the type")
    return found


def _whole(grammar: Grammar, query: bool) -> exp.Expression:
    try:
        tree = (grammar.whole_query() if query else grammar.whole_expression()).tree
    except RecursionError:
        raise too_deep_error(grammar.here(), MAX_NESTING) from None
    grammar.accept(";")
    if not grammar.is_at_end:
        raise grammar.expected_error("the end")
    return tree


def span_of(node: exp.Expression, text: str, source: str = "<sql>") -> Span:
    """Return the span of a node.

    A node without a position, which a rewrite created, has the span of its descendants, or else of
    its closest ancestor with a position.
    """
    spans = [
        (each.meta["start"], each.meta["end"] + 1) for each in node.walk(prune=_has_position) if _has_position(each)
    ]
    if spans:
        return Span(min(start for start, _ in spans), max(end for _, end in spans), source, text)
    parent = node.parent
    while parent is not None:
        if isinstance(parent, exp.Expression) and _has_position(parent):
            return Span(parent.meta["start"], parent.meta["end"] + 1, source, text)
        parent = parent.parent
    return Span(0, len(text), source, text)


def _has_position(node: exp.Expr) -> bool:
    return "start" in node.meta
