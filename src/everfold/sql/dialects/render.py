"""Render a tree as canonical Flink SQL.

Names are in backticks, function names in capitals, and parentheses only where they are needed.
Canonical SQL identifies state and is printed by `SHOW CREATE`, so it must not change. Parsing it
returns the same tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from everfold.sql import syntax
from everfold.sql.dialects.keywords import NILADIC
from everfold.sql.dialects.operators import CHAINS, IS, NOT, POWERS, RANGE, SIGN

ATOM = 100
"""The binding power of names, literals and calls, which never need parentheses."""


def render(node: syntax.Node) -> str:
    """Return the canonical SQL of an expression or query."""
    return _text(node, 0)


def _text(node: syntax.Node, power: int) -> str:
    """Return the SQL of a node, in parentheses if it binds less tightly than `power`."""
    own, text = _render_node(node)
    return text if own >= power else f"({text})"


def _list(nodes: Iterable[syntax.Node]) -> str:
    return ", ".join(render(node) for node in nodes)


def quote_string(text: str) -> str:
    """Quote a string as a literal."""
    return "'" + text.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """Quote a name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def _path(parts: Iterable[syntax.Identifier]) -> str:
    return ".".join(quote_name(part.name) for part in parts)


def _render_node(node: syntax.Node) -> tuple[int, str]:
    """Return the binding power of a node and its SQL."""
    match node:
        case syntax.BinaryOperation(operator=operator) if operator in CHAINS:
            power = CHAINS[operator]
            parts = (_text(each, power + 1) for each in syntax.flatten_chain(node, operator))
            return power, f" {operator} ".join(parts)
        case syntax.BinaryOperation(operator=operator, left=left, right=right):
            power = POWERS[operator]
            return power, f"{_text(left, power)} {operator} {_text(right, power + 1)}"
        case syntax.QuantifiedComparison(operator=operator):
            power = POWERS[operator]
            query = render(node.subquery.query)
            return power, f"{_text(node.operand, power)} {operator} {node.quantifier} ({query})"
        case syntax.Negative():
            inner = _text(node.operand, SIGN)
            return SIGN, f"- {inner}" if inner.startswith("-") else f"-{inner}"
        case syntax.Not():
            return _predicate(node.operand, "NOT ") or (NOT, f"NOT {_text(node.operand, NOT)}")
        case _:
            return _predicate(node) or (ATOM, _atom(node))


def _predicate(node: syntax.Node, negation: str = "") -> tuple[int, str] | None:
    """Render a predicate that has its NOT inside: `x IS NOT NULL`, `x NOT IN (…)`."""
    match node:
        case syntax.Is():
            return IS, f"{_text(node.operand, IS)} IS {negation}{node.test}"
        case syntax.FunctionCall(name="IS_JSON", special=True, arguments=(value, kind)):
            return IS, f"{_text(value, IS)} IS {negation}JSON {render(kind)}"
        case syntax.Between():
            symmetric = "SYMMETRIC " if node.symmetric else ""
            low, high = _text(node.low, RANGE + 1), _text(node.high, RANGE + 1)
            return RANGE, f"{_text(node.operand, RANGE)} {negation}BETWEEN {symmetric}{low} AND {high}"
        case syntax.In():
            return RANGE, f"{_text(node.operand, RANGE)} {negation}IN ({_list(node.values)})"
        case syntax.InQuery():
            return RANGE, f"{_text(node.operand, RANGE)} {negation}IN {render(node.subquery)}"
        case syntax.Like():
            escape = "" if node.escape is None else f" ESCAPE {_text(node.escape, RANGE + 1)}"
            pattern = _text(node.pattern, RANGE + 1)
            return RANGE, f"{_text(node.operand, RANGE)} {negation}{node.operator} {pattern}{escape}"
        case _:
            return None


def _atom(node: syntax.Node) -> str:
    match node:
        case syntax.ColumnPath():
            return _path(node.parts)
        case syntax.QualifiedStar():
            return f"{_path(node.parts)}.*"
        case syntax.FieldAccess():
            base = render(node.value)
            plain = isinstance(node.value, syntax.FieldAccess | syntax.FunctionCall | syntax.Cast)
            plain = plain and _render_node(node.value)[0] == ATOM
            return (base if plain else f"({base})") + "." + render(node.field)
        case syntax.FunctionCall():
            return _call(node)
        case syntax.Cast():
            return f"{'TRY_CAST' if node.safe else 'CAST'}({render(node.operand)} AS {node.type})"
        case syntax.TemporalLiteral():
            return f"{node.kind} {quote_string(node.text)}"
        case syntax.IntervalLiteral():
            return f"INTERVAL {quote_string(node.text)} {node.unit}" + (f" TO {node.last}" if node.last else "")
        case syntax.StringLiteral():
            return quote_string(node.value)
        case syntax.NumberLiteral():
            return node.text
        case syntax.HexLiteral():
            return f"X'{node.digits}'"
        case syntax.BooleanLiteral():
            return "TRUE" if node.value else "FALSE"
        case syntax.NullLiteral():
            return "NULL"
        case syntax.Star():
            return "*"
        case syntax.Keyword():
            return node.word
        case syntax.Identifier():
            return quote_name(node.name)
        case syntax.Tuple():
            return f"({_list(node.items)})"
        case syntax.Subquery():
            return f"({render(node.query)})"
        case syntax.Exists():
            return f"EXISTS ({render(node.query)})"
        case syntax.NamedArgument():
            return f"{node.name.name} => {render(node.value)}"
        case syntax.Case():
            return _case(node)
        case _:
            return _query(node)


def _case(node: syntax.Case) -> str:
    words = ["CASE"]
    if node.operand is not None:
        words.append(render(node.operand))
    words += [f"WHEN {render(each.condition)} THEN {render(each.result)}" for each in node.branches]
    if node.default is not None:
        words.append(f"ELSE {render(node.default)}")
    return " ".join([*words, "END"])


# --- calls ----------------------------------------------------------------------------------------


def _call(node: syntax.FunctionCall) -> str:
    name, arguments = node.name, node.arguments
    text = _special(name, arguments) if node.special else None
    if text is None:
        inside = _inside(name, arguments)
        distinct = "DISTINCT " if node.distinct else ""
        options = " ".join(_option(option) for option in node.options)
        order = _order_by(node.order) if node.order and name == "JSON_ARRAYAGG" else ""
        shown = (
            name
            if name.replace("_", "").replace("$", "").isalnum()
            else ".".join(f"`{part}`" for part in name.split("."))
        )
        text = f"{shown}({' '.join(part for part in (distinct + inside, order, options) if part)})"
    if node.order and name != "JSON_ARRAYAGG":
        text += f" WITHIN GROUP ({_order_by(node.order)})"
    if node.nulls:
        text += f" {node.nulls} NULLS"
    if node.filter is not None:
        text += f" FILTER (WHERE {render(node.filter)})"
    return text


def _special(name: str, arguments: Sequence[syntax.Expression]) -> str | None:
    if name == "ITEM":
        return f"{_text(arguments[0], ATOM)}[{render(arguments[1])}]"
    if name in ("ARRAY", "MAP"):
        return f"{name}[{_list(arguments)}]"
    if name in NILADIC:
        return name
    return None


def _inside(name: str, arguments: Sequence[syntax.Expression]) -> str:
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
        case (("FLOOR" | "CEIL" | "CEILING"), [value, syntax.Keyword() as unit]):
            return f"{render(value)} TO {render(unit)}"
        case (("JSON_OBJECT" | "JSON_OBJECTAGG"), pairs):
            keys = [
                f"KEY {render(key)} VALUE {render(value)}" for key, value in zip(pairs[::2], pairs[1::2], strict=True)
            ]
            return ", ".join(keys)
        case _:
            return _list(arguments)


def _option(option: syntax.CallOption) -> str:
    match option.name:
        case "RETURNING":
            return f"RETURNING {option.type}"
        case "WRAPPER":
            return "WITHOUT ARRAY WRAPPER" if option.value == "WITHOUT" else f"WITH {option.value} ARRAY WRAPPER"
        case name:
            default = "" if option.default is None else f"{render(option.default)} "
            return f"{option.value} {default}{name}"


# --- queries --------------------------------------------------------------------------------------


def _query(node: syntax.Node) -> str:
    match node:
        case syntax.FlinkQuery():
            head = f"WITH {_list(node.ctes)} " if node.ctes else ""
            tail = f" {_order_by(node.order.keys)}" if node.order else ""
            tail += f" LIMIT {node.limit.rows}" if node.limit else ""
            tail += f" OFFSET {node.offset.rows} ROWS" if node.offset else ""
            return head + _body(node) + tail
        case syntax.CommonTable():
            return f"{render(node.alias)} AS ({render(node.query)})"
        case syntax.SelectItem():
            return render(node.value) + (f" AS {render(node.alias)}" if node.alias else "")
        case syntax.GroupingSets():
            return f"{node.kind} ({_list(node.elements)})"
        case syntax.SortKey():
            nulls = {None: "", True: " NULLS FIRST", False: " NULLS LAST"}[node.nulls_first]
            return render(node.value) + (" DESC" if node.descending else "") + nulls
        case syntax.Over():
            base = node.window.base
            if base is not None and node.window == syntax.WindowSpec(base):
                return f"{render(node.call)} OVER {render(base)}"
            return f"{render(node.call)} OVER {render(node.window)}"
        case syntax.NamedWindow():
            return f"{render(node.name)} AS {render(node.window)}"
        case syntax.WindowSpec():
            return _window(node)
        case syntax.FrameBound():
            if node.side is None:
                return "CURRENT ROW"
            return f"{'UNBOUNDED' if node.distance is None else render(node.distance)} {node.side}"
        case syntax.Hint():
            return node.name + (f"({_list(node.arguments)})" if node.arguments else "")
        case syntax.TableAlias():
            return render(node.name) + (f" ({_list(node.columns)})" if node.columns else "")
        case syntax.Join():
            return _join(node)
        case syntax.Relation():
            return _relation(node) + (f" AS {render(node.alias)}" if node.alias else "")
        case _:
            raise AssertionError(f"no SQL for {type(node).__name__}")


def _order_by(keys: Iterable[syntax.SortKey]) -> str:
    return f"ORDER BY {_list(keys)}"


def _body(node: syntax.FlinkQuery) -> str:
    """Return a query without the clauses that any query may have."""
    match node:
        case syntax.Select():
            return _select(node)
        case syntax.SetOperation():
            word = node.operator + ("" if node.distinct else " ALL")
            return f"{_side(node, node.left)} {word} {_side(node, node.right)}"
        case syntax.Values():
            return f"VALUES {_list(node.rows)}"
        case _:
            assert isinstance(node, syntax.NestedQuery)
            return f"({render(node.query)})"


def _side(node: syntax.SetOperation, side: syntax.Query) -> str:
    """Return an operand of a set operation; INTERSECT binds more tightly than the others."""
    text = render(side)
    if not isinstance(side, syntax.SetOperation):
        return text
    own, inner = node.operator == "INTERSECT", side.operator == "INTERSECT"
    return text if inner > own or (inner == own and side is node.left) else f"({text})"


def _select(node: syntax.Select) -> str:
    parts = ["SELECT"]
    parts += [f"/*+ {_list(node.hints)} */"] if node.hints else []
    parts += ["DISTINCT"] if node.distinct else []
    parts.append(_list(node.items))
    if node.source is not None:
        parts.append(f"FROM {render(node.source)}{''.join(map(render, node.joins))}")
    parts += [f"WHERE {render(node.where.condition)}"] if node.where else []
    parts += [f"GROUP BY {_list(node.group.elements)}"] if node.group else []
    parts += [f"HAVING {render(node.having.condition)}"] if node.having else []
    parts += [f"WINDOW {_list(node.windows)}"] if node.windows else []
    parts += [f"QUALIFY {render(node.qualify.condition)}"] if node.qualify else []
    return " ".join(parts)


def _window(node: syntax.WindowSpec) -> str:
    parts = [render(node.base)] if node.base else []
    parts += [f"PARTITION BY {_list(node.partition_by)}"] if node.partition_by else []
    parts += [_order_by(node.order)] if node.order else []
    if node.frame is not None:
        parts.append(f"{node.frame.unit} BETWEEN {render(node.frame.start)} AND {render(node.frame.end)}")
    return f"({' '.join(parts)})"


def _join(node: syntax.Join) -> str:
    if node.kind == ",":
        return f", {render(node.relation)}"
    text = " NATURAL" if node.natural else ""
    text += f" {node.side}" if node.side else ""
    text += f"{' CROSS' if node.kind == 'CROSS' else ''} JOIN {render(node.relation)}"
    text += f" ON {render(node.on)}" if node.on is not None else ""
    return text + (f" USING ({_list(node.using)})" if node.using else "")


def _relation(node: syntax.Relation) -> str:
    """Return an item of FROM without its alias."""
    match node:
        case syntax.Table():
            hints = f" /*+ {_list(node.hints)} */" if node.hints else ""
            moment = f" FOR SYSTEM_TIME AS OF {render(node.system_time.moment)}" if node.system_time else ""
            return _path(node.parts) + hints + moment
        case syntax.DerivedTable():
            return f"{'LATERAL ' if node.lateral else ''}({render(node.query)})"
        case syntax.Unnest():
            return f"UNNEST({_list(node.collections)}){' WITH ORDINALITY' if node.ordinality else ''}"
        case syntax.TableFunction():
            return f"{'LATERAL ' if node.lateral else ''}TABLE({render(node.call)})"
        case _:
            assert isinstance(node, syntax.WindowTvf)
            data = f"TABLE {render(node.table)}" if isinstance(node.table, syntax.Table) else render(node.table)
            data += f" PARTITION BY ({_list(node.partition_by)})" if node.partition_by else ""
            roles = "".join(f", {render(each)}" for each in node.arguments)
            return f"{node.kind}(DATA => {data}, TIMECOL => DESCRIPTOR({render(node.time_column)}){roles})"
