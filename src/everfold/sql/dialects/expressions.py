"""Grammar of expressions: operators by binding power, and their operands."""

from __future__ import annotations

import re
from functools import partial, reduce
from typing import NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from everfold.errors import SqlError, UnsupportedFeature
from everfold.sql.dialects.calls import Calls
from everfold.sql.dialects.keywords import NILADIC, NOT_A_FUNCTION, NOT_A_NAME, UNITS
from everfold.sql.dialects.literals import WrongLiteral, interval_units, interval_value, normalize_temporal
from everfold.sql.dialects.nodes import ColumnPath, FieldAccess, FunctionCall, IntervalLiteral, TemporalLiteral
from everfold.sql.dialects.operators import CHAINS, COMPARE, DISTINCT_FROM, INFIX, IS, NOT, RANGE, SIGN, SUM, Infix
from everfold.sql.dialects.tokens import combine_surrogates, unpaired_surrogate_error
from everfold.sql.dialects.types import MAX_TIMESTAMP_PRECISION


class _Operand(NamedTuple):
    """An operand of AND or OR, and its position including parentheses around it."""

    node: exp.Expression
    position: dict[str, int]


def _join_all(infix: Infix, operands: list[_Operand]) -> exp.Expression:
    """Join the operands of AND or OR into one tree; a long chain becomes a balanced tree."""
    while len(operands) > LONG_CHAIN:
        pairs = [operands[at : at + 2] for at in range(0, len(operands), 2)]
        operands = [_join_pair(infix, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return reduce(partial(_join_pair, infix), operands).node


def _join_pair(infix: Infix, left: _Operand, right: _Operand) -> _Operand:
    joined = infix.node(this=left.node, expression=right.node)
    joined.meta.update(left.position, end=right.position["end"])
    return _Operand(joined, joined.meta)


LONG_CHAIN = 32
"""A chain of AND or OR with more operands than this becomes a balanced tree."""


class Expressions(Calls):
    """Grammar of expressions."""

    def expression(self) -> exp.Expression:
        """Parse an expression."""
        with self.nested():
            return self.binary(0)

    def operand(self) -> exp.Expression:
        """Parse an expression that has no AND, OR or comparison at its top: an operand of those."""
        with self.nested():
            return self.binary(SUM)

    def binary(self, power: int) -> exp.Expression:
        """Parse an operand and the operators after it whose binding power is at least `power`."""
        first = self.at
        left = self._prefix_operator()
        while True:
            key = self.key()
            if (chain := CHAINS.get(key)) and chain.power >= power:
                left = self._chain(key, chain, left, first)
            elif (infix := INFIX.get(key)) and infix.power >= power:
                self.at += 1
                if infix.power == COMPARE and self.key() in ("ANY", "SOME", "ALL") and self.key(1) == "(":
                    left = self._quantified_comparison(infix, left, first)
                    continue
                left = self.node(infix.node, first, this=left, expression=self.binary(infix.power + 1))
            else:
                predicate = {"IS": self._is, "OVERLAPS": self._overlaps}.get(key, self._range)
                found = predicate(left, first, power)
                if found is None:
                    return left
                left = found

    def _chain(self, key: str, infix: Infix, left: exp.Expression, first: int) -> exp.Expression:
        """Parse a chain of AND or OR.

        Operands in parentheses are flattened: conditions with the same meaning are equal trees.
        """
        operands = self._operands(infix, left, first)
        while self.accept(key):
            at = self.at
            operands += self._operands(infix, self.binary(infix.power + 1), at)
        return _join_all(infix, operands)

    def _quantified_comparison(self, infix: Infix, left: exp.Expression, first: int) -> exp.Expression:
        """Parse a comparison with ANY, SOME or ALL of the values of a query or a list.

        `= ANY` becomes IN and `<> ALL` becomes NOT IN. Other comparisons with a list become one
        comparison per value, joined with OR or AND.
        """
        every = self.take().text.upper() == "ALL"
        if (infix.node is exp.NEQ and every) or (infix.node is exp.EQ and not every):
            return self._negate_if(every, self._in(left, first), first)
        at = self.at
        self.expect("(")
        if self.starts_query():
            query = self.query()
            self.expect(")")
            values = self.node(exp.All if every else exp.Any, at, this=self.node(exp.Subquery, at, this=query))
            return self.node(infix.node, first, this=left, expression=values)
        listed = self.parse_list(self.expression)
        self.expect(")")
        position = self.set_position(exp.Var(), first).meta
        found = [self.node(infix.node, first, this=left.copy(), expression=each) for each in listed]
        return _join_all(CHAINS["AND" if every else "OR"], [_Operand(each, position) for each in found])

    def _operands(self, infix: Infix, node: exp.Expression, first: int) -> list[_Operand]:
        position = self.set_position(exp.Var(), first).meta
        if not isinstance(node, infix.node):
            return [_Operand(node, position)]
        found, stack = [], [node]
        while stack:
            each = stack.pop()
            if isinstance(each, infix.node):
                stack += [each.expression, each.this]
            else:
                found.append(_Operand(each, dict(each.meta)))
        return found

    def _is(self, left: exp.Expression, first: int, power: int) -> exp.Expression | None:
        negated = self.key(1) == "NOT"
        words = 2 if negated else 1
        if self.key(words) == "DISTINCT":
            if power > DISTINCT_FROM:
                return None
            self.at += words
            self.expect("DISTINCT", "FROM")
            node = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return self.node(node, first, this=left, expression=self.binary(DISTINCT_FROM + 1))
        if power > IS:
            return None
        self.at += words
        at = self.at
        found: exp.Expression
        match self.expect_one_of("NULL", "TRUE", "FALSE", "UNKNOWN", "JSON", "DISTINCT"):
            case "JSON":
                kind = self.one_of("VALUE", "SCALAR", "ARRAY", "OBJECT") or "VALUE"
                variant = self.node(exp.Var, at, this=kind)
                found = self.node(FunctionCall, first, this="IS_JSON", expressions=[left, variant], special=True)
            case "NULL":
                found = self.node(exp.Is, first, this=left, expression=self.node(exp.Null, at))
            case "UNKNOWN":
                found = self.node(exp.Is, first, this=left, expression=self.node(exp.Var, at, this="UNKNOWN"))
            case word:
                found = self.node(exp.Is, first, this=left, expression=self.node(exp.Boolean, at, this=word == "TRUE"))
        return self._negate_if(negated, found, first)

    def _negate_if(self, negated: bool, found: exp.Expression, first: int) -> exp.Expression:
        return self.node(exp.Not, first, this=found) if negated else found

    def _overlaps(self, left: exp.Expression, first: int, power: int) -> exp.Expression | None:
        """Parse OVERLAPS if a period follows; otherwise the word may be a name."""
        if power > COMPARE or self.key(1) not in ("(", "ROW", "PERIOD"):
            return None
        self.at += 1
        return self.node(exp.Overlaps, first, this=left, expression=self.binary(COMPARE + 1))

    def _range(self, left: exp.Expression, first: int, power: int) -> exp.Expression | None:
        negated = self.key() == "NOT"
        word = self.key(1) if negated else self.key()
        if power > RANGE or word not in ("BETWEEN", "IN", "LIKE", "SIMILAR"):
            return None
        self.at += 2 if negated else 1
        found: exp.Expression
        match word:
            case "BETWEEN":
                symmetric = self.one_of("SYMMETRIC", "ASYMMETRIC") == "SYMMETRIC"
                low = self.binary(RANGE + 1)
                self.expect("AND")
                found = self.node(
                    exp.Between, first, this=left, low=low, high=self.binary(RANGE + 1), symmetric=symmetric
                )
            case "IN":
                found = self._in(left, first)
            case _:
                if word == "SIMILAR":
                    self.expect("TO")
                node = exp.Like if word == "LIKE" else exp.SimilarTo
                found = self.node(node, first, this=left, expression=self.binary(RANGE + 1))
                if self.accept("ESCAPE"):
                    found = self.node(exp.Escape, first, this=found, expression=self.binary(RANGE + 1))
        return self._negate_if(negated, found, first)

    def _in(self, left: exp.Expression, first: int) -> exp.Expression:
        at = self.at
        self.expect("(")
        if self.starts_query():
            query = self.query()
            self.expect(")")
            return self.node(exp.In, first, this=left, query=self.node(exp.Subquery, at, this=query))
        found = self.parse_list(self.expression)
        self.expect(")")
        return self.node(exp.In, first, this=left, expressions=found)

    # --- operands ---------------------------------------------------------------------------------

    def _prefix_operator(self) -> exp.Expression:
        first = self.at
        word = self.one_of("-", "+", "NOT")
        if word is None:
            return self._postfix_operators(self.primary(), first)
        with self.nested():
            operand = self.binary(NOT if word == "NOT" else SIGN)
        if word == "+":
            return operand
        return self.node(exp.Not if word == "NOT" else exp.Neg, first, this=operand)

    def _postfix_operators(self, found: exp.Expression, first: int) -> exp.Expression:
        while True:
            if self.accept("["):
                index = self.expression()
                self.expect("]")
                found = self.node(FunctionCall, first, this="ITEM", expressions=[found, index], special=True)
            elif self.accept("."):
                found = self.node(FieldAccess, first, this=found, field=self.identifier("a field's name", frozenset()))
            else:
                return found

    def primary(self) -> exp.Expression:
        """Parse an operand: a literal, a name, a call, or an expression in parentheses."""
        first, key = self.at, self.key()
        match self.kind():
            case TokenType.NUMBER:
                return self.node(exp.Literal, first, first, this=_number(self.take().text), is_string=False)
            case TokenType.STRING:
                return self.node(exp.Literal, first, this=self._string_literal(), is_string=True)
            case TokenType.UNICODE_STRING:
                return self._unicode()
            case TokenType.HEX_STRING:
                return self._hex()
            case TokenType.L_PAREN:
                return self._parenthesized()
            case TokenType.VAR:
                return self._word(key)
            case TokenType.IDENTIFIER:
                return self._name_or_call()
            case _:
                raise self.expected_error("an expression")

    def _word(self, key: str) -> exp.Expression:
        first = self.at
        after, kind = self.key(1), self.kind(1)
        match key:
            case "NULL":
                self.at += 1
                return self.node(exp.Null, first)
            case "TRUE" | "FALSE":
                self.at += 1
                return self.node(exp.Boolean, first, this=key == "TRUE")
            case "DATE" | "TIME" | "TIMESTAMP" if kind is TokenType.STRING:
                return self._temporal(key)
            case "INTERVAL" if kind in (TokenType.STRING, TokenType.NUMBER):
                return self._interval()
            case "INTERVAL" if (
                after in ("-", "+") and self.kind(2) in (TokenType.STRING, TokenType.NUMBER) and self.key(3) in UNITS
            ):
                return self._interval()
            case "INTERVAL" if kind is TokenType.VAR and self.key(2) in UNITS:
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
                return self.node(exp.Exists, first, this=self.parenthesized_query())
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
                spelled = self.take().text
                self.accept("(", ")")
                made = self.node(FunctionCall, first, this=key, expressions=[], special=True)
                made.meta["spelled"] = spelled
                return made
        if key in (NOT_A_FUNCTION if after == "(" else NOT_A_NAME):
            raise self.expected_error("an expression")
        return self._name_or_call()

    def _name_or_call(self) -> exp.Expression:
        first = self.at
        parts = [self.identifier("a name", NOT_A_FUNCTION)]
        while self.key() == "." and self.key(1) != "*":
            self.at += 1
            parts.append(self.identifier("a name after the dot", frozenset()))
        if self.key() == "(":
            return self.call(parts, first)
        return self.node(ColumnPath, first, parts=parts)

    def _parenthesized(self) -> exp.Expression:
        first = self.at
        if self.starts_query(1):
            query = self.parenthesized_query()
            return self.node(exp.Subquery, first, this=query)
        found = self.parse_enclosed_list(self.expression)
        return found[0] if len(found) == 1 else self.node(exp.Tuple, first, expressions=found)

    def _case(self) -> exp.Expression:
        first = self.at
        self.expect("CASE")
        operand = None if self.key() == "WHEN" else self.expression()
        branches: list[exp.Expression] = []
        while not branches or self.key() == "WHEN":
            at = self.at
            self.expect("WHEN")
            condition = self.expression()
            self.expect("THEN")
            branches.append(self.node(exp.If, at, this=condition, true=self.expression()))
        default = self.expression() if self.accept("ELSE") else None
        self.expect("END")
        return self.node(exp.Case, first, this=operand, ifs=branches, default=default)

    def _collection(self, key: str) -> exp.Expression:
        first = self.at
        self.at += 2
        values = [] if self.key() == "]" else self.parse_list(self.expression)
        if key == "MAP" and len(values) % 2:
            raise self.expected_error("`,` and the value of the last key")
        self.expect("]")
        return self.node(FunctionCall, first, this=key, expressions=values, special=True)

    # --- literals ---------------------------------------------------------------------------------

    def _string_literal(self) -> str:
        """Parse a string literal and its continuation literals on following lines."""
        token = self.take()
        whole = token.text
        while not self.is_at_end and self.kind() is TokenType.STRING and self.tokens[self.at].line > token.line:
            token = self.take()
            whole += token.text
        return whole

    def _unicode(self) -> exp.Expression:
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
        return self.node(exp.Literal, first, this=decoded, is_string=True)

    def _hex(self) -> exp.Expression:
        digits = self.take().text.upper()
        if len(digits) % 2 or any(digit not in "0123456789ABCDEF" for digit in digits):
            raise SqlError.of("wrong-literal", "expected pairs of hex digits", self.span(self.at - 1))
        return self.node(exp.HexString, self.at - 1, this=digits)

    def _temporal(self, kind: str) -> exp.Expression:
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
        return self.node(TemporalLiteral, first, this=text, kind=kind, precision=precision)

    def _interval(self) -> exp.Expression:
        first = self.at
        self.expect("INTERVAL")
        sign = self.one_of("-", "+")
        text = self.take().text.strip()
        if sign == "-":
            text = text[1:].lstrip() if text.startswith("-") else "-" + text.removeprefix("+")
        unit, last = self.interval_unit(), None
        if self.accept("TO"):
            last = self.interval_unit()
        if not interval_units(unit, last):
            raise SqlError.of("wrong-literal", f"there is no INTERVAL {unit} TO {last}", self.span(first))
        made = self.node(IntervalLiteral, first, this=text, unit=unit, last=None if last == unit else last)
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
