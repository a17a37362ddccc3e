"""Grammar of FROM: tables, subqueries, window TVFs, table functions, UNNEST, and joins."""

from __future__ import annotations

from dataclasses import replace

from everfold.errors import EverfoldError, Span, SqlError, UnsupportedFeature, suggest_name
from everfold.sql import syntax
from everfold.sql.dialects.expressions import Expressions
from everfold.sql.dialects.keywords import AFTER_A_RELATION, NOT_AN_ALIAS
from everfold.sql.dialects.token_stream import NAME_TOKENS

WINDOW_ROLES = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}
"""The arguments after the table and the time column, in order; OFFSET is optional."""

_JOINS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", ",")


class Relations(Expressions):
    """Grammar of FROM."""

    def from_clause(self) -> tuple[syntax.Relation | None, tuple[syntax.Join, ...]]:
        """Parse FROM and the joins, if FROM comes next."""
        if not self.accept("FROM"):
            return None, ()
        source = self.relation()
        joins: list[syntax.Join] = []
        after_comma = False
        while self.key() in _JOINS:
            joins.append(self._join(after_comma=after_comma))
            after_comma = after_comma or joins[-1].kind == ","
        return source, tuple(joins)

    def _join(self, after_comma: bool) -> syntax.Join:
        first = self.at
        if self.accept(","):
            relation = self.relation()
            return syntax.Join(relation, ",", span=self.span(first))
        natural = self.accept("NATURAL")
        side, kind = self.one_of("LEFT", "RIGHT", "FULL"), "INNER"
        if side:
            self.accept("OUTER")
            if word := self.one_of("SEMI", "ANTI"):
                raise self.unsupported_error("unsupported-clause", f"{side} {word} JOIN", first, "write IN or EXISTS")
        else:
            kind = self.one_of("INNER", "CROSS") or "INNER"
        self.expect("JOIN")
        if after_comma and side in ("RIGHT", "FULL"):
            raise self.unsupported_error(
                "unsupported-clause", f"{side} JOIN after a comma", first, "write CROSS JOIN for the comma"
            )
        relation = self.relation()
        on: syntax.Expression | None = None
        using: tuple[syntax.Identifier, ...] = ()
        if kind != "CROSS" and not natural:
            if self.accept("USING"):
                using = self.parse_enclosed_list(lambda: self.identifier("a column's name"))
            elif self.accept("ON"):
                on = self.expression()
            elif not isinstance(relation, syntax.Unnest | syntax.TableFunction):
                raise self.expected_error("`ON` or `USING`")
        return syntax.Join(relation, kind, side, natural, on, using, span=self.span(first))

    def relation(self) -> syntax.Relation:
        """Parse one item of FROM with its alias."""
        first = self.at
        with self.nested():
            found = self._relation()
        if self.key() in ("TABLESAMPLE", "MATCH_RECOGNIZE", "PIVOT", "UNPIVOT") and self.key(1) in (
            "(",
            "BERNOULLI",
            "SYSTEM",
        ):
            self.at += 1
            raise self.unsupported_error("unsupported-clause", self.keys[self.at - 1], self.at - 1)
        if (alias := self._table_alias()) is not None:
            found = replace(found, alias=alias, span=self.span(first))
        return found

    def _relation(self) -> syntax.Relation:
        first = self.at
        if self.accept("LATERAL"):
            if self.key() == "TABLE":
                return self._table_function(first, lateral=True)
            query = self.parenthesized_query()
            return syntax.DerivedTable(query, lateral=True, span=self.span(first))
        if self.accept("UNNEST"):
            values = self.parse_enclosed_list(self.expression)
            ordinality = self.accept("WITH", "ORDINALITY")
            return syntax.Unnest(values, ordinality, span=self.span(first))
        if self.key() == "TABLE":
            return self._table_function(first, lateral=False)
        if self.key() == "(":
            if not self.starts_query(1):
                self.at += 1
                raise self.unsupported_error(
                    "unsupported-clause",
                    "a join or a table in parentheses",
                    first,
                    "write a subquery: (SELECT * FROM …)",
                )
            query = self.parenthesized_query()
            return syntax.DerivedTable(query, span=self.span(first))
        if self.kind() in NAME_TOKENS and self.key(1) == "(":
            return self._window_or_function(first, lateral=False)
        return self.table()

    def _table_function(self, first: int, lateral: bool) -> syntax.Relation:
        self.expect("TABLE", "(")
        if self.kind() not in NAME_TOKENS or self.key(1) not in ("(", "."):
            raise self.expected_error("a table function")
        found = self._window_or_function(self.at, lateral)
        self.expect(")")
        return replace(found, span=self.span(first))

    def _window_or_function(self, first: int, lateral: bool) -> syntax.Relation:
        if self.tokens[self.at].text.upper() in WINDOW_ROLES:
            return self._window_tvf()
        if self.key(2) == "TABLE" or self.key(3) == "=>":  # only a table-valued function has such arguments
            raise unknown_table_function_error(self.tokens[self.at].text, self.here())
        call = self.primary()
        if not isinstance(call, syntax.FunctionCall):
            raise SqlError.of("syntax", "expected a table function", self.span(first))
        return syntax.TableFunction(call, lateral, span=self.span(first))

    def table(self) -> syntax.Table:
        """Parse a table's name, its hints and its FOR SYSTEM_TIME AS OF."""
        first = self.at
        parts = self.name_parts("a table")
        hints = self.hints()
        at = self.at
        system_time: syntax.SystemTime | None = None
        if self.accept("FOR", "SYSTEM_TIME"):
            self.expect("AS", "OF")
            moment = self.operand()
            system_time = syntax.SystemTime(moment, span=self.span(at))
        return syntax.Table(tuple(parts), hints, system_time, span=self.span(first))

    def name_parts(self, what: str) -> list[syntax.Identifier]:
        """Parse a name of up to three parts."""
        first = self.at
        parts = [self.identifier(f"{what}'s name")]
        while self.accept("."):
            parts.append(self.identifier("a name after the dot", frozenset()))
        if len(parts) > 3:
            raise SqlError.of(
                "syntax", f"{what}'s name has at most three parts: catalog, database, name", self.span(first)
            )
        return parts

    def _table_alias(self) -> syntax.TableAlias | None:
        first = self.at
        explicit = self.accept("AS")
        if not explicit and (self.kind() not in NAME_TOKENS or self.key() in NOT_AN_ALIAS):
            return None
        what = "a table's name"
        name = self.identifier(what) if explicit else self.implicit_alias(what, AFTER_A_RELATION)
        columns = self.parse_enclosed_list(lambda: self.identifier("a column's name")) if self.key() == "(" else ()
        return syntax.TableAlias(name, columns, span=self.span(first))

    def hints(self) -> tuple[syntax.Hint, ...]:
        """Parse `/*+ OPTIONS('k' = 'v') */` if it comes next."""
        if not self.accept("/*+"):
            return ()
        found = self.parse_list(self._hint)
        self.expect("*/")
        return found

    def _hint(self) -> syntax.Hint:
        first = self.at
        name = self.identifier("a hint's name").name.upper()
        arguments = self.parse_enclosed_list(self.expression) if self.key() == "(" else ()
        return syntax.Hint(name, arguments, span=self.span(first))

    # --- window TVFs ------------------------------------------------------------------------------

    def _window_tvf(self) -> syntax.WindowTvf:
        first = self.at
        kind = self.take().text.upper()
        roles = ("DATA", "TIMECOL", *WINDOW_ROLES[kind])
        self.expect("(")
        given: set[str] = set()
        arguments: list[syntax.NamedArgument] = []
        table: syntax.Relation | None = None
        time_column: syntax.ColumnPath | None = None
        partition_by: tuple[syntax.ColumnPath, ...] = ()
        named = self.key(1) == "=>"
        while True:
            at = self.at
            if (self.key(1) == "=>") != named:
                raise self.expected_error(
                    "a named argument" if named else "an argument without a name", "name either all arguments or none"
                )
            role = self._role(kind, roles) if named else (roles[len(given)] if len(given) < len(roles) else "")
            if not role:
                raise self.expected_error(f"`)`: {kind} takes {_join_roles(roles)}")
            if role in given:
                raise SqlError.of("syntax", f"{kind} has the argument {role} twice", self.span(at, at))
            given.add(role)
            if role == "DATA":
                table, partition_by = self._window_data(kind)
            elif role == "TIMECOL":
                time_column = self._descriptor(kind)
            else:
                name, value = syntax.Identifier(role, span=self.span(at, at)), self.expression()
                arguments.append(syntax.NamedArgument(name, value, span=self.span(at)))
            if not self.accept(","):
                break
        arguments.sort(key=lambda argument: roles.index(argument.name.name))
        missing = [role for role in roles if role not in given and role != "OFFSET"]
        if missing:
            raise self._missing(kind, roles, missing, named)
        self.expect(")")
        assert table is not None
        assert time_column is not None
        return syntax.WindowTvf(kind, table, time_column, tuple(arguments), partition_by, span=self.span(first))

    def _role(self, kind: str, roles: tuple[str, ...]) -> str:
        role = self.tokens[self.at].text.upper()
        if role not in roles:
            message = f"{kind} has no argument `{role}`: it takes {_join_roles(roles)}"
            raise SqlError.of("syntax", message, self.here(), suggest_name(role, roles))
        self.at += 2
        return role

    def _missing(self, kind: str, roles: tuple[str, ...], missing: list[str], named: bool) -> EverfoldError:
        if self.key() != ")":
            return self.expected_error("`,` or `)`")
        shown = {"DATA": "TABLE t", "TIMECOL": "DESCRIPTOR(ts)"}
        example = ", ".join(
            (f"{role} => " if named else "") + shown.get(role, "INTERVAL '10' MINUTES")
            for role in roles
            if role != "OFFSET"
        )
        return SqlError.of("syntax", f"{kind} lacks its argument {missing[0]}", self.here(), f"write {kind}({example})")

    def _window_data(self, kind: str) -> tuple[syntax.Relation, tuple[syntax.ColumnPath, ...]]:
        first = self.at
        if self.key() == "(" and self.starts_query(1):
            query = self.parenthesized_query()
            data: syntax.Relation = syntax.DerivedTable(query, span=self.span(first))
        else:
            if not self.accept("TABLE"):
                raise self.expected_error("`TABLE` and a table's name", f"write {kind}(TABLE t, DESCRIPTOR(ts), …)")
            data = self.table()
        if not self.accept("PARTITION", "BY"):
            return data, ()
        if kind != "SESSION":
            raise UnsupportedFeature.of(
                "unsupported-clause",
                f"PARTITION BY in {kind} is not supported",
                self.span(self.at - 2),
                "GROUP BY the keys",
            )
        keys = self.parse_enclosed_list(self._key_column) if self.key() == "(" else self._bare_keys()
        return data, keys

    def _bare_keys(self) -> tuple[syntax.ColumnPath, ...]:
        """Parse keys without parentheses; the comma after the last key belongs to the window."""
        keys = [self._key_column()]
        while self.key() == "," and self.kind(1) in NAME_TOKENS and self.key(2) not in ("(", "=>"):
            self.at += 1
            keys.append(self._key_column())
        return tuple(keys)

    def _key_column(self) -> syntax.ColumnPath:
        first = self.at
        parts = self.name_parts("a column")
        return syntax.ColumnPath(tuple(parts), span=self.span(first))

    def _descriptor(self, kind: str) -> syntax.ColumnPath:
        if self.key() != "DESCRIPTOR":
            raise self.expected_error("`DESCRIPTOR` and the time column", f"write {kind}(TABLE t, DESCRIPTOR(ts), …)")
        self.at += 1
        self.expect("(")
        name = self.identifier("the time column")
        made = syntax.ColumnPath((name,), span=name.span)
        if self.key() == ",":
            raise self.expected_error("`)`: a window has one time column")
        self.expect(")")
        return made


def unknown_table_function_error(name: str, span: Span | None) -> EverfoldError:
    """Return the error for an unknown function in FROM."""
    near = suggest_name(name, (*WINDOW_ROLES, "UNNEST"))
    if near is not None:
        return SqlError.of("unknown-function", f"no table function is named `{name}`", span, near)
    known = "there are TUMBLE, HOP, CUMULATE, SESSION and UNNEST"
    return UnsupportedFeature.of("table-function", f"the table function `{name}` is not supported", span, known)


def _join_roles(roles: tuple[str, ...]) -> str:
    return ", ".join(roles[:-1]) + f" and {roles[-1]}"
