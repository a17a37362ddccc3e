"""Name resolution: which column a name refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from everfold.errors import Diagnostic, Span, SqlError, UnsupportedFeature, suggest_name, suggest_or_list_names
from everfold.plan.expressions import Expr, InputRef, Literal
from everfold.plan.nodes import Plan
from everfold.sql import functions
from everfold.sql.binder.constants import string_literal
from everfold.sql.catalog import CATALOG, DATABASE
from everfold.types import BOOLEAN, AnyType, RowType, with_article


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeColumn:
    """A column that a name can refer to; `relation` is the table or alias before the dot.

    A `hidden` column was merged into another by USING or NATURAL: only its qualified name finds it,
    and `*` leaves it out.
    """

    name: str
    position: int
    relation: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A bound item of FROM: its plan, and the names of the plan's columns."""

    plan: Plan
    columns: tuple[ScopeColumn, ...]
    _by_name: dict[str, list[ScopeColumn]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def columns_named(self, name: str) -> Sequence[ScopeColumn]:
        """Return the columns of a name, including hidden ones."""
        if not self._by_name:
            for column in self.columns:
                self._by_name.setdefault(column.name, []).append(column)
        return self._by_name.get(name, ())

    @classmethod
    def of(cls, plan: Plan, alias: str | None = None, names: Sequence[str] | None = None) -> Relation:
        """Build a relation of all columns of a plan, under their own names or others."""
        names = plan.schema.names if names is None else names
        return cls(
            plan=plan,
            columns=tuple(ScopeColumn(name=name, position=at, relation=alias) for at, name in enumerate(names)),
        )

    def with_plan(self, plan: Plan) -> Relation:
        """Return the same names over another plan with the same columns."""
        return replace(self, plan=plan)

    def with_alias(self, alias: str | None, names: Sequence[str] | None = None) -> Relation:
        """Return the relation under an alias; its hidden columns are dropped."""
        shown = self.visible_columns
        names = [column.name for column in shown] if names is None else names
        return Relation(
            plan=self.plan,
            columns=tuple(
                ScopeColumn(name=name, position=column.position, relation=alias)
                for name, column in zip(names, shown, strict=True)
            ),
        )

    @property
    def visible_columns(self) -> tuple[ScopeColumn, ...]:
        """The columns that `*` selects."""
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def relation_names(self) -> tuple[str, ...]:
        """The names that can precede a dot."""
        return tuple(dict.fromkeys(column.relation for column in self.columns if column.relation is not None))

    def columns_of(self, name: str) -> tuple[ScopeColumn, ...]:
        """Return the columns of `name.*`."""
        return tuple(column for column in self.columns if column.relation == name)

    def reference(self, column: ScopeColumn, span: Span | None = None) -> InputRef:
        """Return a reference to a column."""
        return InputRef(
            type=self.plan.schema[column.position].type, position=column.position, name=column.name, span=span
        )


def strip_database(relation: Relation, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path without `default_catalog.default_database.` before a table name."""
    for prefix in ((CATALOG, DATABASE), (DATABASE,)):
        if (
            names[: len(prefix)] == prefix
            and len(names) > len(prefix)
            and names[len(prefix)] in relation.relation_names
        ):
            return names[len(prefix) :]
    return names


def resolve(
    relation: Relation,
    names: tuple[str, ...],
    span: Span | None,
    outer: Sequence[Relation] = (),
) -> Expr:
    """Return the column, or the field of a column, that a path refers to.

    Raises SqlError `unknown-column`, `ambiguous-column`, `unknown-field`; UnsupportedFeature
    `correlated-subquery` for a column of a surrounding query.
    """
    found = _find(relation, names, span)
    if found is not None:
        return found
    if len(names) == 1 and names[0].upper() in _KEYWORDS:
        return _KEYWORDS[names[0].upper()](span)
    if any(_exists(each, names) for each in outer):
        raise UnsupportedFeature(
            Diagnostic(
                "correlated-subquery",
                f"`{'.'.join(names)}` belongs to the outer query: a correlated subquery is not supported",
                span,
                "write it as a join",
            )
        )
    raise SqlError(_unknown_column(relation, names, span))


_KEYWORDS: Mapping[str, Callable[[Span | None], Expr]] = {
    "UNKNOWN": lambda span: Literal(type=BOOLEAN, value=None, span=span),
    "PI": lambda span: functions.build("PI", (), span),
}
"""Words that stand for a value if no column has their name."""


def _exists(relation: Relation, names: tuple[str, ...]) -> bool:
    try:
        return _find(relation, names, None) is not None
    except SqlError:
        return True


def _find(relation: Relation, names: tuple[str, ...], span: Span | None) -> Expr | None:
    names = strip_database(relation, names)
    if len(names) > 1:
        qualified = [column for column in relation.columns_named(names[1]) if column.relation == names[0]]
        if qualified:
            column = _single(qualified, ".".join(names[:2]), span)
            return _fields(relation.reference(column, span), names[2:], span)
    visible = [column for column in relation.columns_named(names[0]) if not column.hidden]
    if not visible:
        return None
    column = _single(visible, names[0], span)
    return _fields(relation.reference(column, span), names[1:], span)


def _single(found: Sequence[ScopeColumn], name: str, span: Span | None) -> ScopeColumn:
    if len(found) > 1:
        relations = list(dict.fromkeys(column.relation for column in found if column.relation))
        if len(relations) == len(found):
            help_ = f"qualify it: `{relations[0]}.{found[0].name}` or `{relations[1]}.{found[0].name}`"
        else:
            help_ = "rename one of them with AS where it is defined"
        raise SqlError(Diagnostic("ambiguous-column", f"`{name}` can refer to {len(found)} columns", span, help_))
    return found[0]


def _fields(value: Expr, names: Iterable[str], span: Span | None) -> Expr:
    from everfold.sql.functions import build

    for name in names:
        check_field(value, name, span)
        value = build("FIELD", (value, string_literal(name)), span)
    return value


def check_field(value: Expr, name: str, span: Span | None) -> None:
    """Raise SqlError `unknown-field` unless the value is a ROW with a field of that name."""
    if isinstance(value.type, AnyType):
        return
    if not isinstance(value.type, RowType):
        raise SqlError(
            Diagnostic("unknown-field", f"no field `{name}`: the value is {with_article(value.type)}, not a ROW", span)
        )
    fields = [of.name for of in value.type.fields]
    if name not in fields:
        help_ = suggest_name(name, fields) or "it has " + ", ".join(f"`{each}`" for each in fields)
        raise SqlError(Diagnostic("unknown-field", f"the ROW has no field `{name}`", span, help_))


def _unknown_column(relation: Relation, names: tuple[str, ...], span: Span | None) -> Diagnostic:
    path = ".".join(names)
    names = strip_database(relation, names)
    if len(names) > 1 and names[0] in relation.relation_names:
        known = [column.name for column in relation.columns_of(names[0])]
        return Diagnostic(
            "unknown-column", f"`{names[0]}` has no column `{names[1]}`", span, suggest_name(names[1], known)
        )
    known = list(dict.fromkeys(column.name for column in relation.visible_columns))
    if len(names) > 1:
        near = suggest_name(names[0], [*relation.relation_names, *known])
        return Diagnostic("unknown-column", f"no table or column is named `{names[0]}` in `{path}`", span, near)
    return Diagnostic("unknown-column", f"no column is named `{path}`", span, suggest_or_list_names(names[0], known))
