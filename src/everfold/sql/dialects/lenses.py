"""Lenses SQL in streaming mode: the grammar of its statements, and their trees.

Expressions, tokens and types are those of Flink SQL; `lenses_names.py` has the differences.

| statement | tree |
| --- | --- |
| `INSERT INTO t SELECT …` | `Insert` whose query is a `TopicQuery`; several in a script are one `StatementSet`, at the position of the last |
| `WITH name AS (SELECT …);` | a temporary `CreateView` of a `TopicQuery` |
| `SELECT …` | `Query` |
| `CREATE TABLE t (…) FORMAT (key, value)` | `CreateTopic`: a column `_key`, the fields of the value, the metadata columns `_meta.…` |
| `SET a.b = c` | `SetOption` |

`SELECT`, and `STREAM` or `TABLE`, are optional in a query.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from everfold import types
from everfold.errors import EverfoldError, SqlError, UnsupportedFeature, suggest_name
from everfold.plan.topic_storage import PRIMITIVES, STRUCTURES
from everfold.sql import syntax
from everfold.sql.dialects.lenses_columns import FieldDef, build_topic_columns
from everfold.sql.dialects.lenses_names import Names
from everfold.sql.dialects.token_stream import MAX_NESTING, too_deep_error
from everfold.sql.dialects.tokens import Part, TokenKind
from everfold.sql.statements import (
    CreateTopic,
    CreateView,
    Explain,
    Insert,
    OptionDef,
    Query,
    SetOption,
    Statement,
    StatementSet,
)
from everfold.types import DataType

_STARTS = ("INSERT", "WITH", "SELECT", "CREATE", "SET", "EXPLAIN")
_KINDS = ("STREAM", "TABLE")
_JOINS = ("INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "NATURAL", "JOIN")
_WINDOWS = {"TUMBLE": ("the size",), "HOP": ("the size", "the hop"), "SESSION": ("the gap",)}


def parse_statements(text: str, source: str = "<sql>", part: Part | None = None) -> tuple[Statement, ...]:
    """Parse the statements of a script or of a part of it."""
    grammar = LensesGrammar(text, source, part)
    try:
        return grammar.script()
    except RecursionError:
        raise too_deep_error(grammar.here(), MAX_NESTING) from None


class LensesGrammar(Names):
    """Grammar of a script."""

    def script(self) -> tuple[Statement, ...]:
        """Parse all statements, without empty ones."""
        found: list[Statement] = []
        while not self.is_at_end:
            if self.accept(";"):
                continue
            found.append(self._statement())
            if not self.is_at_end and self.key() != ";":
                raise self._trailing_token_error()
        return _combine_inserts(found)

    def _trailing_token_error(self) -> EverfoldError:
        if self.key() in (*_JOINS, ","):
            first = self.at
            while self.one_of(*_JOINS, ","):
                pass
            help_text = "join in Flink SQL: SET 'everfold.dialect' = 'flink' switches within a script"
            message = "joins are not supported in Lenses SQL"
            return UnsupportedFeature.of("unsupported-clause", message, self.span(first), help_text)
        if self.key() in ("LATERAL", "LIMIT", "UNION", "ORDER"):
            self.at += 1
            return self.unsupported_error("unsupported-clause", self.keys[self.at - 1], self.at - 1, "leave it out")
        return self.expected_error("`;` or the rest of the statement")

    def _statement(self) -> Statement:
        match self.key():
            case "INSERT":
                return self._insert()
            case "WITH":
                return self._with()
            case "SELECT":
                return self._query()
            case "CREATE":
                return self._create()
            case "SET":
                return self._set()
            case "EXPLAIN":
                first = self.at
                self.at += 1
                statement = self._insert() if self.key() == "INSERT" else self._query()
                return Explain(statement=statement, span=self.span(first))
            case _ if self._sees_projections():
                return self._query()
            case word:
                known = f"statements begin with {', '.join(_STARTS[:-1])} or {_STARTS[-1]}"
                raise self.expected_error("a statement", (suggest_name(word, _STARTS) or known) if word else None)

    # --- INSERT, WITH -----------------------------------------------------------------------------

    def _insert(self) -> Insert:
        first = self.at
        self.expect("INSERT", "INTO")
        target, target_span = self.topic()
        query, text = self._whole_query()
        return Insert(target=(target.name,), query=query, text=text, target_span=target_span, span=self.span(first))

    def _with(self) -> CreateView:
        first = self.at
        self.expect("WITH")
        name, name_span = self.topic("a source")
        self.expect("AS", "(")
        query, text = self._whole_query()
        self.expect(")")
        return CreateView(
            name=(name.name,), query=query, text=text, temporary=True, name_span=name_span, span=self.span(first)
        )

    def _query(self) -> Query:
        first = self.at
        query, text = self._whole_query()
        return Query(query=query, text=text, span=self.span(first))

    # --- SELECT -----------------------------------------------------------------------------------

    def _whole_query(self) -> tuple[syntax.TopicQuery, str]:
        """Parse a query, which may begin with its projections; return its tree and text."""
        first = self.at
        self.accept("SELECT")
        kind = self.one_of(*_KINDS) if self._sees_kind() else None
        self._look_ahead_source()
        items = self._projections()
        self.expect("FROM")
        source, _ = self.topic()
        query = syntax.TopicQuery(
            kind,
            items,
            source,
            alias=self._alias(),
            eventtime=self._time_field() if self.accept("EVENTTIME", "BY") else None,
            where=self.expression() if self.accept("WHERE") else None,
            window=self._window_by(),
            group=self.parse_list(self._group_key) if self.accept("GROUP", "BY") else (),
            having=self.expression() if self.accept("HAVING") else None,
            span=self.span(first),
        )
        return self.check_size(query), self.slice(first)

    def _sees_kind(self) -> bool:
        """Return whether STREAM or TABLE comes next, and not a field of that name."""
        return self.key() in _KINDS and self.key(1) not in (",", ".", "AS", "FROM")

    def _sees_projections(self) -> bool:
        """Return whether an aggregation comes next that begins with its projections."""
        end = self.keys.index(";", self.at) if ";" in self.keys[self.at :] else len(self.keys)
        keys = self.keys[self.at : end]
        has_clauses = "FROM" in keys and any(pair == ("GROUP", "BY") for pair in pairwise(keys))
        return has_clauses and (self.key(1) in ("(", ",", ".", "AS") or suggest_name(self.key(), _STARTS) is None)

    def _look_ahead_source(self) -> None:
        """Look ahead to the source and alias in FROM, so that projections can be parsed."""
        first, depth = self.at, 0
        while not self.is_at_end and (depth or self.key() not in ("FROM", ";") or self._continues_source_name()):
            depth += (self.key() == "(") - (self.key() == ")")
            self.at += 1
        names = [self.topic()[0], self._alias()] if self.accept("FROM") else []
        self.at = first
        self.sources = tuple(each.name for each in names if each is not None and ("-" in each.name or "." in each.name))

    def _continues_source_name(self) -> bool:
        """Return whether `FROM` comes next and is the start of a name with `-` or `.`."""
        return self.key() == "FROM" and self.name_continues()

    def _alias(self) -> syntax.Identifier | None:
        return self.identifier("the source's alias") if self.accept("AS") else None

    def _projections(self) -> tuple[syntax.Projection, ...]:
        found = [self._projection()]
        while self.accept(","):
            if self.key() == "FROM":
                break
            found.append(self._projection())
        return tuple(found)

    def _projection(self) -> syntax.Projection:
        first = self.at
        if self.accept("*"):
            span = self.span(first)
            return syntax.Projection(syntax.Star(span=span), span=span)
        value = self.expression()
        target = self.path("the name of a field") if self.accept("AS") else None
        return syntax.Projection(value, target, span=self.span(first))

    def _time_field(self) -> syntax.ColumnPath:
        found = self.primary()
        if not isinstance(found, syntax.ColumnPath):
            raise self.expected_error("a field after EVENTTIME BY", "compute the expression in a WITH first")
        return found

    def _group_key(self) -> syntax.GroupKey:
        first = self.at
        value = self.expression()
        alias = self.identifier("the name of a field of the key") if self.accept("AS") else None
        return syntax.GroupKey(value, alias, span=self.span(first))

    def _window_by(self) -> syntax.WindowBy | None:
        """Parse WINDOW BY if it comes next."""
        first = self.at
        if self.sees("GRACE", "BY"):
            raise self.expected_error("WINDOW BY before GRACE BY", "write WINDOW BY TUMBLE 1h GRACE BY 10m")
        if not self.accept("WINDOW"):
            return None
        self.expect("BY")
        kind = self.expect_one_of(*_WINDOWS)
        sizes: list[syntax.Duration] = []
        for what in _WINDOWS[kind]:
            if sizes:
                self.accept(",")
            sizes.append(self.duration(f"{what} of {kind}"))
        grace = self.duration("the grace period") if self.accept("GRACE", "BY") else None
        return syntax.WindowBy(kind, tuple(sizes), grace, span=self.span(first))

    # --- CREATE TABLE -----------------------------------------------------------------------------

    def _create(self) -> CreateTopic:
        first = self.at
        self.expect("CREATE", "TABLE")
        name, name_span = self.topic()
        fields = self.parse_enclosed_list(self._field_def)
        self.expect("FORMAT", "(")
        key = self._format("key.format")
        self.expect(",")
        value = self._format("value.format")
        self.expect(")")
        columns = build_topic_columns(fields, key, value, name_span)
        return CreateTopic(
            name=(name.name,), columns=columns, options=(key, value), name_span=name_span, span=self.span(first)
        )

    def _field_def(self) -> FieldDef:
        first = self.at
        path = self.path("a field's name").names
        at = self.at
        data_type = self.data_type()
        return FieldDef(path, data_type, self.span(at), self.span(first))

    def data_type(self) -> DataType:
        """Parse a type; LONG is BIGINT."""
        return types.BIGINT if self.accept("LONG") else super().data_type()

    def _format(self, key: str) -> OptionDef:
        first = self.at
        known = (*PRIMITIVES, *STRUCTURES)
        if self.kind() is not TokenKind.WORD:
            raise self.expected_error(f"a storage format: one of {', '.join(known)}")
        word = self.take().text.upper()
        if word not in known:
            help_text = suggest_name(word, known) or f"there are {', '.join(known)}"
            raise SqlError.of(
                "unknown-format", f"the storage format `{word}` is not supported", self.span(first), help_text
            )
        span = self.span(first)
        return OptionDef(key=key, value=word.lower(), key_span=span, value_span=span, span=span)

    # --- SET --------------------------------------------------------------------------------------

    def _set(self) -> SetOption:
        first = self.at
        self.expect("SET")
        if self.is_at_end or self.key() == ";":
            return SetOption(span=self.span(first))
        at = self.at
        key = self.take().text if self.kind() is TokenKind.STRING else self._until("=").replace("`", "")
        key_span = self.span(at)
        self.expect("=")
        at = self.at
        value = self.take().text if self.kind() is TokenKind.STRING else self._until(";")
        return SetOption(key=key, value=value, key_span=key_span, value_span=self.span(at), span=self.span(first))

    def _until(self, symbol: str) -> str:
        """Consume and return the text up to a symbol or `;`."""
        first = self.at
        while not self.is_at_end and self.key() not in (symbol, ";"):
            self.at += 1
        if self.at == first:
            raise self.expected_error("an option" if symbol == "=" else "the option's value", "write SET a.b = value")
        self.joined[first] = self.at
        return self.slice(first)


def _combine_inserts(statements: list[Statement]) -> tuple[Statement, ...]:
    """Combine the INSERTs of a script into one statement set, if there are several."""
    inserts = [each for each in statements if isinstance(each, Insert)]
    if len(inserts) < 2:
        return tuple(statements)
    *others, last = inserts
    made = StatementSet(inserts=tuple(inserts), span=replace(inserts[0].span, end=last.span.end))
    left = (each for each in statements if not any(each is other for other in others))
    return tuple(made if each is last else each for each in left)
