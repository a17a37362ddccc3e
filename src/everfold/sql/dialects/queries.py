"""Grammar of queries: WITH, set operations, SELECT and its clauses, VALUES."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from everfold.errors import SqlError
from everfold.sql.dialects.keywords import NOT_A_NAME, NOT_AN_ALIAS
from everfold.sql.dialects.operators import SUM
from everfold.sql.dialects.relations import Relations
from everfold.sql.dialects.token_stream import NAME_TOKENS

MAX_COUNT = 2**31 - 1
"""The largest value of LIMIT and OFFSET: Spark's limit."""
_TAIL = ("with_", "order", "limit", "offset")


class Queries(Relations):
    """Grammar of queries."""

    def query(self) -> exp.Expression:
        """Parse a query with its WITH, ORDER BY and LIMIT."""
        first = self.at
        ctes = self._with() if self.key() == "WITH" else None
        body = self._union()
        tail = self._tail()
        if ctes is None and not tail:
            return body.this if isinstance(body, exp.Subquery) else body
        if ctes is not None:
            body.set("with_", ctes)
        for name, clause in tail.items():
            body.set(name, clause)
        self.set_position(body, first)
        return body

    def _with(self) -> exp.With:
        first = self.at
        self.expect("WITH")
        if self.accept("RECURSIVE"):
            raise self.unsupported_error("unsupported-clause", "WITH RECURSIVE", first)
        return self.node(exp.With, first, expressions=self.parse_list(self._cte))

    def _cte(self) -> exp.CTE:
        first = self.at
        name = self.identifier("a name")
        columns = self.parse_enclosed_list(self._column_name) if self.key() == "(" else None
        alias = self.node(exp.TableAlias, first, this=name, columns=columns)
        self.expect("AS")
        return self.node(exp.CTE, first, this=self.parenthesized_query(), alias=alias)

    def _column_name(self) -> exp.Identifier:
        return self.identifier("a column's name")

    def _union(self) -> exp.Expression:
        first = self.at
        left = self._intersect()
        while word := self.one_of("UNION", "EXCEPT"):
            node = exp.Union if word == "UNION" else exp.Except
            distinct = self.one_of("ALL", "DISTINCT") != "ALL"
            left = self.node(node, first, this=left, expression=self._intersect(), distinct=distinct)
        return left

    def _intersect(self) -> exp.Expression:
        first = self.at
        left = self._query_operand()
        while self.accept("INTERSECT"):
            distinct = self.one_of("ALL", "DISTINCT") != "ALL"
            left = self.node(exp.Intersect, first, this=left, expression=self._query_operand(), distinct=distinct)
        return left

    def _query_operand(self) -> exp.Expression:
        first = self.at
        match self.key():
            case "SELECT":
                return self._select()
            case "VALUES":
                self.at += 1
                return self.node(exp.Values, first, expressions=self.parse_list(self._row_of_values))
            case "TABLE":
                self.at += 1
                table = self.table()
                source = self.node(exp.From, first, this=table)
                return self.node(exp.Select, first, expressions=[self.node(exp.Star, first, first)], from_=source)
            case "(":
                query = self.parenthesized_query()
                return (
                    self.node(exp.Subquery, first, this=query) if any(query.args.get(name) for name in _TAIL) else query
                )
            case _:
                raise self.expected_error("a query (SELECT, VALUES or WITH)")

    def _row_of_values(self) -> exp.Tuple:
        first = self.at
        if self.accept("ROW", "("):
            self.at -= 1
        if self.key() == "(" and not self.starts_query(1):
            values = self.parse_enclosed_list(self.expression)
            if self.key() in (",", ")", ";", "", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "OFFSET", "FETCH"):
                return self.node(exp.Tuple, first, expressions=values)
            self.at = first
        return self.node(exp.Tuple, first, expressions=[self.expression()])

    # --- SELECT -----------------------------------------------------------------------------------

    def _select(self) -> exp.Select:
        first = self.at
        self.expect("SELECT")
        hints = self.hints() if self.kind() is TokenType.HINT else None
        at = self.at
        distinct = self.node(exp.Distinct, at) if self.one_of("DISTINCT", "ALL") == "DISTINCT" else None
        made = exp.Select(expressions=self.parse_list(self._item))
        if hints is not None:
            made.set("hints", hints)
        if distinct is not None:
            made.set("distinct", distinct)
        if self.key() == "FROM":
            for name, clause in self.from_clause().items():
                made.set(name, clause)
        at = self.at
        if self.accept("WHERE"):
            made.set("where", self.node(exp.Where, at, this=self.expression()))
        if self.key() == "GROUP":
            made.set("group", self._group_by())
        at = self.at
        if self.accept("HAVING"):
            made.set("having", self.node(exp.Having, at, this=self.expression()))
        if self.accept("WINDOW"):
            made.set("windows", self.parse_list(self._named_window))
        at = self.at
        if self.accept("QUALIFY"):
            made.set("qualify", self.node(exp.Qualify, at, this=self.expression()))
        self.set_position(made, first)
        return made

    def _item(self) -> exp.Expression:
        first = self.at
        if self.accept("*"):
            return self.node(exp.Star, first)
        if (star := self.qualified_star()) is not None:
            return star
        item = self.expression()
        alias: exp.Identifier | None = None
        if self.accept("AS"):
            alias = self.identifier("a column's name", NOT_A_NAME)
        elif self.kind() in NAME_TOKENS and self.key() not in NOT_AN_ALIAS:
            alias = self.identifier("a column's name")
        return item if alias is None else self.node(exp.Alias, first, this=item, alias=alias)

    def _group_by(self) -> exp.Group:
        first = self.at
        self.expect("GROUP", "BY")
        if self.key() in ("DISTINCT", "ALL") and self.key(1) not in (",", ".", ")", ""):
            self.at += 1
            if self.keys[self.at - 1] == "DISTINCT":
                raise self.unsupported_error("unsupported-clause", "GROUP BY DISTINCT", first)
        return self.node(exp.Group, first, expressions=self.parse_list(self._grouping))

    def _grouping(self) -> exp.Expression:
        first = self.at
        if self.accept("GROUPING", "SETS"):
            return self.node(exp.GroupingSets, first, expressions=self.parse_enclosed_list(self._grouping_set))
        if self.key() in ("ROLLUP", "CUBE") and self.key(1) == "(":
            node = exp.Rollup if self.take().text.upper() == "ROLLUP" else exp.Cube
            return self.node(node, first, expressions=self.parse_enclosed_list(self.expression))
        if self.accept("(", ")"):
            return self.node(exp.Tuple, first, expressions=[])
        return self.expression()

    def _grouping_set(self) -> exp.Expression:
        first = self.at
        found = self._grouping()
        if isinstance(found, (exp.Tuple, exp.Rollup, exp.Cube, exp.GroupingSets)):
            return found
        return self.node(exp.Tuple, first, expressions=[found])

    # --- windows of OVER --------------------------------------------------------------------------

    def _named_window(self) -> exp.Window:
        first = self.at
        name = self.identifier("a window's name")
        self.expect("AS")
        return self.window(first, this=name)

    def window(self, first: int, **args: object) -> exp.Window:
        """Parse a window definition in parentheses, after OVER or WINDOW w AS."""
        self.expect("(")
        with self.nested(2):
            if self.kind() in NAME_TOKENS and self.key() not in (
                "PARTITION",
                "ORDER",
                "ROWS",
                "RANGE",
            ):
                args["alias"] = self.identifier("a window's name")
            if self.accept("PARTITION", "BY"):
                args["partition_by"] = self.parse_list(self.expression)
            if self.key() == "ORDER":
                args["order"] = self.order_by()
            if self.key() in ("ROWS", "RANGE"):
                args["spec"] = self._frame()
        if self.key() == "EXCLUDE":
            self.at += 1
            raise self.unsupported_error("unsupported-clause", "EXCLUDE in a window", self.at - 1)
        self.expect(")")
        return self.node(exp.Window, first, **args)

    def _frame(self) -> exp.WindowSpec:
        first = self.at
        kind = self.take().text.upper()
        if self.accept("BETWEEN"):
            start, start_side = self._bound()
            self.expect("AND")
            end, end_side = self._bound()
        else:
            start, start_side = self._bound()
            end, end_side = "CURRENT ROW", None
        return self.node(
            exp.WindowSpec, first, kind=kind, start=start, start_side=start_side, end=end, end_side=end_side
        )

    def _bound(self) -> tuple[exp.Expression | str, str | None]:
        if self.accept("CURRENT", "ROW"):
            return "CURRENT ROW", None
        bound: exp.Expression | str = "UNBOUNDED" if self.accept("UNBOUNDED") else self.binary(SUM)
        return bound, self.expect_one_of("PRECEDING", "FOLLOWING")

    # --- ORDER BY, LIMIT --------------------------------------------------------------------------

    def _tail(self) -> dict[str, exp.Expression]:
        found: dict[str, exp.Expression] = {}
        if self.key() == "ORDER":
            found["order"] = self.order_by()
        while True:
            first = self.at
            if self.key() == "LIMIT" and "limit" not in found:
                self.at += 1
                if not self.accept("ALL"):
                    found["limit"] = self.node(exp.Limit, first, expression=self._count())
            elif self.key() == "OFFSET" and "offset" not in found:
                self.at += 1
                found["offset"] = self.node(exp.Offset, first, expression=self._count())
                self.one_of("ROW", "ROWS")
            elif self.key() == "FETCH" and "limit" not in found:
                self.at += 1
                self.expect_one_of("FIRST", "NEXT")
                count = (
                    self._count()
                    if self.kind() is TokenType.NUMBER
                    else self.node(exp.Literal, first, this="1", is_string=False)
                )
                self.expect_one_of("ROW", "ROWS")
                self.expect("ONLY")
                found["limit"] = self.node(exp.Limit, first, expression=count)
            else:
                return found

    def _count(self) -> exp.Expression:
        if self.kind() is not TokenType.NUMBER or not self.tokens[self.at].text.isdecimal():
            raise self.expected_error("a whole number")
        if int(self.tokens[self.at].text) > MAX_COUNT:
            raise SqlError.of("wrong-literal", f"LIMIT and OFFSET are at most {MAX_COUNT}", self.here())
        return self.primary()

    def order_by(self) -> exp.Order:
        """Parse ORDER BY and its keys."""
        first = self.at
        self.expect("ORDER", "BY")
        return self.node(exp.Order, first, expressions=self.parse_list(self._sort_key))

    def _sort_key(self) -> exp.Ordered:
        first = self.at
        key = self.expression()
        descending = self.one_of("ASC", "DESC") == "DESC"
        nulls_first = self.expect_one_of("FIRST", "LAST") == "FIRST" if self.accept("NULLS") else None
        return self.node(exp.Ordered, first, this=key, desc=descending, nulls_first=nulls_first)
