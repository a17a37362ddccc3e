"""Render a tree as canonical Flink SQL.

Names are in backticks, function names in capitals, and parentheses only where they are needed.
Canonical SQL identifies state and is printed by `SHOW CREATE`, so it must not change. Parsing it
returns the same tree.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from everfold.sql.dialects.keywords import NILADIC
from everfold.sql.dialects.nodes import (
    CallOption,
    ColumnPath,
    FieldAccess,
    FlinkCast,
    FunctionCall,
    IntervalLiteral,
    QualifiedStar,
    TemporalLiteral,
)
from everfold.sql.dialects.operators import AND, COMPARE, DISTINCT_FROM, INFIX, IS, NOT, OR, RANGE, SIGN
from everfold.sql.dialects.render_query import QUERY_WRITERS

ATOM = 100
"""The binding power of names, literals and calls, which never need parentheses."""


def render(node: exp.Expression) -> str:
    """Return the canonical SQL of an expression or query."""
    return _text(node, 0)


def _text(node: exp.Expression, power: int) -> str:
    """Return the SQL of a node, in parentheses if it binds less tightly than `power`."""
    own, text = _render_node(node)
    return text if own >= power else f"({text})"


def _list(nodes: Iterable[exp.Expression]) -> str:
    return ", ".join(render(node) for node in nodes)


def quote_string(text: str) -> str:
    """Quote a string as a literal."""
    return "'" + text.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """Quote a name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def _name(identifier: exp.Identifier) -> str:
    return quote_name(identifier.name)


_SIGNS = {infix.node: (sign, infix.power) for sign, infix in INFIX.items() if sign != "!="}


def _render_node(node: exp.Expression) -> tuple[int, str]:
    """Return the binding power of a node and its SQL."""
    if (sign := _SIGNS.get(type(node))) is not None:
        word, power = sign
        return power, f"{_text(node.this, power)} {word} {_text(node.expression, power + 1)}"
    if isinstance(node, (exp.And, exp.Or)):
        return _chain(node)
    if (negated := _render_not(node)) is not None:
        return negated
    return _operator(node) or (ATOM, _atom(node))


def _chain(node: exp.Expression) -> tuple[int, str]:
    power, word = (AND, "AND") if isinstance(node, exp.And) else (OR, "OR")
    parts: list[exp.Expression] = []
    stack = [node]
    while stack:
        each = stack.pop()
        if type(each) is type(node):
            stack += [each.expression, each.this]
        else:
            parts.append(each)
    return power, f" {word} ".join(_text(part, power + 1) for part in parts)


def _render_not(node: exp.Expression) -> tuple[int, str] | None:
    """Render NOT, inside the operator where SQL allows it: `x IS NOT NULL`, `x NOT IN (…)`."""
    if not isinstance(node, exp.Not):
        return None
    inner = node.this
    if (operator := _operator(inner, "NOT ")) is not None and not isinstance(
        inner, (exp.Neg, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Not, exp.Overlaps)
    ):
        return operator
    return NOT, f"NOT {_text(inner, NOT)}"


def _operator(node: exp.Expression, negation: str = "") -> tuple[int, str] | None:
    match node:
        case exp.Neg():
            inner = _text(node.this, SIGN)
            return SIGN, f"- {inner}" if inner.startswith("-") else f"-{inner}"
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            word = "IS NOT DISTINCT FROM" if isinstance(node, exp.NullSafeEQ) else "IS DISTINCT FROM"
            return (
                DISTINCT_FROM,
                f"{_text(node.this, DISTINCT_FROM)} {word} {_text(node.expression, DISTINCT_FROM + 1)}",
            )
        case exp.Is():
            return IS, f"{_text(node.this, IS)} IS {negation}{render(node.expression)}"
        case FunctionCall() if node.name == "IS_JSON" and node.special:
            value, kind = node.expressions
            return IS, f"{_text(value, IS)} IS {negation}JSON {kind.name}"
        case exp.Between():
            symmetric = "SYMMETRIC " if node.args.get("symmetric") else ""
            low, high = (_text(node.args[side], RANGE + 1) for side in ("low", "high"))
            return RANGE, f"{_text(node.this, RANGE)} {negation}BETWEEN {symmetric}{low} AND {high}"
        case exp.In():
            query = node.args.get("query")
            values = f"({render(query.this)})" if query is not None else f"({_list(node.expressions)})"
            return RANGE, f"{_text(node.this, RANGE)} {negation}IN {values}"
        case exp.Any() | exp.All():
            return SIGN, f"{'ANY' if isinstance(node, exp.Any) else 'ALL'} ({render(node.this.this)})"
        case exp.Like() | exp.SimilarTo():
            word = "LIKE" if isinstance(node, exp.Like) else "SIMILAR TO"
            return RANGE, f"{_text(node.this, RANGE)} {negation}{word} {_text(node.expression, RANGE + 1)}"
        case exp.Overlaps():
            return COMPARE, f"{_text(node.this, COMPARE)} OVERLAPS {_text(node.expression, COMPARE + 1)}"
        case exp.Escape():
            inside = _operator(node.this, negation)
            assert inside is not None
            return RANGE, f"{inside[1]} ESCAPE {_text(node.expression, RANGE + 1)}"
        case _:
            return None


def _atom(node: exp.Expression) -> str:
    match node:
        case ColumnPath():
            return ".".join(_name(part) for part in node.parts)
        case QualifiedStar():
            return ".".join([*(_name(part) for part in node.args["parts"]), "*"])
        case FieldAccess():
            base = render(node.this)
            plain = isinstance(node.this, (FieldAccess, FunctionCall, FlinkCast)) and _render_node(node.this)[0] == ATOM
            return (base if plain else f"({base})") + "." + _name(node.args["field"])
        case FunctionCall():
            return _call(node)
        case FlinkCast():
            return f"{'TRY_CAST' if node.safe else 'CAST'}({render(node.this)} AS {node.to})"
        case TemporalLiteral():
            return f"{node.kind} {quote_string(node.name)}"
        case IntervalLiteral():
            return f"INTERVAL {quote_string(node.name)} {node.unit}" + (f" TO {node.last}" if node.last else "")
        case exp.Literal():
            return quote_string(node.name) if node.is_string else node.name
        case exp.HexString():
            return f"X'{node.name}'"
        case exp.Boolean():
            return "TRUE" if node.this else "FALSE"
        case exp.Null():
            return "NULL"
        case exp.Star():
            return "*"
        case exp.Var():
            return node.name
        case exp.Identifier():
            return _name(node)
        case exp.Tuple():
            return f"({_list(node.expressions)})"
        case exp.Exists():
            return f"EXISTS ({render(node.this)})"
        case exp.Kwarg():
            return f"{node.this.name} => {render(node.expression)}"
        case exp.Case():
            return _case(node)
        case _:
            writer = QUERY_WRITERS.get(type(node))
            assert writer is not None, f"no text for {type(node).__name__}"
            return writer(node, render)


def _case(node: exp.Case) -> str:
    words = ["CASE"]
    if node.this is not None:
        words.append(render(node.this))
    words += [f"WHEN {render(each.this)} THEN {render(each.args['true'])}" for each in node.args["ifs"]]
    if (default := node.args.get("default")) is not None:
        words.append(f"ELSE {render(default)}")
    return " ".join([*words, "END"])


# --- calls ----------------------------------------------------------------------------------------


def _call(node: FunctionCall) -> str:
    name, arguments = node.name, node.expressions
    text = _special(name, arguments) if node.special else None
    if text is None:
        inside = _inside(name, arguments)
        distinct = "DISTINCT " if node.distinct else ""
        options = " ".join(_option(option) for option in node.options.values())
        order = f"ORDER BY {_list(node.order)}" if node.order and name == "JSON_ARRAYAGG" else ""
        shown = (
            name
            if name.replace("_", "").replace("$", "").isalnum()
            else ".".join(f"`{part}`" for part in name.split("."))
        )
        text = f"{shown}({' '.join(part for part in (distinct + inside, order, options) if part)})"
    if node.order and name != "JSON_ARRAYAGG":
        text += f" WITHIN GROUP (ORDER BY {_list(node.order)})"
    if node.nulls:
        text += f" {node.nulls} NULLS"
    if node.filter is not None:
        text += f" FILTER (WHERE {render(node.filter)})"
    return text


def _special(name: str, arguments: list[exp.Expression]) -> str | None:
    if name == "ITEM":
        return f"{_text(arguments[0], ATOM)}[{render(arguments[1])}]"
    if name in ("ARRAY", "MAP"):
        return f"{name}[{_list(arguments)}]"
    if name in NILADIC:
        return name
    return None


def _inside(name: str, arguments: list[exp.Expression]) -> str:
    match name, arguments:
        case "EXTRACT", [unit, value]:
            return f"{render(unit)} FROM {render(value)}"
        case "TRIM", [side, characters, value]:
            return f"{render(side)} {render(characters)} FROM {render(value)}"
        case "POSITION", [wanted, value]:
            return f"{_text(wanted, RANGE + 1)} IN {render(value)}"
        case "OVERLAY", [value, other, start, *length]:
            return f"{render(value)} PLACING {render(other)} FROM {render(start)}" + "".join(
                f" FOR {render(each)}" for each in length
            )
        case (("FLOOR" | "CEIL" | "CEILING"), [value, exp.Var() as unit]):
            return f"{render(value)} TO {render(unit)}"
        case (("JSON_OBJECT" | "JSON_OBJECTAGG"), pairs):
            keys = [
                f"KEY {render(key)} VALUE {render(value)}" for key, value in zip(pairs[::2], pairs[1::2], strict=True)
            ]
            return ", ".join(keys)
        case _:
            return _list(arguments)


def _option(option: CallOption) -> str:
    match option.name:
        case "RETURNING":
            return f"RETURNING {option.to}"
        case "WRAPPER":
            return "WITHOUT ARRAY WRAPPER" if option.value == "WITHOUT" else f"WITH {option.value} ARRAY WRAPPER"
        case name:
            default = option.args.get("expression")
            return f"{option.value} {f'{render(default)} ' if default is not None else ''}{name}"
