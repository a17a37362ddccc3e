"""Render queries and their clauses as canonical SQL; `render.py` renders expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from sqlglot import exp

from everfold.sql.dialects.nodes import TableFunction, TableHint, WindowTvf

Render: TypeAlias = Callable[[exp.Expression], str]
Writer: TypeAlias = Callable[[Any, Render], str]


def _list(nodes: list[exp.Expression] | None, render: Render) -> str:
    return ", ".join(render(node) for node in nodes or [])


def _tail(node: exp.Expression, render: Render) -> str:
    return "".join(f" {render(node.args[name])}" for name in ("order", "limit", "offset") if node.args.get(name))


def _head(node: exp.Expression, render: Render) -> str:
    ctes = node.args.get("with_")
    return f"{render(ctes)} " if ctes else ""


def _select(node: exp.Select, render: Render) -> str:
    text = _head(node, render) + "SELECT "
    if hints := node.args.get("hints"):
        text += f"/*+ {_list(hints, render)} */ "
    if node.args.get("distinct"):
        text += "DISTINCT "
    text += _list(node.expressions, render)
    if source := node.args.get("from_"):
        text += f" FROM {render(source.this)}"
        text += "".join(render(join) for join in node.args.get("joins") or [])
    for name, word in (("where", "WHERE"), ("group", "GROUP BY"), ("having", "HAVING")):
        if clause := node.args.get(name):
            text += f" {word} " + (_list(clause.expressions, render) if name == "group" else render(clause.this))
    if windows := node.args.get("windows"):
        text += f" WINDOW {_list(windows, render)}"
    if qualify := node.args.get("qualify"):
        text += f" QUALIFY {render(qualify.this)}"
    return text + _tail(node, render)


def _set_operation(node: exp.SetOperation, render: Render) -> str:
    word = type(node).__name__.upper() + ("" if node.args.get("distinct") else " ALL")
    sides = []
    for side in (node.this, node.expression):
        binds_more = isinstance(side, exp.Intersect) and not isinstance(node, exp.Intersect)
        is_left_of_equals = side is node.this and isinstance(side, exp.Intersect) == isinstance(node, exp.Intersect)
        lower = isinstance(side, exp.SetOperation) and not binds_more and not is_left_of_equals
        sides.append(f"({render(side)})" if lower else render(side))
    return f"{_head(node, render)}{sides[0]} {word} {sides[1]}{_tail(node, render)}"


def _values(node: exp.Values, render: Render) -> str:
    return f"{_head(node, render)}VALUES {_list(node.expressions, render)}{_tail(node, render)}"


def _subquery(node: exp.Subquery, render: Render) -> str:
    return f"{_head(node, render)}({render(node.this)}){_alias(node, render)}{_tail(node, render)}"


def _alias(node: exp.Expression, render: Render) -> str:
    alias = node.args.get("alias")
    return f" AS {render(alias)}" if alias else ""


def _table(node: exp.Table, render: Render) -> str:
    text = ".".join(render(node.args[role]) for role in ("catalog", "db", "this") if node.args.get(role))
    if hints := node.args.get("hints"):
        text += f" /*+ {_list(hints, render)} */"
    if version := node.args.get("version"):
        text += f" FOR SYSTEM_TIME AS OF {render(version.expression)}"
    return text + _alias(node, render)


def _table_alias(node: exp.TableAlias, render: Render) -> str:
    columns = node.args.get("columns")
    return render(node.this) + (f" ({_list(columns, render)})" if columns else "")


def _cte(node: exp.CTE, render: Render) -> str:
    return f"{render(node.args['alias'])} AS ({render(node.this)})"


def _join(node: exp.Join, render: Render) -> str:
    if node.args["kind"] == ",":
        return f", {render(node.this)}"
    words = [node.args.get(name) for name in ("method", "side")] + (["CROSS"] if node.args["kind"] == "CROSS" else [])
    text = "".join(f" {word}" for word in words if word) + f" JOIN {render(node.this)}"
    if (on := node.args.get("on")) is not None:
        text += f" ON {render(on)}"
    if using := node.args.get("using"):
        text += f" USING ({_list(using, render)})"
    return text


def _unnest(node: exp.Unnest, render: Render) -> str:
    ordinality = " WITH ORDINALITY" if node.args.get("offset") else ""
    return f"UNNEST({_list(node.expressions, render)}){ordinality}{_alias(node, render)}"


def _window_tvf(node: WindowTvf, render: Render) -> str:
    data = f"TABLE {render(node.table)}" if isinstance(node.table, exp.Table) else render(node.table)
    if node.partition_by:
        data += f" PARTITION BY ({', '.join(render(key) for key in node.partition_by)})"
    roles = "".join(f", {role} => {render(value)}" for role, value in node.arguments.items())
    return f"{node.kind}(DATA => {data}, TIMECOL => DESCRIPTOR({render(node.timecol)}){roles}){_alias(node, render)}"


def _table_function(node: TableFunction, render: Render) -> str:
    return f"{'LATERAL ' if node.args.get('lateral') else ''}TABLE({render(node.this)}){_alias(node, render)}"


def _lateral(node: exp.Lateral, render: Render) -> str:
    return f"LATERAL {render(node.this)}{_alias(node, render)}"


def _hint(node: TableHint, render: Render) -> str:
    return node.name + (f"({_list(node.expressions, render)})" if node.expressions else "")


def _ordered(node: exp.Ordered, render: Render) -> str:
    nulls = node.args.get("nulls_first")
    return (
        render(node.this)
        + (" DESC" if node.args.get("desc") else "")
        + {None: "", True: " NULLS FIRST", False: " NULLS LAST"}[nulls]
    )


def _window(node: exp.Window, render: Render) -> str:
    base = node.args.get("alias")
    parts = [f"PARTITION BY {_list(keys, render)}"] if (keys := node.args.get("partition_by")) else []
    parts += [render(node.args[name]) for name in ("order", "spec") if node.args.get(name)]
    word = "AS" if isinstance(node.this, exp.Identifier) else "OVER"
    if base is not None and not parts and word == "OVER":
        return f"{render(node.this)} OVER {render(base)}"
    inside = " ".join(([render(base)] if base is not None else []) + parts)
    return f"{render(node.this)} {word} ({inside})"


def _window_spec(node: exp.WindowSpec, render: Render) -> str:
    bounds = []
    for name in ("start", "end"):
        bound, side = node.args[name], node.args.get(f"{name}_side")
        bounds.append((bound if isinstance(bound, str) else render(bound)) + (f" {side}" if side else ""))
    return f"{node.args['kind']} BETWEEN {bounds[0]} AND {bounds[1]}"


QUERY_WRITERS: dict[type[exp.Expression], Writer] = {
    exp.Select: _select,
    exp.Union: _set_operation,
    exp.Except: _set_operation,
    exp.Intersect: _set_operation,
    exp.Values: _values,
    exp.Subquery: _subquery,
    exp.With: lambda node, render: f"WITH {_list(node.expressions, render)}",
    exp.CTE: _cte,
    exp.Alias: lambda node, render: f"{render(node.this)} AS {render(node.args['alias'])}",
    exp.Table: _table,
    exp.TableAlias: _table_alias,
    exp.Join: _join,
    exp.Unnest: _unnest,
    exp.Lateral: _lateral,
    exp.GroupingSets: lambda node, render: f"GROUPING SETS ({_list(node.expressions, render)})",
    exp.Rollup: lambda node, render: f"ROLLUP ({_list(node.expressions, render)})",
    exp.Cube: lambda node, render: f"CUBE ({_list(node.expressions, render)})",
    exp.Order: lambda node, render: f"ORDER BY {_list(node.expressions, render)}",
    exp.Ordered: _ordered,
    exp.Limit: lambda node, render: f"LIMIT {render(node.expression)}",
    exp.Offset: lambda node, render: f"OFFSET {render(node.expression)} ROWS",
    exp.Window: _window,
    exp.WindowSpec: _window_spec,
    WindowTvf: _window_tvf,
    TableFunction: _table_function,
    TableHint: _hint,
}
"""The writer of each node of a query; `render` is called for the nodes inside."""
