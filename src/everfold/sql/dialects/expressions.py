"""Grammar of expressions: operators by binding power, and their operands."""

from __future__ import annotations

import re
from functools import partial, reduce
from typing import Literal, NamedTuple

from everfold.errors import Span, SqlError, UnsupportedFeature
from everfold.sql import syntax
from everfold.sql.dialects.calls import Calls
from everfold.sql.dialects.keywords import NILADIC, NOT_A_FUNCTION, NOT_A_NAME, UNITS
from everfold.sql.dialects.literals import WrongLiteral, interval_units, interval_value, normalize_temporal
from everfold.sql.dialects.operators import CHAINS, COMPARE, DISTINCT_FROM, IS, NOT, RANGE, SIGN, SUM, SYMBOLS
from everfold.sql.dialects.tokens import TokenKind, combine_surrogates, unpaired_surrogate_error
from everfold.sql.dialects.types import MAX_TIMESTAMP_PRECISION


class _Operand(NamedTuple):
    """An operand of AND or OR, and its location including parentheses around it."""

    node: syntax.Expression
    span: Span | None


def _join_all(operator: str, operands: list[_Operand]) -> syntax.Expression:
    """Join the operands of AND or OR into one tree; a long chain becomes a balanced tree."""
    while len(operands) > LONG_CHAIN:
        pairs = [operands[at : at + 2] for at in range(0, len(operands), 2)]
        operands = [_join_pair(operator, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return reduce(partial(_join_pair, operator), operands).node


def _join_pair(operator: str, left: _Operand, right: _Operand) -> _Operand:
    assert left.span is not None
    span = left.span.to(right.span)
    return _Operand(syntax.BinaryOperation(operator, left.node, right.node, span=span), span)


LONG_CHAIN = 32
"""A chain of AND or OR with more operands than this becomes a balanced tree."""


class Expressions(Calls):
    """Grammar of expressions."""

    def expression(self) -> syntax.Expression:
        """Parse an expression."""
        with self.nested():
            return self.binary(0)

    def operand(self) -> syntax.Expression:
        """Parse an expression that has no AND, OR or comparison at its top: an operand of those."""
        with self.nested():
            return self.binary(SUM)

    def binary(self, power: int) -> syntax.Expression:
        """Parse an operand and the operators after it whose binding power is at least `power`."""
        first = self.at
        left = self._prefix_operator()
        while True:
            key = self.key()
            operator = "<>" if key == "!=" else key
            if key in CHAINS and CHAINS[key] >= power:
                left = self._chain(key, left, first)
            elif (own := SYMBOLS.get(operator)) is not None and own >= power:
                self.at += 1
                if own == COMPARE and self.key() in ("ANY", "SOME", "ALL") and self.key(1) == "(":
                    left = self._quantified_comparison(operator, left, first)
                else:
                    right = self.binary(own + 1)
                    left = syntax.BinaryOperation(operator, left, right, span=self.span(first))
            else:
                predicate = {"IS": self._is, "OVERLAPS": self._overlaps}.get(key, self._range)
                found = predicate(left, first, power)
                if found is None:
                    return left
                left = found

    def _chain(self, operator: str, left: syntax.Expression, first: int) -> syntax.Expression:
        """Parse a chain of AND or OR.

        Operands in parentheses are flattened: conditions with the same meaning are equal trees.
        """
        operands = self._operands(operator, left, first)
        while self.accept(operator):
            at = self.at
            operands += self._operands(operator, self.binary(CHAINS[operator] + 1), at)
        return _join_all(operator, operands)

    def _operands(self, operator: str, node: syntax.Expression, first: int) -> list[_Operand]:
        found = syntax.flatten_chain(node, operator)
        return [_Operand(each, each.span if len(found) > 1 else self.span(first)) for each in found]

    def _quantified_comparison(self, operator: str, left: syntax.Expression, first: int) -> syntax.Expression:
        """Parse a comparison with ANY, SOME or ALL of the values of a query or a list.

        `= ANY` becomes IN and `<> ALL` becomes NOT IN. Other comparisons with a list become one
        comparison per value, joined with OR or AND.
        """
        every = self.take().key == "ALL"
        if operator == ("<>" if every else "="):
            return self._negate_if(every, self._in(left, first), first)
        if (subquery := self._enclosed_query()) is not None:
            return syntax.QuantifiedComparison(
                operator, left, "ALL" if every else "ANY", subquery, span=self.span(first)
            )
        listed = self.parse_enclosed_list(self.expression)
        span = self.span(first)
        found = [syntax.BinaryOperation(operator, left, each, span=span) for each in listed]
        return _join_all("AND" if every else "OR", [_Operand(each, span) for each in found])

    def _enclosed_query(self) -> syntax.Subquery | None:
        """Parse a query in parentheses if it comes next."""
        first = self.at
        if not self.starts_query(1):
            return None
        self.expect("(")
        query = self.query()
        self.expect(")")
        return syntax.Subquery(query, span=self.span(first))

    def _is(self, left: syntax.Expression, first: int, power: int) -> syntax.Expression | None:
        negated = self.key(1) == "NOT"
        words = 2 if negated else 1
        if self.key(words) == "DISTINCT":
            if power > DISTINCT_FROM:
                return None
            self.at += words
            self.expect("DISTINCT", "FROM")
            operator = "IS NOT DISTINCT FROM" if negated else "IS DISTINCT FROM"
            right = self.binary(DISTINCT_FROM + 1)
            return syntax.BinaryOperation(operator, left, right, span=self.span(first))
        if power > IS:
            return None
        self.at += words
        at = self.at
        found: syntax.Expression
        word = self.expect_one_of("NULL", "TRUE", "FALSE", "UNKNOWN", "JSON", "DISTINCT")
        if word == "JSON":
            variant = self.one_of("VALUE", "SCALAR", "ARRAY", "OBJECT") or "VALUE"
            kind = syntax.Keyword(variant, span=self.span(at))
            found = syntax.FunctionCall("IS_JSON", (left, kind), special=True, span=self.span(first))
        else:
            found = syntax.Is(left, word, span=self.span(first))
        return self._negate_if(negated, found, first)

    def _negate_if(self, negated: bool, found: syntax.Expression, first: int) -> syntax.Expression:
        return syntax.Not(found, span=self.span(first)) if negated else found

    def _overlaps(self, left: syntax.Expression, first: int, power: int) -> syntax.Expression | None:
        """Parse OVERLAPS if a period follows; otherwise the word may be a name."""
        if power > COMPARE or self.key(1) not in ("(", "ROW", "PERIOD"):
            return None
        self.at += 1
        right = self.binary(COMPARE + 1)
        return syntax.BinaryOperation("OVERLAPS", left, right, span=self.span(first))

    def _range(self, left: syntax.Expression, first: int, power: int) -> syntax.Expression | None:
        negated = self.key() == "NOT"
        word = self.key(1) if negated else self.key()
        if power > RANGE or word not in ("BETWEEN", "IN", "LIKE", "SIMILAR"):
            return None
        self.at += 2 if negated else 1
        found: syntax.Expression
        match word:
            case "BETWEEN":
                symmetric = self.one_of("SYMMETRIC", "ASYMMETRIC") == "SYMMETRIC"
                low = self.binary(RANGE + 1)
                self.expect("AND")
                high = self.binary(RANGE + 1)
                found = syntax.Between(left, low, high, symmetric, span=self.span(first))
            case "IN":
                found = self._in(left, first)
            case _:
                if word == "SIMILAR":
                    self.expect("TO")
                pattern = self.binary(RANGE + 1)
                escape = self.binary(RANGE + 1) if self.accept("ESCAPE") else None
                operator: Literal["LIKE", "SIMILAR TO"] = "LIKE" if word == "LIKE" else "SIMILAR TO"
                found = syntax.Like(operator, left, pattern, escape, span=self.span(first))
        return self._negate_if(negated, found, first)

    def _in(self, left: syntax.Expression, first: int) -> syntax.Expression:
        if (subquery := self._enclosed_query()) is not None:
            return syntax.InQuery(left, subquery, span=self.span(first))
        values = self.parse_enclosed_list(self.expression)
        return syntax.In(left, values, span=self.span(first))

    # --- operands ---------------------------------------------------------------------------------

    def _prefix_operator(self) -> syntax.Expression:
        first = self.at
        word = self.one_of("-", "+", "NOT")
        if word is None:
            return self._postfix_operators(self.primary(), first)
        with self.nested():
            operand = self.binary(NOT if word == "NOT" else SIGN)
        if word == "+":
            return operand
        return (syntax.Not if word == "NOT" else syntax.Negative)(operand, span=self.span(first))

    def _postfix_operators(self, found: syntax.Expression, first: int) -> syntax.Expression:
        while True:
            if self.accept("["):
                index = self.expression()
                self.expect("]")
                found = syntax.FunctionCall("ITEM", (found, index), special=True, span=self.span(first))
            elif self.accept("."):
                field = self.identifier("a field's name", frozenset())
                found = syntax.FieldAccess(found, field, span=self.span(first))
            else:
                return found

    def primary(self) -> syntax.Expression:
        """Parse an operand: a literal, a name, a call, or an expression in parentheses."""
        first, key = self.at, self.key()
        match self.kind():
            case TokenKind.NUMBER:
                return syntax.NumberLiteral(_number(self.take().text), span=self.span(first))
            case TokenKind.STRING:
                return syntax.StringLiteral(self._string_literal(), span=self.span(first))
            case TokenKind.UNICODE:
                return self._unicode()
            case TokenKind.HEX:
                return self._hex()
            case TokenKind.SYMBOL if key == "(":
                return self._parenthesized()
            case TokenKind.WORD:
                return self._word(key)
            case TokenKind.QUOTED:
                return self._name_or_call()
            case _:
                raise self.expected_error("an expression")

    def _word(self, key: str) -> syntax.Expression:
        first = self.at
        after, kind = self.key(1), self.kind(1)
        match key:
            case "NULL":
                self.at += 1
                return syntax.NullLiteral(span=self.span(first))
            case "TRUE" | "FALSE":
                self.at += 1
                return syntax.BooleanLiteral(key == "TRUE", span=self.span(first))
            case "DATE" | "TIME" | "TIMESTAMP" if kind is TokenKind.STRING:
                return self._temporal(key)
            case "INTERVAL" if kind in (TokenKind.STRING, TokenKind.NUMBER):
                return self._interval()
            case "INTERVAL" if (
                after in ("-", "+") and self.kind(2) in (TokenKind.STRING, TokenKind.NUMBER) and self.key(3) in UNITS
            ):
                return self._interval()
            case "INTERVAL" if kind is TokenKind.WORD and self.key(2) in UNITS:
                self.at += 3
                raise self.unsupported_error(
                    "unsupported-clause",
                    "an interval of a column",
                    first,
                    f"write {self.slice(first + 1).split()[0]} * INTERVAL '1' {self.keys[self.at - 1]}",
                )
            case "CASE":
                return self._case()
            case "EXISTS":
                self.at += 1
                query = self.parenthesized_query()
                return syntax.Exists(query, span=self.span(first))
            case "ARRAY" | "MAP" if after == "[":
                return self._collection(key)
            case "ARRAY" | "MAP" | "MULTISET" if after == "(" or (key == "MULTISET" and after == "["):
                self.at += 1
                raise self.unsupported_error(
                    "unsupported-clause",
                    f"{key}{after}…{')' if after == '(' else ']'}",
                    first,
                    "write ARRAY[…] or MAP[…]" if after == "(" else None,
                )
            case "CAST" | "TRY_CAST" if after == "(":
                return self.cast()
            case _ if key in NILADIC and after != "." and (after != "(" or self.key(2) == ")"):
                name = self.take().text
                self.accept("(", ")")
                return syntax.FunctionCall(key, special=True, original_name=name, span=self.span(first))
        if key in (NOT_A_FUNCTION if after == "(" else NOT_A_NAME):
            raise self.expected_error("an expression")
        return self._name_or_call()

    def _name_or_call(self) -> syntax.Expression:
        first = self.at
        parts = [self.identifier("a name", NOT_A_FUNCTION)]
        while self.key() == "." and self.key(1) != "*":
            self.at += 1
            parts.append(self.identifier("a name after the dot", frozenset()))
        if self.key() == "(":
            return self.call(parts, first)
        return syntax.ColumnPath(tuple(parts), span=self.span(first))

    def _parenthesized(self) -> syntax.Expression:
        first = self.at
        if self.starts_query(1):
            query = self.parenthesized_query()
            return syntax.Subquery(query, span=self.span(first))
        found = self.parse_enclosed_list(self.expression)
        return found[0] if len(found) == 1 else syntax.Tuple(found, span=self.span(first))

    def _case(self) -> syntax.Expression:
        first = self.at
        self.expect("CASE")
        operand = None if self.key() == "WHEN" else self.expression()
        branches: list[syntax.When] = []
        while not branches or self.key() == "WHEN":
            at = self.at
            self.expect("WHEN")
            condition = self.expression()
            self.expect("THEN")
            result = self.expression()
            branches.append(syntax.When(condition, result, span=self.span(at)))
        default = self.expression() if self.accept("ELSE") else None
        self.expect("END")
        return syntax.Case(operand, tuple(branches), default, span=self.span(first))

    def _collection(self, key: str) -> syntax.Expression:
        first = self.at
        self.at += 2
        values = () if self.key() == "]" else self.parse_list(self.expression)
        if key == "MAP" and len(values) % 2:
            raise self.expected_error("`,` and the value of the last key")
        self.expect("]")
        return syntax.FunctionCall(key, values, special=True, span=self.span(first))

    # --- literals ---------------------------------------------------------------------------------

    def _string_literal(self) -> str:
        """Parse a string literal and its continuation literals on following lines."""
        token = self.take()
        whole = token.text
        while self.kind() is TokenKind.STRING and "\n" in self.text[token.start : self.tokens[self.at].start]:
            token = self.take()
            whole += token.text
        return whole

    def _unicode(self) -> syntax.Expression:
        first = self.at
        raw, escape = self.take().text, "\\"
        if self.accept("UESCAPE"):
            escape = self.string("the escape character")
        decoded, at = "", 0
        while at < len(raw):
            if raw[at] != escape:
                decoded, at = decoded + raw[at], at + 1
            elif raw[at + 1 : at + 2] == escape:
                decoded, at = decoded + escape, at + 2
            else:
                digits = raw[at + 1 : at + 5]
                if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                    raise SqlError.of("wrong-literal", f"expected four hex digits after `{escape}`", self.span(first))
                decoded, at = decoded + chr(int(digits, 16)), at + 5
        try:
            decoded = combine_surrogates(decoded)
        except UnicodeDecodeError:
            raise unpaired_surrogate_error(self.span(first)) from None
        return syntax.StringLiteral(decoded, span=self.span(first))

    def _hex(self) -> syntax.Expression:
        digits = self.take().text.upper()
        if len(digits) % 2 or any(digit not in "0123456789ABCDEF" for digit in digits):
            raise SqlError.of("wrong-literal", "expected pairs of hex digits", self.span(self.at - 1))
        return syntax.HexLiteral(digits, span=self.span(self.at - 1))

    def _temporal(self, kind: str) -> syntax.Expression:
        first = self.at
        self.at += 1
        try:
            text, precision = normalize_temporal(kind, self.take().text)
        except WrongLiteral as wrong:
            raise SqlError.of("wrong-literal", str(wrong), self.span(first)) from None
        if precision > MAX_TIMESTAMP_PRECISION:
            message = f"{precision} digits of a second are not supported: everfold keeps microseconds"
            help_text = f"write at most {MAX_TIMESTAMP_PRECISION} digits"
            raise UnsupportedFeature.of("timestamp-precision", message, self.span(first), help_text)
        return syntax.TemporalLiteral(kind, text, precision, span=self.span(first))

    def _interval(self) -> syntax.Expression:
        first = self.at
        self.expect("INTERVAL")
        sign = self.one_of("-", "+")
        text = self.take().text.strip()
        if sign == "-":
            text = text[1:].lstrip() if text.startswith("-") else "-" + text.removeprefix("+")
        unit, last = self.interval_unit(), None
        rounded_to = UNITS.get(self.key(1)) if self.key() == "TO" and self.key(2) == ")" else None
        if rounded_to is not None and not interval_units(unit, rounded_to):
            pass  # the unit belongs to the call around it: FLOOR(ts - INTERVAL '1' YEAR TO DAY)
        elif self.accept("TO"):
            last = self.interval_unit()
        if not interval_units(unit, last):
            raise SqlError.of("wrong-literal", f"there is no INTERVAL {unit} TO {last}", self.span(first))
        made = syntax.IntervalLiteral(text, unit, None if last == unit else last, span=self.span(first))
        try:
            interval_value(made)
        except WrongLiteral as wrong:
            raise SqlError.of("wrong-literal", f"'{text}' is not a valid interval: {wrong}", self.span(first)) from None
        return made


def _number(text: str) -> str:
    """Return a number in canonical form: `5.` is the integer 5, `007` is 7.

    A decimal keeps its leading zeros, because `00.5` is a DECIMAL(3, 1).
    """
    mantissa, mark, exponent = text.upper().partition("E")
    mantissa = mantissa.removesuffix(".")
    if mark or "." not in mantissa:
        mantissa = re.sub(r"^0+(?=[0-9])", "", mantissa)
    return mantissa + mark + exponent.removeprefix("+")
