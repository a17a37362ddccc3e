"""A script of one dialect in the words of the other, and the proof that both are one plan."""

from __future__ import annotations

from everfold.sql.translation.proof import prove
from everfold.sql.translation.to_flink import to_flink
from everfold.sql.translation.to_lenses import to_lenses

__all__ = ["prove", "to_flink", "to_lenses"]
