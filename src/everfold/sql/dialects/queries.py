"""Grammar of queries: WITH, set operations, SELECT and its clauses, VALUES."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypedDict

from everfold.errors import SqlError
from everfold.sql import syntax
from everfold.sql.dialects.keywords import AFTER_AN_ITEM, NOT_A_NAME, NOT_AN_ALIAS
from everfold.sql.dialects.operators import SUM
from everfold.sql.dialects.relations import Relations
from everfold.sql.dialects.token_stream import NAME_TOKENS
from everfold.sql.dialects.tokens import TokenKind

MAX_COUNT = 2**31 - 1
"""The largest value of LIMIT and OFFSET: Spark's limit."""


class _Tail(TypedDict, total=False):
    """The clauses after a query."""

    order: syntax.OrderBy
    limit: syntax.RowCount
    offset: syntax.RowCount


class Queries(Relations):
    """Grammar of queries."""

    def query(self) -> syntax.Query:
        """Parse a query with its WITH, ORDER BY and LIMIT."""
        first = self.at
        ctes = self._with()
        body = self._union()
        tail = self._tail()
        if not ctes and not tail:
            return body.query if isinstance(body, syntax.NestedQuery) else body
        return replace(body, ctes=ctes, **tail, span=self.span(first))

    def _with(self) -> tuple[syntax.CommonTable, ...]:
        first = self.at
        if not self.accept("WITH"):
            return ()
        if self.accept("RECURSIVE"):
            raise self.unsupported_error("unsupported-clause", "WITH RECURSIVE", first)
        return self.parse_list(self._cte)

    def _cte(self) -> syntax.CommonTable:
        first = self.at
        name = self.identifier("a name")
        columns = self.parse_enclosed_list(self._column_name) if self.key() == "(" else ()
        alias = syntax.TableAlias(name, columns, span=self.span(first))
        self.expect("AS")
        query = self.parenthesized_query()
        return syntax.CommonTable(alias, query, span=self.span(first))

    def _column_name(self) -> syntax.Identifier:
        return self.identifier("a column's name")

    def _union(self) -> syntax.FlinkQuery:
        first = self.at
        left = self._intersect()
        while word := self.one_of("UNION", "EXCEPT"):
            operator: Literal["UNION", "EXCEPT"] = "UNION" if word == "UNION" else "EXCEPT"
            distinct = self.one_of("ALL", "DISTINCT") != "ALL"
            right = self._intersect()
            left = syntax.SetOperation(operator, distinct, left, right, span=self.span(first))
        return left

    def _intersect(self) -> syntax.FlinkQuery:
        first = self.at
        left = self._query_operand()
        while self.accept("INTERSECT"):
            distinct = self.one_of("ALL", "DISTINCT") != "ALL"
            right = self._query_operand()
            left = syntax.SetOperation("INTERSECT", distinct, left, right, span=self.span(first))
        return left

    def _query_operand(self) -> syntax.FlinkQuery:
        first = self.at
        match self.key():
            case "SELECT":
                return self._select()
            case "VALUES":
                self.at += 1
                rows = self.parse_list(self._row_of_values)
                return syntax.Values(rows, span=self.span(first))
            case "TABLE":
                self.at += 1
                star = self.span(first, first)
                items = (syntax.SelectItem(syntax.Star(span=star), span=star),)
                return syntax.Select(items, self.table(), span=self.span(first))
            case "(":
                query = self.parenthesized_query()
                assert isinstance(query, syntax.FlinkQuery)
                return syntax.NestedQuery(query, span=self.span(first)) if query.has_own_clauses else query
            case _:
                raise self.expected_error("a query (SELECT, VALUES or WITH)")

    def _row_of_values(self) -> syntax.Tuple:
        first = self.at
        if self.accept("ROW", "("):
            self.at -= 1
        if self.key() == "(" and not self.starts_query(1):
            values = self.parse_enclosed_list(self.expression)
            if self.key() in (",", ")", ";", "", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "OFFSET", "FETCH"):
                return syntax.Tuple(values, span=self.span(first))
            self.at = first
        value = self.expression()
        return syntax.Tuple((value,), span=self.span(first))

    # --- SELECT -----------------------------------------------------------------------------------

    def _select(self) -> syntax.Select:
        first = self.at
        self.expect("SELECT")
        hints = self.hints()
        at = self.at
        distinct = self.one_of("DISTINCT", "ALL") == "DISTINCT"
        word = syntax.Keyword("DISTINCT", span=self.span(at)) if distinct else None
        items = self.parse_list(self._item)
        source, joins = self.from_clause()
        return syntax.Select(
            items,
            source,
            joins,
            hints=hints,
            distinct=word,
            where=self._clause("WHERE"),
            group=self._group_by(),
            having=self._clause("HAVING"),
            windows=self.parse_list(self._named_window) if self.accept("WINDOW") else (),
            qualify=self._clause("QUALIFY"),
            span=self.span(first),
        )

    def _clause(self, word: str) -> syntax.Clause | None:
        """Parse WHERE, HAVING or QUALIFY if it comes next."""
        first = self.at
        if not self.accept(word):
            return None
        condition = self.expression()
        return syntax.Clause(condition, span=self.span(first))

    def _item(self) -> syntax.SelectItem:
        first = self.at
        value: syntax.Expression
        alias: syntax.Identifier | None = None
        if self.accept("*"):
            value = syntax.Star(span=self.span(first))
        elif (star := self.qualified_star()) is not None:
            value = star
        else:
            value = self.expression()
            if self.accept("AS"):
                alias = self.identifier("a column's name", NOT_A_NAME)
            elif self.kind() in NAME_TOKENS and self.key() not in NOT_AN_ALIAS:
                alias = self.implicit_alias("a column's name", AFTER_AN_ITEM)
        return syntax.SelectItem(value, alias, span=self.span(first))

    def _group_by(self) -> syntax.GroupBy | None:
        """Parse GROUP BY if it comes next."""
        first = self.at
        if not self.accept("GROUP"):
            return None
        self.expect("BY")
        if self.key() in ("DISTINCT", "ALL") and self.key(1) not in (",", ".", ")", ""):
            self.at += 1
            if self.keys[self.at - 1] == "DISTINCT":
                raise self.unsupported_error("unsupported-clause", "GROUP BY DISTINCT", first)
        elements = self.parse_list(self._grouping)
        return syntax.GroupBy(elements, span=self.span(first))

    def _grouping(self) -> syntax.Expression:
        first = self.at
        if self.accept("GROUPING", "SETS"):
            sets = self.parse_enclosed_list(self._grouping_set)
            return syntax.GroupingSets("GROUPING SETS", sets, span=self.span(first))
        if self.key() in ("ROLLUP", "CUBE") and self.key(1) == "(":
            kind: Literal["ROLLUP", "CUBE"] = "ROLLUP" if self.take().key == "ROLLUP" else "CUBE"
            keys = self.parse_enclosed_list(self.expression)
            return syntax.GroupingSets(kind, keys, span=self.span(first))
        if self.accept("(", ")"):
            return syntax.Tuple((), span=self.span(first))
        return self.expression()

    def _grouping_set(self) -> syntax.Expression:
        found = self._grouping()
        if isinstance(found, syntax.Tuple | syntax.GroupingSets):
            return found
        return syntax.Tuple((found,), span=found.span)

    # --- windows of OVER --------------------------------------------------------------------------

    def _named_window(self) -> syntax.NamedWindow:
        first = self.at
        name = self.identifier("a window's name")
        self.expect("AS")
        window = self.window()
        return syntax.NamedWindow(name, window, span=self.span(first))

    def window(self) -> syntax.WindowSpec:
        """Parse a window definition in parentheses, after OVER or WINDOW w AS."""
        first = self.at
        self.expect("(")
        with self.nested(2):
            named = self.kind() in NAME_TOKENS and self.key() not in ("PARTITION", "ORDER", "ROWS", "RANGE")
            base = self.identifier("a window's name") if named else None
            partition_by = self.parse_list(self.expression) if self.accept("PARTITION", "BY") else ()
            order = self.order_by().keys if self.key() == "ORDER" else ()
            frame = self._frame() if self.key() in ("ROWS", "RANGE") else None
        if self.key() == "EXCLUDE":
            self.at += 1
            raise self.unsupported_error("unsupported-clause", "EXCLUDE in a window", self.at - 1)
        self.expect(")")
        return syntax.WindowSpec(base, partition_by, order, frame, span=self.span(first))

    def _frame(self) -> syntax.Frame:
        first = self.at
        unit: Literal["ROWS", "RANGE"] = "ROWS" if self.take().key == "ROWS" else "RANGE"
        if self.accept("BETWEEN"):
            start = self._bound()
            self.expect("AND")
            end = self._bound()
        else:
            start = self._bound()
            end = syntax.FrameBound(span=start.span)
        return syntax.Frame(unit, start, end, span=self.span(first))

    def _bound(self) -> syntax.FrameBound:
        first = self.at
        if self.accept("CURRENT", "ROW"):
            return syntax.FrameBound(span=self.span(first))
        distance = None if self.accept("UNBOUNDED") else self.binary(SUM)
        side = self.expect_one_of("PRECEDING", "FOLLOWING")
        return syntax.FrameBound(side, distance, span=self.span(first))

    # --- ORDER BY, LIMIT --------------------------------------------------------------------------

    def _tail(self) -> _Tail:
        found: _Tail = {}
        if self.key() == "ORDER":
            found["order"] = self.order_by()
        while True:
            first = self.at
            if self.key() == "LIMIT" and "limit" not in found:
                self.at += 1
                if not self.accept("ALL"):
                    found["limit"] = syntax.RowCount(self._count(), span=self.span(first))
            elif self.key() == "OFFSET" and "offset" not in found:
                self.at += 1
                found["offset"] = syntax.RowCount(self._count(), span=self.span(first))
                self.one_of("ROW", "ROWS")
            elif self.key() == "FETCH" and "limit" not in found:
                self.at += 1
                self.expect_one_of("FIRST", "NEXT")
                rows = self._count() if self.kind() is TokenKind.NUMBER else 1
                self.expect_one_of("ROW", "ROWS")
                self.expect("ONLY")
                found["limit"] = syntax.RowCount(rows, span=self.span(first))
            else:
                return found

    def _count(self) -> int:
        if self.kind() is not TokenKind.NUMBER or not self.tokens[self.at].text.isdecimal():
            raise self.expected_error("a whole number")
        if int(self.tokens[self.at].text) > MAX_COUNT:
            raise SqlError.of("wrong-literal", f"LIMIT and OFFSET are at most {MAX_COUNT}", self.here())
        return int(self.take().text)

    def order_by(self) -> syntax.OrderBy:
        """Parse ORDER BY and its keys."""
        first = self.at
        self.expect("ORDER", "BY")
        keys = self.parse_list(self._sort_key)
        return syntax.OrderBy(keys, span=self.span(first))

    def _sort_key(self) -> syntax.SortKey:
        first = self.at
        value = self.expression()
        descending = self.one_of("ASC", "DESC") == "DESC"
        nulls_first = self.expect_one_of("FIRST", "LAST") == "FIRST" if self.accept("NULLS") else None
        return syntax.SortKey(value, descending, nulls_first, span=self.span(first))
