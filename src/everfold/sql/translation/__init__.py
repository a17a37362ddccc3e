"""Translate a script of one dialect into the other, and prove that both have the same plan."""

from __future__ import annotations

from everfold.sql.translation.proof import prove
from everfold.sql.translation.to_flink import to_flink
from everfold.sql.translation.to_lenses import to_lenses

__all__ = ["prove", "to_flink", "to_lenses"]
