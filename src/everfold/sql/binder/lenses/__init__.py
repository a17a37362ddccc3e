"""The binder of Lenses SQL: turns its queries into the same plans as Flink SQL."""

from __future__ import annotations

from everfold.sql.binder.lenses.inserts import bind_topic_insert
from everfold.sql.binder.lenses.queries import bind_topic_query
from everfold.sql.binder.lenses.topics import bind_topic, check_late_option

__all__ = ["bind_topic", "bind_topic_insert", "bind_topic_query", "check_late_option"]
