"""Lay out a statement: what fits is in one line; a query has a line for each clause.

A clause, a list or a condition that does not fit is broken at its commas, or before its ANDs and
ORs. Comments stay where they are: those in their own lines before the next word, those at the end
of a line after the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everfold.sql.dialects.tokens import TokenKind
from everfold.sql.formatting.pieces import Group, Item, Piece, first_piece, keys_of, list_pieces

WIDTH = 88
"""Longest line that is not broken, in characters."""
INDENT = 2

_SPACED = frozenset({
    "IN", "VALUES", "AS", "OVER", "FILTER", "GROUP", "USING", "WITH", "BY", "AND", "OR", "NOT", "WHERE", "HAVING", "ON",
    "WHEN", "THEN", "ELSE", "CASE", "EXISTS", "FROM", "JOIN", "SELECT", "DISTINCT", "ALL", "ANY", "SOME", "SETS", "KEY",
    "FORMAT", "UNION", "EXCEPT", "INTERSECT", "LIKE", "BETWEEN", "IS", "LATERAL", "STREAM", "TABLE", "QUALIFY",
    "ROLLUP", "CUBE", "INTERVAL", "EXPLAIN", "PLAN", "FOR", "CHANGELOG_MODE", "ESTIMATED_COST", "JSON_EXECUTION_PLAN",
    "PLAN_ADVICE",
})  # fmt: skip
"""Keywords with a space between them and a parenthesis."""
_BARE_BEFORE_PARENTHESIS = {("LATERAL", "TABLE"), ("FROM", "TABLE"), ("JOIN", "TABLE"), (",", "TABLE")}
_EXPLAINED = ("SELECT", "WITH", "VALUES", "INSERT", "CREATE")
"""First words of what EXPLAIN and EXECUTE contain, except a statement set."""
_LISTS = ("SELECT", "GROUP", "ORDER", "PARTITION", "VALUES", "WITH", "WINDOW", "FROM")
"""First words of clauses that are lists."""
_CONDITIONS = ("WHERE", "HAVING", "QUALIFY", "ON")
_SIMPLE = ("HAVING", "WHERE", "QUALIFY", "LIMIT", "OFFSET", "FETCH", "UNION", "EXCEPT", "INTERSECT", "SELECT", "FROM")
"""Words that begin a clause in any case."""
_PAIRS = {
    "GROUP": ("BY",), "ORDER": ("BY",), "EVENTTIME": ("BY",), "GRACE": ("BY",), "PARTITION": ("BY",),
    "CROSS": ("JOIN",), "INNER": ("JOIN",), "LEFT": ("JOIN", "OUTER"), "RIGHT": ("JOIN", "OUTER"),
    "FULL": ("JOIN", "OUTER"), "NATURAL": ("JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS"),
}  # fmt: skip
"""Words that begin a clause if one of these words comes next."""
_JOIN_WORDS = ("NATURAL", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "OUTER")


class Layout:
    """Writes pieces into lines."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self._before: list[Piece] = []
        self._needs_line = False

    # --- statements -------------------------------------------------------------------------------

    def statement(self, items: Sequence[Item], indent: int = 0) -> None:
        """Write a statement."""
        keys = keys_of(items)
        match keys[:1]:
            case ["SELECT" | "WITH" | "VALUES" | "("]:
                self._query(items, indent)
            case ["INSERT"]:
                at = next((n for n, key in enumerate(keys) if key in ("SELECT", "WITH", "VALUES")), None)
                at = self._parenthesized_query(items) if at is None else at
                self._head(items, at, indent)
            case ["CREATE"]:
                self._create(items, keys, indent)
            case ["EXPLAIN" | "EXECUTE" | "BEGIN"]:
                self._prefixed(items, keys, indent)
            case _:
                self._run(items, indent)

    def _parenthesized_query(self, items: Sequence[Item]) -> int | None:
        return next((at for at, each in enumerate(items) if isinstance(each, Group) and each.is_query), None)

    def _head(self, items: Sequence[Item], at: int | None, indent: int) -> None:
        """Write the words before a query in one line, and the query below."""
        if at is None:
            self._query(items, indent)
            return
        self._run(items[:at], indent)
        if at:
            self._line(indent)
        self._query(items[at:], indent)

    def _create(self, items: Sequence[Item], keys: list[str], indent: int) -> None:
        starts = (at + 1 for at, key in enumerate(keys[:-1]) if key == "AS" and self._starts_query(items[at + 1]))
        at = next(starts, None)
        definition = items[:at]
        if self._fits(definition, indent):
            self._run(definition, indent)
        else:
            for each in definition:
                if isinstance(each, Group) and each.opening.key == "(":
                    self._broken(each, indent)
                else:
                    self._item(each, indent)
        if at is not None:
            self._line(indent)
            self._query(items[at:], indent)

    @staticmethod
    def _starts_query(item: Item) -> bool:
        return item.is_query if isinstance(item, Group) else item.key in ("SELECT", "WITH", "VALUES")

    def _prefixed(self, items: Sequence[Item], keys: list[str], indent: int) -> None:
        """Write EXPLAIN with its statement, or a statement set."""
        if "BEGIN" not in keys:
            at = next((n for n, key in enumerate(keys) if key in _EXPLAINED), len(keys))
            self._run(items[:at], indent)
            if at < len(keys):
                self._line(indent)
                self.statement(items[at:], indent)
            return
        first = keys.index("INSERT")
        last = len(keys) - 1 - keys[::-1].index("END")
        words = self._split_set_head(items[:first])
        for at, part in enumerate(words):
            if at:
                self._line(indent)
            self._run(part, indent)
        for part in _split(items[first:last], ";"):
            self._line(indent + INDENT)
            self.statement(part, indent + INDENT)
        self._line(indent)
        self._run(items[last:], indent)

    @staticmethod
    def _split_set_head(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        """Yield EXECUTE STATEMENT SET and BEGIN, or BEGIN STATEMENT SET; in one line."""
        keys = keys_of(items)
        if keys[-1:] == ["BEGIN"]:
            yield items[:-1]
            yield items[-1:]
        else:
            yield items

    # --- queries ----------------------------------------------------------------------------------

    def _query(self, items: Sequence[Item], indent: int) -> None:
        """Write each clause in a line of its own."""
        for at, clause in enumerate(_split_clauses(items)):
            if at:
                self._line(indent)
            self._clause(clause, indent)

    def _clause(self, items: Sequence[Item], indent: int) -> None:
        if self._fits(items, indent):
            self._run(items, indent)
            return
        keys = keys_of(items)
        size = _head_size(keys)
        head, body = items[:size], items[size:]
        if keys[0] in _CONDITIONS:
            self._run(head, indent)
            self._condition(body, indent)
        elif keys[0] in _LISTS:
            self._list_clause(head, body, indent)
        elif "ON" in keys:
            at = keys.index("ON")
            self._run(items[:at], indent)
            self._line(indent + INDENT)
            self._clause(items[at:], indent + INDENT)
        else:
            self._run(items, indent)

    def _list_clause(self, head: Sequence[Item], body: Sequence[Item], indent: int) -> None:
        elements = list(_split(body, ","))
        self._run(head, indent)
        first = first_piece(head[0]).key
        if first == "WITH" and self._has_query(body):
            for at, each in enumerate(elements):
                if at:
                    self._line(indent)
                self._run(each, indent)
            return
        if not body or (len(elements) == 1 and not first_piece(body[0]).comments):
            self._element(body, indent)
            return
        for each in elements:
            self._line(indent + INDENT)
            self._element(each, indent + INDENT)

    @staticmethod
    def _has_query(items: Sequence[Item]) -> bool:
        return any(isinstance(each, Group) and each.is_query for each in items)

    def _element(self, items: Sequence[Item], indent: int) -> None:
        """Write an element of a list, broken inside if it does not fit."""
        if self._fits(items, indent):
            self._run(items, indent)
            return
        keys = keys_of(items)
        if "CASE" in keys:
            self._case(items, indent)
        elif "AND" in keys or "OR" in keys:
            self._condition(items, indent)
        else:
            self._run(items, indent)

    def _case(self, items: Sequence[Item], indent: int) -> None:
        """Write CASE with a line for each WHEN."""
        depth = 0
        for each in items:
            key = first_piece(each).key
            depth += key == "CASE"
            if key in ("WHEN", "ELSE") and depth:
                self._line(indent + INDENT * depth)
            elif key == "END" and depth:
                depth -= 1
                self._line(indent + INDENT * depth)
            self._item(each, indent + INDENT * depth)

    def _condition(self, items: Sequence[Item], indent: int, deeper: int = INDENT) -> None:
        """Write a condition with a line for each AND and OR, which are indented by `deeper`."""
        between = case = inner = 0
        for each in items:
            key = each.key if isinstance(each, Piece) else ""
            case += (key == "CASE") - (key == "END")
            if key == "BETWEEN":
                between += 1
            elif key == "AND" and between:
                between -= 1
            elif key in ("AND", "OR") and not case:
                inner = deeper
                self._line(indent + inner)
            self._item(each, indent + inner)

    # --- brackets and words -----------------------------------------------------------------------

    def _run(self, items: Sequence[Item], indent: int) -> None:
        for each in items:
            self._item(each, indent)

    def _item(self, item: Item, indent: int) -> None:
        if isinstance(item, Piece):
            self._piece(item, indent)
        elif item.is_query:
            self._piece(item.opening, indent)
            self._line(indent + INDENT)
            self._query(item.items, indent + INDENT)
            self._line(indent)
            self._piece(item.closing, indent)
        elif item.opening.key == "(" and not self._fits([item], len(self.lines[-1])):
            self._broken(item, indent)
        else:
            self._piece(item.opening, indent)
            self._run(item.items, indent)
            self._piece(item.closing, indent)

    def _broken(self, group: Group, indent: int) -> None:
        """Write brackets with a line for each element."""
        self._piece(group.opening, indent)
        if group.items and group.keys[0] in ("PARTITION", "ORDER", "ROWS", "RANGE"):
            self._line(indent + INDENT)
            self._query(group.items, indent + INDENT)
        else:
            elements = list(_split(group.items, ","))
            for each in elements:
                self._line(indent + INDENT)
                if len(elements) == 1 and {"AND", "OR"} & {*group.keys} and "CASE" not in group.keys:
                    self._condition(each, indent + INDENT, 0)
                else:
                    self._element(each, indent + INDENT)
        self._line(indent)
        self._piece(group.closing, indent)

    def _piece(self, piece: Piece, indent: int) -> None:
        comments = [each for each in piece.comments if each]
        if comments and self._before:
            self._line(indent)
        for each in comments if self._before else piece.comments:
            self._append(each, indent)
            self._new_line(indent)
        if self._needs_line or (self._before and piece.kind is self._before[-1].kind is TokenKind.STRING):
            self._line(indent + INDENT)
        if self.lines[-1].strip() and needs_space(self._before, piece):
            self.lines[-1] += " "
        self._append(piece.text, indent)
        self._before.append(piece)
        self.write_notes(piece, indent)

    def write_notes(self, piece: Piece, indent: int) -> None:
        """Write the comments after a piece."""
        for note in piece.notes:
            self.lines[-1] += " "
            self._append(note, indent)
            self._needs_line = not note.startswith("/*")

    def _append(self, text: str, indent: int) -> None:
        if not self.lines[-1]:
            self.lines[-1] = " " * indent
        first, *others = text.split("\n")
        self.lines[-1] += first
        self.lines += others

    def _line(self, indent: int) -> None:
        """Begin a line, unless one has begun."""
        if self.lines[-1].strip():
            self._new_line(indent)
        else:
            self.lines[-1] = " " * indent
        self._needs_line = False

    def _new_line(self, indent: int) -> None:
        self.lines[-1] = self.lines[-1].rstrip()
        self.lines.append(" " * indent)
        self._needs_line = False

    # --- measuring --------------------------------------------------------------------------------

    def _fits(self, items: Sequence[Item], indent: int) -> bool:
        """Return whether items can be written in the rest of the line."""
        if self._needs_line:
            return False
        length, before = max(indent, len(self.lines[-1])), list(self._before[-2:])
        pieces = list(list_pieces(items))
        for at, piece in enumerate(pieces):
            if (piece.comments and at) or (piece.notes and at < len(pieces) - 1) or "\n" in piece.text:
                return False
            if at and piece.kind is pieces[at - 1].kind is TokenKind.STRING:
                return False
            length += len(piece.text) + needs_space(before, piece)
            before.append(piece)
        return length <= WIDTH and not any(_contains_query(each) for each in items)


def _contains_query(item: Item) -> bool:
    return isinstance(item, Group) and (item.is_query or any(map(_contains_query, item.items)))


def _split(items: Sequence[Item], key: str) -> Iterator[list[Item]]:
    """Yield the parts between separators, each with the separator after it."""
    part: list[Item] = []
    for each in items:
        part.append(each)
        if isinstance(each, Piece) and each.key == key:
            yield part
            part = []
    if part:
        yield part


def _split_clauses(items: Sequence[Item]) -> Iterator[list[Item]]:
    part: list[Item] = []
    keys = keys_of(items)
    for at, each in enumerate(items):
        before = keys[at - 1] if at else ""
        if isinstance(each, Piece):
            begins = _begins_clause(keys, at, before)
        else:
            begins = each.is_query and before in ("ALL", "DISTINCT", "UNION", "EXCEPT", "INTERSECT")
        if part and begins:
            yield part
            part = []
        part.append(each)
    if part:
        yield part


def _begins_clause(keys: Sequence[str], at: int, before: str) -> bool:
    key, after = keys[at], keys[at + 1] if at + 1 < len(keys) else ""
    match key:
        case "JOIN":
            return before not in _JOIN_WORDS
        case "WINDOW":
            return after == "BY" or (at + 2 < len(keys) and keys[at + 2] == "AS")
        case "GROUP":
            return before != "WITHIN" and after == "BY"
        case "VALUES":
            return True
        case "ROWS" | "RANGE":
            return after in ("BETWEEN", "UNBOUNDED", "CURRENT", "") and before != "OFFSET"
        case _ if key in _PAIRS:
            return after in _PAIRS[key] and before not in _JOIN_WORDS
        case _:
            return key in _SIMPLE


def _head_size(keys: Sequence[str]) -> int:
    """Return how many words a clause begins with."""
    if len(keys) > 1 and keys[1] in ("BY", "DISTINCT", "ALL", "STREAM", "TABLE") and keys[0] != "FROM":
        return 2
    return 1


def needs_space(before: Sequence[Piece], piece: Piece) -> bool:
    """Return whether a space separates a piece from those before it."""
    if not before:
        return False
    last, key = before[-1], piece.key
    if last.key in ("(", "[", ".") or key in (",", ";", ")", "]", "."):
        return False
    if (last.key == "<" and _is_type_bracket(before)) or (key in "<>" and key and _in_type(before, key)):
        return False
    if key == "[":
        return not (last.is_operand or last.key in ("ARRAY", "MAP"))
    if key == "(":
        return _needs_space_before_parenthesis(before)
    if last.key in ("-", "+") and _is_sign(before):
        return key in ("-", "+")
    return True


def _needs_space_before_parenthesis(before: Sequence[Piece]) -> bool:
    last = before[-1]
    if last.is_function or last.key == "*/":
        return last.key == "*/"
    if len(before) > 1 and (before[-2].key, last.key) in _BARE_BEFORE_PARENTHESIS:
        return False
    if last.kind is TokenKind.SYMBOL:
        return last.key not in ("(", ">")
    if not last.key:
        keyword = next((each.key for each in reversed(before) if each.key not in ("", ".")), "")
        return keyword in ("INTO", "TABLE", "VIEW", "EXISTS", "OVERWRITE") or last.kind in _VALUES
    return last.key in _SPACED


_VALUES = (TokenKind.STRING, TokenKind.NUMBER)


def _is_sign(before: Sequence[Piece]) -> bool:
    """Return whether the last piece is a sign, not an operator between two values."""
    return len(before) < 2 or not before[-2].is_operand


def _is_type_bracket(before: Sequence[Piece]) -> bool:
    return len(before) > 1 and before[-2].key in ("ARRAY", "MAP", "ROW", "MULTISET")


def _in_type(before: Sequence[Piece], key: str) -> bool:
    """Return whether an angle bracket belongs to a type."""
    if key == "<":
        return before[-1].key in ("ARRAY", "MAP", "ROW", "MULTISET")
    opened = 0
    for at in range(len(before) - 1, -1, -1):
        if before[at].key == ">":
            opened += 1
        elif before[at].key == "<" and at and before[at - 1].key in ("ARRAY", "MAP", "ROW", "MULTISET"):
            if not opened:
                return True
            opened -= 1
        elif before[at].key in ("SELECT", "WHERE", ";", "AND", "OR", "CAST"):
            return False
    return False
