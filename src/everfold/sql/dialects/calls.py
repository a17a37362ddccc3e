"""Grammar of function calls: plain calls, calls with special syntax, and what may follow a call."""

from __future__ import annotations

from dataclasses import replace

from everfold.errors import suggest_name
from everfold.sql import syntax
from everfold.sql.dialects.keywords import TIME_UNITS
from everfold.sql.dialects.operators import RANGE
from everfold.sql.dialects.token_stream import NAME_TOKENS
from everfold.sql.dialects.types import Types

_AFTER_QUERY = ("", ")", ";", "UNION", "INTERSECT", "EXCEPT", "ORDER", "LIMIT", "OFFSET", "FETCH")


class Calls(Types):
    """Grammar of calls. A method named after a function parses the arguments of that function."""

    # --- implemented by subclasses ----------------------------------------------------------------

    def expression(self) -> syntax.Expression:
        """Parse an expression."""
        raise NotImplementedError

    def binary(self, power: int) -> syntax.Expression:
        """Parse an expression whose operators have at least this binding power."""
        raise NotImplementedError

    def query(self) -> syntax.Query:
        """Parse a query."""
        raise NotImplementedError

    def order_by(self) -> syntax.OrderBy:
        """Parse ORDER BY and its keys."""
        raise NotImplementedError

    def window(self) -> syntax.WindowSpec:
        """Parse a window definition in parentheses, after OVER or WINDOW w AS."""
        raise NotImplementedError

    def starts_query(self, ahead: int = 0) -> bool:
        """Return whether a query comes next.

        Opening parentheses are not enough: `((SELECT 1) + 1)` is not a query.
        """
        at = self.at + ahead
        opened = []
        while at < len(self.keys) and self.keys[at] == "(":
            opened.append(at)
            at += 1
        ahead = at - self.at
        if self.key(ahead) not in ("SELECT", "WITH", "VALUES") and not (
            self.key(ahead) == "TABLE" and self.kind(ahead + 1) in NAME_TOKENS
        ):
            return False
        return all(self.key(self.closing.get(each, len(self.keys)) + 1 - self.at) in _AFTER_QUERY for each in opened)

    def parenthesized_query(self) -> syntax.Query:
        """Parse a query in parentheses."""
        with self.nested(2):
            self.expect("(")
            query = self.query()
            self.expect(")")
            return query

    # --- calls ------------------------------------------------------------------------------------

    def call(self, parts: list[syntax.Identifier], first: int) -> syntax.Expression:
        """Parse a call from its parenthesis on, and FILTER, WITHIN GROUP, IGNORE NULLS, OVER."""
        name = ".".join(part.name for part in parts)
        if len(parts) == 1:
            self.functions.add(first)
        self.expect("(")
        made = self._arguments(syntax.FunctionCall(name.upper(), special=name.upper() == "ROW", original_name=name))
        self.expect(")")
        made = replace(self._modifiers(made), span=self.span(first))
        if not self.accept("OVER"):
            return made
        if self.key() == "(":
            window = self.window()
        else:
            base = self.identifier("a window: its name, or its definition in parentheses")
            window = syntax.WindowSpec(base, span=base.span)
        return syntax.Over(made, window, span=self.span(first))

    def _arguments(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        """Return the call with its arguments."""
        special = {
            "EXTRACT": self._extract,
            "TRIM": self._trim,
            "SUBSTRING": self._substring,
            "POSITION": self._position,
            "OVERLAY": self._overlay,
            "FLOOR": self._rounding,
            "CEIL": self._rounding,
            "CEILING": self._rounding,
            "TIMESTAMPADD": self._timestamp_arithmetic,
            "TIMESTAMPDIFF": self._timestamp_arithmetic,
            "JSON_VALUE": self._json_path,
            "JSON_QUERY": self._json_path,
            "JSON_EXISTS": self._json_path,
            "JSON_OBJECT": self._json_pairs,
            "JSON_OBJECTAGG": self._json_pairs,
            "JSON_ARRAY": self._json_items,
            "JSON_ARRAYAGG": self._json_items,
        }.get(made.name)
        if special is not None:
            return special(made)
        distinct = self.one_of("DISTINCT", "ALL") == "DISTINCT"
        arguments = () if self.key() == ")" else self.parse_list(self._argument)
        made = replace(made, distinct=distinct, arguments=arguments)
        if made.name == "ARRAY_AGG":
            made = self._nulls(made) or made
        return self._order(made)

    def _order(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        """Parse ORDER BY if it comes next."""
        return replace(made, order=self.order_by().keys) if self.key() == "ORDER" else made

    def _nulls(self, made: syntax.FunctionCall) -> syntax.FunctionCall | None:
        """Parse IGNORE NULLS or RESPECT NULLS; return None if something else comes next."""
        if self.key() not in ("IGNORE", "RESPECT") or self.key(1) != "NULLS":
            return None
        self.at += 2
        return replace(made, nulls=self.keys[self.at - 2])

    def _argument(self) -> syntax.Expression:
        first = self.at
        if self.key(1) == "=>":
            name = self.identifier("an argument's name", frozenset())
            self.at += 1
            value = self.expression()
            return syntax.NamedArgument(name, value, span=self.span(first))
        if self.accept("*"):
            return syntax.Star(span=self.span(first))
        return self.qualified_star() or (
            self._query_argument() if self.starts_query() and self.key() != "(" else self.expression()
        )

    def _query_argument(self) -> syntax.Expression:
        first = self.at
        query = self.query()
        return syntax.Subquery(query, span=self.span(first))

    def qualified_star(self) -> syntax.QualifiedStar | None:
        """Parse `t.*` if it comes next."""
        ahead = 0
        while self.kind(ahead) in NAME_TOKENS and self.key(ahead + 1) == ".":
            ahead += 2
        if not ahead or self.key(ahead) != "*":
            return None
        first = self.at
        parts = []
        while not self.accept("*"):
            parts.append(self.identifier("a table's name"))
            self.expect(".")
        return syntax.QualifiedStar(tuple(parts), span=self.span(first))

    def _modifiers(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        """Return the call with the clauses after its parentheses."""
        while True:
            if (changed := self._nulls(made)) is not None:
                made = changed
            elif self.accept("WITHIN", "GROUP", "("):
                made = replace(made, order=self.order_by().keys)
                self.expect(")")
            elif self.accept("FILTER", "(", "WHERE"):
                made = replace(made, filter=self.expression())
                self.expect(")")
            else:
                return made

    def cast(self) -> syntax.Expression:
        """Parse CAST(x AS t) or TRY_CAST(x AS t)."""
        first = self.at
        safe = self.take().key == "TRY_CAST"
        self.expect("(")
        value = self.expression()
        self.expect("AS")
        to = self.data_type()
        self.expect(")")
        return syntax.Cast(value, to, safe, span=self.span(first))

    # --- special syntax ---------------------------------------------------------------------------

    def _unit(self) -> syntax.Keyword:
        unit = TIME_UNITS.get(self.key())
        if unit is None:
            help_text = suggest_name(self.key(), TIME_UNITS) if self.key() else None
            raise self.expected_error("a unit of time (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, …)", help_text)
        self.at += 1
        return syntax.Keyword(unit, span=self.span(self.at - 1))

    def _extract(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        unit = self._unit()
        self.expect("FROM")
        return replace(made, arguments=(unit, self.expression()))

    def _rounding(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        arguments = self.parse_list(self.expression)
        if len(arguments) == 1 and self.accept("TO"):
            arguments = (*arguments, self._unit())
        return replace(made, arguments=arguments)

    def _timestamp_arithmetic(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        unit = self._unit()
        self.expect(",")
        return replace(made, arguments=(unit, *self.parse_list(self.expression)))

    def _trim(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        first = self.at
        side = self.one_of("BOTH", "LEADING", "TRAILING") if self.key(1) not in (")", ".", "[", "(", "||") else None
        characters: syntax.Expression | None = None
        if side and self.accept("FROM"):
            value = self.expression()
        else:
            value = self.expression()
            if side:
                characters = value
                self.expect("FROM")
                value = self.expression()
            elif self.accept("FROM"):
                characters, value = value, self.expression()
        span = self.span(first, first)
        word = syntax.Keyword(side or "BOTH", span=span)
        return replace(made, arguments=(word, characters or syntax.StringLiteral(" ", span=span), value))

    def _substring(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        return self._keyword_arguments(made, "FROM", "FOR")

    def _overlay(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        return self._keyword_arguments(made, "PLACING", "FROM", "FOR")

    def _keyword_arguments(self, made: syntax.FunctionCall, *words: str) -> syntax.FunctionCall:
        arguments = [self.expression()]
        if self.key() == ",":
            while self.accept(","):
                arguments.append(self.expression())
        elif self.key() != ")":
            for word in words:
                if word == "FOR" and self.key() == ")":
                    break
                self.expect(word)
                arguments.append(self.expression())
        return replace(made, arguments=tuple(arguments))

    def _position(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        wanted = self.binary(RANGE + 1)
        self.expect("IN")
        return replace(made, arguments=(wanted, self.expression()))

    # --- JSON -------------------------------------------------------------------------------------

    def _json_path(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        document = self.expression()
        self.expect(",")
        path = self.expression()
        words = {
            "JSON_VALUE": ("NULL", "ERROR", "DEFAULT"),
            "JSON_QUERY": ("NULL", "ERROR", "EMPTY"),
            "JSON_EXISTS": ("TRUE", "FALSE", "UNKNOWN", "ERROR"),
        }[made.name]
        options: list[syntax.CallOption] = []
        while self.key() != ")":
            options.append(self._json_option(made.name, words))
            if options[-1].name in [each.name for each in options[:-1]]:
                self.at -= 1
                raise self.expected_error(f"`)`: {options[-1].name} is specified twice")
        return replace(made, arguments=(document, path), options=tuple(options))

    def _json_option(self, name: str, words: tuple[str, ...]) -> syntax.CallOption:
        first = self.at
        if name != "JSON_EXISTS" and self.accept("RETURNING"):
            to = self.data_type()
            return syntax.CallOption("RETURNING", type=to, span=self.span(first))
        if name == "JSON_QUERY" and (word := self.one_of("WITH", "WITHOUT")):
            wanted = "WITHOUT" if word == "WITHOUT" else self.one_of("CONDITIONAL", "UNCONDITIONAL") or "UNCONDITIONAL"
            self.accept("ARRAY")
            self.expect("WRAPPER")
            return syntax.CallOption("WRAPPER", wanted, span=self.span(first))
        value = self.expect_one_of(*words)
        if value == "EMPTY":
            value = f"EMPTY {self.expect_one_of('ARRAY', 'OBJECT')}"
        default = self.expression() if value == "DEFAULT" else None
        self.expect("ON")
        on = self.expect_one_of("EMPTY", "ERROR") if name != "JSON_EXISTS" else self.expect_one_of("ERROR")
        return syntax.CallOption(f"ON {on}", value, default=default, span=self.span(first))

    def _json_pairs(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        pairs = () if self.key() == ")" or self._sees_on_null() else self.parse_list(self._json_pair)
        return self._on_null(replace(made, arguments=tuple(each for pair in pairs for each in pair)))

    def _json_pair(self) -> tuple[syntax.Expression, syntax.Expression]:
        if self.key() == "KEY" and self.key(1) not in ("VALUE", ".", "("):
            self.at += 1
        key = self.expression()
        if not self.accept(":"):
            self.expect("VALUE")
        return key, self.expression()

    def _json_items(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        distinct = self.one_of("DISTINCT", "ALL") == "DISTINCT"
        arguments = () if self.key() == ")" or self._sees_on_null() else self.parse_list(self.expression)
        return self._on_null(self._order(replace(made, distinct=distinct, arguments=arguments)))

    def _sees_on_null(self) -> bool:
        return self.key() in ("NULL", "ABSENT") and self.key(1) == "ON"

    def _on_null(self, made: syntax.FunctionCall) -> syntax.FunctionCall:
        """Parse NULL ON NULL or ABSENT ON NULL if it comes next."""
        if not self._sees_on_null():
            return made
        first, value = self.at, self.key()
        self.at += 1
        self.expect("ON", "NULL")
        return replace(made, options=(syntax.CallOption("ON NULL", value, span=self.span(first)),))
