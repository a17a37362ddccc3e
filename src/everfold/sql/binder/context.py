"""The environment of binding: catalog, mode and names of WITH."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from everfold.errors import Diagnostic, EverfoldError, Span, SqlError, UnsupportedFeature
from everfold.limits import MAX_FINDINGS, MAX_VIEWS, too_complex_error
from everfold.sql import syntax
from everfold.sql.binder.scope import Relation
from everfold.sql.catalog import Catalog
from everfold.sql.settings import Settings

T = TypeVar("T")

BindQuery: TypeAlias = "Callable[[syntax.Query, Context], Relation]"
"""Binds a query as a relation, in the given context."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """The environment in which a query is bound.

    `bind_query` binds the queries of views, FROM and expressions. It is passed along because
    queries and expressions contain each other, and imports point only one way. `ctes` are the
    visible relations of WITH. `views` are the views whose queries are being bound. `outer` are the
    relations of the surrounding queries. `bound_views` caches the results of bound views for the
    whole statement. `as_batch` binds for batch in any mode of the session. `is_nested` tells the
    queries within others, whose order of rows has no meaning. `state_ttl_ms` is the STATE_TTL hint
    of the SELECT; None without one.
    """

    catalog: Catalog
    bind_query: BindQuery
    ctes: Mapping[str, Relation] = field(default_factory=dict)
    views: tuple[str, ...] = ()
    outer: tuple[Relation, ...] = ()
    bound_views: dict[tuple[str, bool, bool], Any] = field(default_factory=dict)
    as_batch: bool = False
    is_nested: bool = False
    state_ttl_ms: int | None = None

    @property
    def settings(self) -> Settings:
        """The options of the session."""
        return self.catalog.settings

    @property
    def streaming(self) -> bool:
        """Whether the query runs in streaming mode."""
        return self.settings.streaming and not self.as_batch

    def sql(self, node: syntax.Node) -> str:
        """Return the SQL of a node as written, with whitespace normalized."""
        return "" if node.span is None else " ".join(node.span.text[node.span.start : node.span.end].split())

    def error(self, code: str, message: str, node: syntax.Node | None, help: str | None = None) -> SqlError:
        """Return an error of the author, located at a node."""
        return SqlError(Diagnostic(code, message, span_of(node), help))

    def unsupported(
        self, code: str, message: str, node: syntax.Node | None, help: str | None = None
    ) -> UnsupportedFeature:
        """Return an error for a feature at a node that everfold does not support."""
        return UnsupportedFeature(Diagnostic(code, message, span_of(node), help))

    def check_views(self, node: syntax.Node | None) -> None:
        """Raise SqlError `too-complex` if views are nested too deeply."""
        if len(self.views) == MAX_VIEWS:
            what = f"more views are made of each other, down from `{self.views[0]}`"
            raise too_complex_error(what, MAX_VIEWS, span_of(node))

    def bind_view_once(self, name: str, bind: Callable[[], T], *, upserts: bool = False) -> T:
        """Return the bound query of a view.

        It is bound only once, however often a statement uses the view.
        """
        key = (name, self.streaming, upserts)
        if key not in self.bound_views:
            self.bound_views[key] = bind()
        found: T = self.bound_views[key]
        return found

    def reject(self, error: SqlError) -> None:
        """Raise an error for what no stream can run.

        In a script that is only checked, the error is noted instead.
        """
        if self.catalog.tolerated_errors is None:
            raise error from None
        self.catalog.tolerated_errors.append(error)

    def with_ctes(self, more: Mapping[str, Relation]) -> Context:
        """Return the context inside a query that has these relations in WITH."""
        return replace(self, ctes={**self.ctes, **more})

    def for_subquery(self, relation: Relation) -> Context:
        """Return the context of a subquery within an expression over that relation."""
        return replace(self, outer=(relation, *self.outer))


def span_of(node: syntax.Node | None) -> Span | None:
    """Return the location of a node, if there is one."""
    return None if node is None else node.span


class Problems:
    """Collects diagnostics while binding continues, to raise them together.

    As a context manager it catches the SqlError of its block, so that the next block runs.
    """

    def __init__(self) -> None:
        self._found: list[Diagnostic] = []
        self._unsupported = True

    def __enter__(self) -> Problems:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, SqlError):
            return False
        self.add(error)
        return True

    def add(self, error: EverfoldError) -> None:
        """Collect the diagnostics of an error."""
        self._unsupported &= isinstance(error, UnsupportedFeature)
        for found in error.diagnostics:
            if found not in self._found:
                self._found.append(found)
        if len(self._found) >= MAX_FINDINGS:
            self.check()

    def __len__(self) -> int:
        return len(self._found)

    def check(self) -> None:
        """Raise what was collected, in the order of the script."""
        if self._found:
            found = sorted(self._found, key=lambda each: each.span.start if each.span else -1)
            raise (UnsupportedFeature if self._unsupported else SqlError)(*found)


def quote_names(names: Iterable[str]) -> str:
    """Return names in backticks for a message: `a`, `b`."""
    return ", ".join(f"`{name}`" for name in names)
