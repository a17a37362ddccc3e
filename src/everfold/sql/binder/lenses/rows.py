"""Structures: several named values as one ROW."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.expressions import Expr
from everfold.sql.functions import build, cast
from everfold.types import RowField, RowType


def build_row(values: Sequence[Expr], names: Sequence[str]) -> Expr:
    """Return a ROW of values with these names."""
    fields = tuple(RowField(name=name, type=value.type) for name, value in zip(names, values, strict=True))
    return cast(build("ROW", tuple(values)), RowType(fields=fields, nullable=False))
