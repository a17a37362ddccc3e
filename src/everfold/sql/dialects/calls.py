"""Grammar of function calls: plain calls, calls with special syntax, and what may follow a call."""

from __future__ import annotations

from sqlglot import exp

from everfold.errors import suggest_name
from everfold.sql.dialects.keywords import TIME_UNITS
from everfold.sql.dialects.nodes import CallOption, FlinkCast, FunctionCall, QualifiedStar
from everfold.sql.dialects.operators import RANGE
from everfold.sql.dialects.token_stream import NAME_TOKENS
from everfold.sql.dialects.types import Types

_AFTER_QUERY = ("", ")", ";", "UNION", "INTERSECT", "EXCEPT", "ORDER", "LIMIT", "OFFSET", "FETCH")


class Calls(Types):
    """Grammar of calls. A method named after a function parses the arguments of that function."""

    # --- implemented by subclasses ----------------------------------------------------------------

    def expression(self) -> exp.Expression:
        """Parse an expression."""
        raise NotImplementedError

    def binary(self, power: int) -> exp.Expression:
        """Parse an expression whose operators have at least this binding power."""
        raise NotImplementedError

    def query(self) -> exp.Expression:
        """Parse a query."""
        raise NotImplementedError

    def order_by(self) -> exp.Order:
        """Parse ORDER BY and its keys."""
        raise NotImplementedError

    def window(self, first: int, **args: object) -> exp.Window:
        """Parse a window definition in parentheses."""
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

    def parenthesized_query(self) -> exp.Expression:
        """Parse a query in parentheses."""
        with self.nested(2):
            self.expect("(")
            query = self.query()
            self.expect(")")
            return query

    # --- calls ------------------------------------------------------------------------------------

    def call(self, parts: list[exp.Identifier], first: int) -> exp.Expression:
        """Parse a call from its parenthesis on, and FILTER, WITHIN GROUP, IGNORE NULLS, OVER."""
        name = ".".join(part.name.upper() for part in parts)
        self.expect("(")
        made = FunctionCall(this=name)
        made.meta["spelled"] = ".".join(part.name for part in parts)
        self._arguments(name, made)
        self.expect(")")
        self._modifiers(made)
        self.set_position(made, first)
        if self.accept("OVER"):
            return self._over(made, first)
        return made

    def _arguments(self, name: str, made: FunctionCall) -> None:
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
        }.get(name)
        if name == "ROW":
            made.set("special", True)
        if special is not None:
            special(made)
            return
        if self.one_of("DISTINCT", "ALL") == "DISTINCT":
            made.set("distinct", True)
        made.set("expressions", [] if self.key() == ")" else self.parse_list(self._argument))
        if name == "ARRAY_AGG":
            self._nulls(made)
        if self.key() == "ORDER":
            made.set("order", self.order_by().expressions)

    def _nulls(self, made: FunctionCall) -> bool:
        """Parse IGNORE NULLS or RESPECT NULLS if it comes next; return whether it did."""
        if self.key() not in ("IGNORE", "RESPECT") or self.key(1) != "NULLS":
            return False
        made.set("nulls", self.key())
        self.at += 2
        return True

    def _argument(self) -> exp.Expression:
        first = self.at
        if self.key(1) == "=>":
            name = self.identifier("an argument's name", frozenset())
            self.at += 1
            return self.node(exp.Kwarg, first, this=name, expression=self.expression())
        if self.accept("*"):
            return self.node(exp.Star, first)
        return self.qualified_star() or (
            self._query_argument() if self.starts_query() and self.key() != "(" else self.expression()
        )

    def _query_argument(self) -> exp.Expression:
        first = self.at
        return self.node(exp.Subquery, first, this=self.query())

    def qualified_star(self) -> QualifiedStar | None:
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
        return self.node(QualifiedStar, first, parts=parts)

    def _modifiers(self, made: FunctionCall) -> None:
        while True:
            if self._nulls(made):
                continue
            if self.accept("WITHIN", "GROUP", "("):
                made.set("order", self.order_by().expressions)
                self.expect(")")
            elif self.accept("FILTER", "(", "WHERE"):
                made.set("filter", self.expression())
                self.expect(")")
            else:
                return

    def _over(self, made: FunctionCall, first: int) -> exp.Expression:
        if self.key() != "(":
            name = self.identifier("a window: its name, or its definition in parentheses")
            return self.node(exp.Window, first, this=made, alias=name)
        return self.window(first, this=made)

    def cast(self) -> exp.Expression:
        """Parse CAST(x AS t) or TRY_CAST(x AS t)."""
        first = self.at
        safe = self.take().text.upper() == "TRY_CAST"
        self.expect("(")
        value = self.expression()
        self.expect("AS")
        to = self.data_type()
        self.expect(")")
        return self.node(FlinkCast, first, this=value, to=to, to_text=str(to), safe=safe)

    # --- special syntax ---------------------------------------------------------------------------

    def _unit(self) -> exp.Var:
        unit = TIME_UNITS.get(self.key())
        if unit is None:
            help_text = suggest_name(self.key(), TIME_UNITS) if self.key() else None
            raise self.expected_error("a unit of time (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, …)", help_text)
        self.at += 1
        return self.node(exp.Var, self.at - 1, this=unit)

    def _extract(self, made: FunctionCall) -> None:
        unit = self._unit()
        self.expect("FROM")
        made.set("expressions", [unit, self.expression()])

    def _rounding(self, made: FunctionCall) -> None:
        arguments = self.parse_list(self.expression)
        if len(arguments) == 1 and self.accept("TO"):
            arguments.append(self._unit())
        made.set("expressions", arguments)

    def _timestamp_arithmetic(self, made: FunctionCall) -> None:
        unit = self._unit()
        self.expect(",")
        made.set("expressions", [unit, *self.parse_list(self.expression)])

    def _trim(self, made: FunctionCall) -> None:
        first = self.at
        side = self.one_of("BOTH", "LEADING", "TRAILING") if self.key(1) not in (")", ".", "[", "(", "||") else None
        characters: exp.Expression | None = None
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
        word = self.node(exp.Var, first, first, this=side or "BOTH")
        characters = characters or self.node(exp.Literal, first, first, this=" ", is_string=True)
        made.set("expressions", [word, characters, value])

    def _substring(self, made: FunctionCall) -> None:
        self._keyword_arguments(made, "FROM", "FOR")

    def _overlay(self, made: FunctionCall) -> None:
        self._keyword_arguments(made, "PLACING", "FROM", "FOR")

    def _keyword_arguments(self, made: FunctionCall, *words: str) -> None:
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
        made.set("expressions", arguments)

    def _position(self, made: FunctionCall) -> None:
        arguments = [self.binary(RANGE + 1)]
        self.expect("IN")
        made.set("expressions", [*arguments, self.expression()])

    # --- JSON -------------------------------------------------------------------------------------

    def _json_path(self, made: FunctionCall) -> None:
        arguments = [self.expression()]
        self.expect(",")
        made.set("expressions", [*arguments, self.expression()])
        words = {
            "JSON_VALUE": ("NULL", "ERROR", "DEFAULT"),
            "JSON_QUERY": ("NULL", "ERROR", "EMPTY"),
            "JSON_EXISTS": ("TRUE", "FALSE", "UNKNOWN", "ERROR"),
        }[made.name]
        options: list[CallOption] = []
        while self.key() != ")":
            options.append(self._json_option(made.name, words))
            if options[-1].name in [each.name for each in options[:-1]]:
                self.at -= 1
                raise self.expected_error(f"`)`: {options[-1].name} is specified twice")
        made.set("options", options)

    def _json_option(self, name: str, words: tuple[str, ...]) -> CallOption:
        first = self.at
        if name != "JSON_EXISTS" and self.accept("RETURNING"):
            to = self.data_type()
            return self.node(CallOption, first, this="RETURNING", to=to, to_text=str(to))
        if name == "JSON_QUERY" and (word := self.one_of("WITH", "WITHOUT")):
            wanted = "WITHOUT" if word == "WITHOUT" else self.one_of("CONDITIONAL", "UNCONDITIONAL") or "UNCONDITIONAL"
            self.accept("ARRAY")
            self.expect("WRAPPER")
            return self.node(CallOption, first, this="WRAPPER", value=wanted)
        value = self.expect_one_of(*words)
        if value == "EMPTY":
            value = f"EMPTY {self.expect_one_of('ARRAY', 'OBJECT')}"
        default = self.expression() if value == "DEFAULT" else None
        self.expect("ON")
        on = self.expect_one_of("EMPTY", "ERROR") if name != "JSON_EXISTS" else self.expect_one_of("ERROR")
        return self.node(CallOption, first, this=f"ON {on}", value=value, expression=default)

    def _json_pairs(self, made: FunctionCall) -> None:
        pairs: list[exp.Expression] = []
        if self.key() != ")" and not self._on_null(made):
            pairs += [each for pair in self.parse_list(self._json_pair) for each in pair]
        made.set("expressions", pairs)
        self._on_null(made)

    def _json_pair(self) -> tuple[exp.Expression, exp.Expression]:
        if self.key() == "KEY" and self.key(1) not in ("VALUE", ".", "("):
            self.at += 1
        key = self.expression()
        if not self.accept(":"):
            self.expect("VALUE")
        return key, self.expression()

    def _json_items(self, made: FunctionCall) -> None:
        if self.one_of("DISTINCT", "ALL") == "DISTINCT":
            made.set("distinct", True)
        made.set("expressions", [] if self.key() == ")" or self._on_null(made) else self.parse_list(self.expression))
        if self.key() == "ORDER":
            made.set("order", self.order_by().expressions)
        self._on_null(made)

    def _on_null(self, made: FunctionCall) -> bool:
        if self.key() not in ("NULL", "ABSENT") or self.key(1) != "ON":
            return False
        first, value = self.at, self.key()
        self.at += 1
        self.expect("ON", "NULL")
        made.set("options", [self.node(CallOption, first, this="ON NULL", value=value)])
        return True
