"""Suggestions for SQL of Flink and of other systems that everfold does not support."""

from __future__ import annotations

_ONE_DATABASE = "leave it out: there is one catalog and one database, `default_catalog.default_database`"
_ONLY_GROWS = "rows can only be inserted into tables: use INSERT INTO"
_SHOW = (
    "there are SHOW TABLES, SHOW VIEWS, SHOW FUNCTIONS, SHOW COLUMNS, SHOW CATALOGS, SHOW DATABASES, SHOW JOBS, "
    "SHOW CREATE TABLE and SHOW CREATE VIEW; SET without arguments lists the options"
)
_NO_MODULES = "leave it out: all functions are always available"
_NO_JARS = "leave it out: connector jars are downloaded when they are needed"
_CLIENT = "leave it out: it is a command of Flink's SQL client"
_PLAN_OF_A_JOB = "run the statement itself: its job directory pins the query"
_JOBS = "press Ctrl-C to stop a job, and run the same command again to resume it"

_REFUSED = {
    "ADD": _NO_JARS,
    "ALTER": "edit its CREATE statement: a script declares its tables and views each time it runs",
    "ANALYZE": "leave it out: everfold plans without statistics",
    "CALL": "there are no procedures",
    "CLEAR": _CLIENT,
    "COMPILE PLAN": _PLAN_OF_A_JOB,
    "CREATE": "there are CREATE TABLE, CREATE VIEW and CREATE FUNCTION",
    "CREATE CATALOG": _ONE_DATABASE,
    "CREATE DATABASE": _ONE_DATABASE,
    "CREATE FUNCTION": "leave the clause out",
    "CREATE MATERIALIZED TABLE": "CREATE TABLE, then INSERT INTO it",
    "DELETE": _ONLY_GROWS,
    "DESCRIBE": "DESCRIBE accepts only a table or view",
    "DROP": "leave it out: a declaration ends with its script or session",
    "DROP CATALOG": _ONE_DATABASE,
    "DROP DATABASE": _ONE_DATABASE,
    "EXCLUDE in a window": "leave it out, and subtract the rows that it would exclude",
    "EXECUTE PLAN": _PLAN_OF_A_JOB,
    "EXIT": _CLIENT,
    "GRANT": "leave it out: permissions are managed by the file system and the brokers",
    "GROUP BY DISTINCT": "write each grouping set once",
    "HELP": _CLIENT,
    "KILL": _JOBS,
    "LOAD": _NO_MODULES,
    "MATCH_RECOGNIZE": "patterns are not supported; a SESSION window groups rows that are close in time",
    "MERGE": _ONLY_GROWS,
    "MULTISET[…]": "write ARRAY[…]",
    "PERIOD FOR": "write two columns, and compare them with OVERLAPS",
    "PIVOT": "write an aggregate for each value: SUM(x) FILTER (WHERE k = 'a') AS a",
    "QUIT": _CLIENT,
    "REMOVE": _NO_JARS,
    "REVOKE": "leave it out: permissions are managed by the file system and the brokers",
    "SHOW": _SHOW,
    "STOP": _JOBS,
    "TABLESAMPLE": "write WHERE RAND() < 0.1",
    "TRUNCATE": _ONLY_GROWS,
    "UNLOAD": _NO_MODULES,
    "UNPIVOT": "turn columns into rows with CROSS JOIN UNNEST(ARRAY[…])",
    "UPDATE": _ONLY_GROWS,
    "UPSERT": _ONLY_GROWS,
    "USE": _NO_MODULES,
    "WITH RECURSIVE": "write out as many levels as you need",
    "the type": "keep the value as STRING, and read it with JSON_VALUE",
}
"""The suggestion for a construct that is not supported, by its first words."""

_FOREIGN = {
    "MINUS": "write EXCEPT",
    "ILIKE": "write LOWER(x) LIKE 'a%'",
    "RLIKE": "write REGEXP(x, 'a.*')",
    "REGEXP": "write REGEXP(x, 'a.*')",
    "COLLATE": "leave it out: strings are compared by their characters",
    "EXCLUDE": "list the columns that you need",
    "REPLACE": "list the columns that you need",
    "::": "write CAST(x AS INT)",
}
"""The suggestion for a word or symbol that no grammar rule expects."""


def suggest_alternative(construct: str) -> str | None:
    """Return the suggestion for a construct that is not supported, if any."""
    words = construct.split(" ")
    tried = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    return next((_REFUSED[each] for each in tried if each in _REFUSED), None)


def suggest_flink(key: str) -> str | None:
    """Return what to write in Flink SQL for a word or symbol of another system, if known."""
    return _FOREIGN.get(key)
