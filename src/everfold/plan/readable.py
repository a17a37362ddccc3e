"""Convert canonical texts (`canonical.py`) to readable, SQL-like ones."""

from __future__ import annotations

import re
from ast import literal_eval

from everfold.plan.explain import INFIX
from everfold.plan.windows import duration

_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U000[0-9a-f]{5}|U0010[0-9a-f]{4})"
_STRING = re.compile(rf"'(?:[^'\\\n]|{_ESCAPE})*'|\"(?:[^\"\\\n]|{_ESCAPE})*\"")
"""A string as `repr` writes it: a name with quotes of its own may look like another one."""
_TYPE = re.compile(r":[A-Z][A-Z_ ]*$")
_LITERAL = re.compile(r"(\S+):(?:[A-Z][A-Z_ ]*(?:\([\d, ]*\)[A-Z_ ]*)*)$")
_INTERVAL = re.compile(r"(-?\d+):INTERVAL (YEAR|MONTH)?.*$")
_WORDS = {"None": "NULL", "True": "TRUE", "False": "FALSE"}


def format_canonical_text(text: str) -> str:
    """Return the text in a form close to SQL: `+(t.x, 1:INT)` becomes `t.x + 1`.

    A text that cannot be parsed, because its names contain special characters, is returned
    unchanged.
    """
    reader = _Reader(text)
    sql, _ = reader.expression(outermost=True)
    return sql if reader.at == len(text) and not reader.is_malformed else text


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.is_malformed = text, 0, False

    def expression(self, *, outermost: bool = False) -> tuple[str, bool]:
        """Parse up to the next comma or closing parenthesis.

        Return the SQL and whether its outermost part is an operator.
        """
        sql, infix = "", False
        while self.at < len(self.text):
            sign = self.text[self.at]
            string = _STRING.match(self.text, self.at)
            if sign in ",)" and not outermost:
                break
            if string is not None:
                self.at = string.end()
                sql += "'" + literal_eval(string.group()).replace("'", "''") + "'"
            elif sign == "(" and _TYPE.search(sql):
                end = self.text.find(")", self.at) + 1
                self.is_malformed |= not end
                sql += self.text[self.at : end]
                self.at = end or len(self.text)
            elif sign == "(":
                sql, infix = _format_call(sql, self._arguments())
            else:
                sql += sign
                self.at += 1
        return _format_literal(sql), infix

    def _arguments(self) -> list[tuple[str, bool]]:
        found: list[tuple[str, bool]] = []
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != ")":
            found.append(self.expression())
            if self.text.startswith(",", self.at):
                self.at += 2 if self.text.startswith(", ", self.at) else 1
        self.is_malformed |= self.at >= len(self.text)
        self.at += 1
        return found


def _format_call(before: str, arguments: list[tuple[str, bool]]) -> tuple[str, bool]:
    """Return a function call in SQL. A prefix before the function's name is kept."""
    args = [text for text, _ in arguments]
    operands = [f"({text})" if infix else text for text, infix in arguments]
    for operator in INFIX:
        if len(args) >= 2 and (before == operator or before.endswith(f" {operator}")):
            return before.removesuffix(operator) + f" {operator} ".join(operands), True
    function = before.rpartition(" ")[2]
    rest = before.removesuffix(function)
    match function, args:
        case "SHIFT", [_, by]:
            sign, amount = ("-", by[1:]) if by.startswith("-") else ("+", by)
            return f"{rest}{operands[0]} {sign} {amount}", True
        case "FIELD", [value, name]:
            return f"{rest}{value}.{name[1:-1]}", False
        case "ITEM", [value, index]:
            return f"{rest}{value}[{index}]", False
        case "UNARY_MINUS", [_]:
            return f"{rest}-{operands[0]}", True
        case "COUNT", []:
            return f"{before}(*)", False
        case "IN", [_, *values]:
            return f"{rest}{operands[0]} IN ({', '.join(values)})", True
        case "NOT", [condition] if condition.endswith(" IS NULL"):
            return f"{rest}{condition.removesuffix('NULL')}NOT NULL", True
        case "NOT", [condition]:
            return f"{before} {operands[0]}", True
        case "CASE", [*_, otherwise]:
            cases = "".join(f" WHEN {args[at]} THEN {args[at + 1]}" for at in range(0, len(args) - 1, 2))
            return f"{before}{cases}{'' if otherwise == 'NULL' else f' ELSE {otherwise}'} END", False
        case "", [condition] if before.endswith(" FILTER "):
            return f"{before}(WHERE {condition})", False
    postfix = re.search(r"(?:^| )(IS [A-Z ]+)$", before)
    if postfix is not None and len(args) == 1:
        return f"{before.removesuffix(postfix.group(1))}{operands[0]} {postfix.group(1)}", True
    return f"{before}({', '.join(args)})", False


def _format_literal(text: str) -> str:
    """Return a literal without its type."""
    interval = _INTERVAL.match(text)
    if interval is not None:
        amount = int(interval.group(1))
        length = f"{abs(amount)} MONTH" if interval.group(2) else duration(abs(amount))
        return f"{'-' if amount < 0 else ''}INTERVAL {length}"
    literal = _LITERAL.search(text)
    if literal is None:
        return text
    value = literal.group(1)
    return text[: literal.start()] + _WORDS.get(value, value)
