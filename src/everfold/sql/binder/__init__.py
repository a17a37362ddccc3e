"""The binder: turns trees of a dialect into typed plans and catalog entries.

It follows Flink's rules and needs no engine.
"""

from __future__ import annotations

from everfold.sql.binder.ddl import bind_create_table, bind_create_view
from everfold.sql.binder.inserts import bind_insert, bind_open_insert
from everfold.sql.binder.queries import bind_query

__all__ = ["bind_create_table", "bind_create_view", "bind_insert", "bind_open_insert", "bind_query"]
