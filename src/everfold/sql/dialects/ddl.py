"""Grammar of CREATE and DROP."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

from everfold.errors import Span, SqlError, UnsupportedFeature
from everfold.sql import syntax
from everfold.sql.dialects.queries import Queries
from everfold.sql.dialects.token_stream import NAME_TOKENS
from everfold.sql.dialects.tokens import TokenKind
from everfold.sql.statements import (
    AsQuery,
    ColumnDef,
    ComputedColumn,
    CreateFunction,
    CreateTable,
    CreateView,
    DropFunction,
    DropTable,
    DropView,
    KeyDef,
    Like,
    LikeFeature,
    MetadataColumn,
    Name,
    OptionDef,
    PhysicalColumn,
    Statement,
    WatermarkDef,
)

_Strategy: TypeAlias = Literal["INCLUDING", "EXCLUDING", "OVERWRITING"]
_FEATURES = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")
_NOT_OVERWRITTEN = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "PARTITIONS")


class Definitions(Queries):
    """Grammar of CREATE and DROP."""

    def whole_query(self) -> tuple[syntax.Query, str]:
        """Parse a query, check its size, and return it with its exact text."""
        first = self.at
        query = self.check_size(self.query())
        return query, self.slice(first)

    def whole_expression(self) -> tuple[syntax.Expression, str]:
        """Parse an expression, check its size, and return it with its exact text."""
        first = self.at
        tree = self.check_size(self.expression())
        return tree, self.slice(first)

    def object_name(self, what: str) -> tuple[Name, Span]:
        """Parse a name of up to three parts; return it with its span."""
        first = self.at
        name = tuple(part.name for part in self.name_parts(what))
        return name, self.span(first)

    def column_names(self) -> Name:
        """Parse column names in parentheses; reserved words need no backticks."""
        return self.parse_enclosed_list(lambda: self.identifier("a column's name", frozenset()).name)

    # --- CREATE -----------------------------------------------------------------------------------

    def create(self) -> Statement:
        """Parse a CREATE statement."""
        first = self.at
        self.expect("CREATE")
        if self.accept("OR"):
            word = self.expect_one_of("REPLACE", "ALTER")
            raise self.unsupported_error(
                "unsupported-statement",
                f"CREATE OR {word}",
                first,
                "write CREATE: a script declares its tables and views each time it runs",
            )
        temporary = self.one_of("TEMPORARY", "TEMP") is not None
        if self.key() == "SYSTEM":
            return self._create_function(first, temporary)
        match self.key():
            case "TABLE":
                return self._create_table(first, temporary)
            case "VIEW":
                return self._create_view(first, temporary)
            case "FUNCTION":
                return self._create_function(first, temporary)
            case "":
                raise self.expected_error("`TABLE` or `VIEW`")
            case word:
                self.at += 1
                self.accept("TABLE")
                words = f"CREATE {word}" + (" TABLE" if self.keys[self.at - 1] == "TABLE" else "")
                raise self.unsupported_error("unsupported-statement", words, first)

    def _if_not_exists(self) -> bool:
        if self.key(1) in ("(", "AS", "WITH", "LIKE", "."):  # a table or view named `if`
            return False
        if not self.accept("IF"):
            return False
        self.expect("NOT", "EXISTS")
        return True

    def _comment(self) -> str | None:
        return self.string("the comment") if self.accept("COMMENT") else None

    def _create_function(self, first: int, temporary: bool) -> CreateFunction:
        system = self._system(first, temporary)
        self.expect("FUNCTION")
        if_not_exists = self._if_not_exists()
        name, name_span = self.object_name("a function")
        self.expect("AS")
        at = self.at
        identifier = self.string("the location of the function")
        identifier_span = self.span(at)
        language = self.expect_one_of("JAVA", "SCALA", "PYTHON") if self.accept("LANGUAGE") else "JAVA"
        for clause in ("USING", "WITH"):
            if self.accept(clause):
                raise self.unsupported_error("unsupported-clause", f"CREATE FUNCTION … {clause}", self.at - 1)
        return CreateFunction(
            name=name,
            identifier=identifier,
            language=cast(Literal["JAVA", "SCALA", "PYTHON"], language),
            temporary=temporary,
            system=system,
            if_not_exists=if_not_exists,
            name_span=name_span,
            identifier_span=identifier_span,
            span=self.span(first),
        )

    def _system(self, first: int, temporary: bool) -> bool:
        """Consume SYSTEM if it comes next; only temporary functions may have it."""
        system = self.accept("SYSTEM")
        if system and not temporary:
            raise SqlError.of(
                "syntax",
                "a system function must be temporary",
                self.span(first),
                "write TEMPORARY SYSTEM FUNCTION",
            )
        return system

    def _create_view(self, first: int, temporary: bool) -> CreateView:
        self.expect("VIEW")
        if_not_exists = self._if_not_exists()
        name, name_span = self.object_name("a view")
        columns: Name | None = None
        if self.key() == "(":
            columns = self.parse_enclosed_list(self._view_column)
        comment = self._comment()
        self.expect("AS")
        query, text = self.whole_query()
        return CreateView(
            name=name,
            columns=columns,
            query=query,
            text=text,
            temporary=temporary,
            if_not_exists=if_not_exists,
            comment=comment,
            name_span=name_span,
            span=self.span(first),
        )

    def _view_column(self) -> str:
        name = self.identifier("a column's name").name
        self._comment()
        return name

    def _create_table(self, first: int, temporary: bool) -> CreateTable:
        self.expect("TABLE")
        if_not_exists = self._if_not_exists()
        name, name_span = self.object_name("a table")
        parts, order = _Parts(), None
        columns_at = self.at
        if self.key() not in (
            "WITH",
            "AS",
            "LIKE",
            "COMMENT",
            "PARTITIONED",
        ):  # these may follow the name of a table without columns
            order = self._column_order()
            if order is None:
                self._elements(parts)
        comment = self._comment()
        if self.key() in ("DISTRIBUTED", "DISTRIBUTE"):
            at = self.at
            self.at += 1
            raise self.unsupported_error(
                "unsupported-clause", "DISTRIBUTED", at, "PARTITIONED BY (…) splits a sink of files"
            )
        partitioned_by: Name = ()
        if self.accept("PARTITIONED"):
            self.expect("BY")
            partitioned_by = self.column_names()
        options = self._with_options()
        like = self._like()
        as_query = self._as_query(order) if like is None else None
        if as_query is None and (order is not None or (like is None and self.keys[columns_at] != "(")):
            self.at = columns_at
            self._elements(parts)
        return CreateTable(
            name=name,
            columns=tuple(parts.columns),
            like=like,
            as_query=as_query,
            watermark=parts.watermark,
            key=parts.key,
            options=options,
            partitioned_by=partitioned_by,
            temporary=temporary,
            if_not_exists=if_not_exists,
            comment=comment,
            name_span=name_span,
            span=self.span(first),
        )

    def _elements(self, parts: _Parts) -> None:
        self.expect("(")
        while True:
            self._element(parts)
            if not self.accept(","):
                break
        if self.key() != ")":
            raise self.expected_error("`,` or `)`")
        self.at += 1

    def _column_order(self) -> Name | None:
        """Parse the column list of CREATE TABLE AS: names that order the columns of the query.

        Returns None if something else comes next.
        """
        last = 1
        while self.kind(last) in NAME_TOKENS and self.key(last + 1) == ",":
            last += 2
        if self.key() != "(" or self.kind(last) not in NAME_TOKENS or self.key(last + 1) != ")":
            return None
        return self.column_names()

    def _like(self) -> Like | None:
        first = self.at
        if not self.accept("LIKE"):
            return None
        source, source_span = self.object_name("a table")
        features: list[LikeFeature] = []
        if self.accept("("):
            while not self.accept(")"):
                at = self.at
                strategy = cast(_Strategy, self.expect_one_of("INCLUDING", "EXCLUDING", "OVERWRITING"))
                feature = self.expect_one_of(*_FEATURES)
                if feature in _NOT_OVERWRITTEN and strategy == "OVERWRITING":
                    raise SqlError.of(
                        "syntax", f"{feature} cannot be overwritten", self.span(at), f"write EXCLUDING {feature}"
                    )
                if any(each.feature == feature for each in features):
                    raise SqlError.of("syntax", f"{feature} is named twice", self.span(at), "leave one of them out")
                features.append(LikeFeature(strategy=strategy, feature=feature, span=self.span(at)))
        return Like(source=source, features=tuple(features), source_span=source_span, span=self.span(first))

    def _as_query(self, order: Name | None) -> AsQuery | None:
        if not self.accept("AS"):
            return None
        first = self.at
        query, text = self.whole_query()
        return AsQuery(query=query, text=text, columns=order, span=self.span(first))

    def _with_options(self) -> tuple[OptionDef, ...]:
        if not self.accept("WITH"):
            return ()
        if self.accept("(", ")"):
            return ()
        return self.parse_enclosed_list(self._option)

    def _option(self) -> OptionDef:
        first = self.at
        key = self.string("an option's name")
        key_span = self.span(first)
        self.expect("=")
        value = self.string("the option's value")
        return OptionDef(
            key=key, value=value, key_span=key_span, value_span=self.span(self.at - 1), span=self.span(first)
        )

    # --- columns and constraints ------------------------------------------------------------------

    def _element(self, parts: _Parts) -> None:
        first = self.at
        if self.key() == "WATERMARK" and self.key(1) == "FOR":
            if parts.watermark is not None:
                raise SqlError.of(
                    "syntax",
                    "the table has two watermarks",
                    self.span(first, first + 1),
                    "a table has at most one WATERMARK",
                )
            parts.watermark = self._watermark()
        elif self.key() == "CONSTRAINT" and self.key(2) in ("PRIMARY", "UNIQUE"):
            self.at += 1
            name = self.identifier("the constraint's name").name
            self._refuse_unique()
            self._set_key(parts, self._table_key(first, name))
        elif self.sees("PRIMARY", "KEY"):
            self._set_key(parts, self._table_key(first, None))
        elif self.sees("UNIQUE", "("):
            self._refuse_unique()
        elif self.sees("PERIOD", "FOR"):
            self.at += 2
            raise self.unsupported_error("unsupported-clause", "PERIOD FOR", first)
        else:
            parts.columns.append(self._column(parts))

    def _refuse_unique(self) -> None:
        if self.key() == "UNIQUE":
            self.at += 1
            raise self.unsupported_error("unsupported-clause", "UNIQUE", self.at - 1, "PRIMARY KEY (…) NOT ENFORCED")

    def _set_key(self, parts: _Parts, key: KeyDef) -> None:
        if parts.key is not None:
            raise SqlError.of(
                "syntax",
                "the table has two primary keys",
                key.span,
                "list the columns in one: PRIMARY KEY (a, b) NOT ENFORCED",
            )
        parts.key = key

    def _table_key(self, first: int, name: str | None) -> KeyDef:
        self.expect("PRIMARY", "KEY")
        columns = self.column_names()
        self._not_enforced(first)
        return KeyDef(columns=columns, name=name, span=self.span(first))

    def _not_enforced(self, first: int) -> None:
        if self.accept("NOT"):
            self.expect("ENFORCED")
            return
        self.accept("ENFORCED")
        message = "an enforced PRIMARY KEY is not supported: everfold does not own the data and cannot check it"
        raise UnsupportedFeature.of(
            "unsupported-clause", message, self.span(first), "write PRIMARY KEY (…) NOT ENFORCED"
        )

    def _watermark(self) -> WatermarkDef:
        first = self.at
        self.expect("WATERMARK", "FOR")
        column, column_span = self.object_name("a column")
        self.expect("AS")
        tree, text = self.whole_expression()
        return WatermarkDef(column=column, expression=tree, text=text, column_span=column_span, span=self.span(first))

    def _column(self, parts: _Parts) -> ColumnDef:
        first = self.at
        if self.key() in (")", "") and self.kind() is not TokenKind.QUOTED:
            raise self.expected_error("a column")
        name = self.identifier("a column's name", frozenset()).name
        if self.accept("AS"):
            tree, text = self.whole_expression()
            comment = self._comment()
            return ComputedColumn(name=name, expression=tree, text=text, comment=comment, span=self.span(first))
        at = self.at
        found = self.data_type()
        type_span = self.span(at)
        if self.accept("METADATA"):
            key = self.string("the metadata's key") if self.accept("FROM") else None
            virtual = self.accept("VIRTUAL")
            comment = self._comment()
            return MetadataColumn(
                name=name,
                type=found,
                key=key,
                virtual=virtual,
                comment=comment,
                type_span=type_span,
                span=self.span(first),
            )
        at = self.at
        if self.accept("CONSTRAINT"):
            self.identifier("the constraint's name")
        self._refuse_unique()
        if self.accept("PRIMARY"):
            self.expect("KEY")
            self._not_enforced(at)
            self._set_key(parts, KeyDef(columns=(name,), span=self.span(at)))
        comment = self._comment()
        if self.key() not in (",", ")"):
            raise self.expected_error("`,` or `)`")
        return PhysicalColumn(name=name, type=found, comment=comment, type_span=type_span, span=self.span(first))

    # --- DROP -------------------------------------------------------------------------------------

    def drop(self) -> Statement:
        """Parse DROP TABLE, DROP VIEW or DROP FUNCTION."""
        first = self.at
        self.expect("DROP")
        temporary = self.one_of("TEMPORARY", "TEMP") is not None
        if self.key() in ("SYSTEM", "FUNCTION"):
            return self._drop_function(first, temporary)
        word = self.key()
        if word not in ("TABLE", "VIEW"):
            if not word or word == ";":
                raise self.expected_error("`TABLE` or `VIEW`")
            self.at += 1
            raise self.unsupported_error("unsupported-statement", f"DROP {word}", first)
        self.at += 1
        if_exists = self._if_exists()
        name, name_span = self.object_name("a table" if word == "TABLE" else "a view")
        made = DropTable if word == "TABLE" else DropView
        return made(name=name, temporary=temporary, if_exists=if_exists, name_span=name_span, span=self.span(first))

    def _drop_function(self, first: int, temporary: bool) -> DropFunction:
        system = self._system(first, temporary)
        self.expect("FUNCTION")
        if_exists = self._if_exists()
        name, name_span = self.object_name("a function")
        return DropFunction(
            name=name,
            temporary=temporary,
            system=system,
            if_exists=if_exists,
            name_span=name_span,
            span=self.span(first),
        )

    def _if_exists(self) -> bool:
        if self.key(1) in ("", ";", "."):  # a table, view or function named `if`
            return False
        if not self.accept("IF"):
            return False
        self.expect("EXISTS")
        return True


class _Parts:
    """The columns and constraints of a CREATE TABLE while it is parsed."""

    def __init__(self) -> None:
        self.columns: list[ColumnDef] = []
        self.watermark: WatermarkDef | None = None
        self.key: KeyDef | None = None
