"""What to write instead of SQL that everfold does not take: of Flink's, and of other systems' that people know."""

from __future__ import annotations

_ONE_DATABASE = "leave it out: there is one catalog and one database, `default_catalog.default_database`"
_ONLY_GROWS = "tables are files and topics, into which rows can only be inserted: INSERT INTO"
_SHOWN = "there are SHOW TABLES, SHOW VIEWS, SHOW FUNCTIONS, SHOW CREATE TABLE and SHOW CREATE VIEW; SET alone lists the options"
_NO_MODULES = "leave it out: all functions are there from the start"
_NO_JARS = "leave it out: the jars of connectors are fetched when they are needed"
_CLIENT = "leave it out: it is a command of Flink's SQL client"
_PLAN_OF_A_JOB = "run the statement itself: its job folder holds it to its query"
_JOBS = "Ctrl-C stops a job, and the same command goes on with it"

_REFUSED = {
    "ADD": _NO_JARS,
    "ALTER": "DROP it, then CREATE it anew",
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
    "DESCRIBE": "DESCRIBE takes a table or view",
    "DROP": "there are DROP TABLE, DROP VIEW and DROP FUNCTION",
    "DROP CATALOG": _ONE_DATABASE,
    "DROP DATABASE": _ONE_DATABASE,
    "EXCLUDE in a window": "leave it out, and subtract what it would leave out",
    "EXECUTE PLAN": _PLAN_OF_A_JOB,
    "EXIT": _CLIENT,
    "EXPLAIN": "write EXPLAIN or EXPLAIN CHANGELOG_MODE",
    "GRANT": "leave it out: rights lie with the files and the brokers",
    "GROUP BY DISTINCT": "write each grouping set once",
    "HELP": _CLIENT,
    "KILL": _JOBS,
    "LOAD": _NO_MODULES,
    "MATCH_RECOGNIZE": "a SESSION window finds rows that follow each other closely; there is nothing for patterns",
    "MERGE": _ONLY_GROWS,
    "MULTISET[…]": "write ARRAY[…]",
    "PERIOD FOR": "write two columns, and compare them with OVERLAPS",
    "PIVOT": "write an aggregate for each value: SUM(x) FILTER (WHERE k = 'a') AS a",
    "QUIT": _CLIENT,
    "REMOVE": _NO_JARS,
    "REVOKE": "leave it out: rights lie with the files and the brokers",
    "SHOW": _SHOWN,
    "STOP": _JOBS,
    "TABLESAMPLE": "write WHERE RAND() < 0.1",
    "TRUNCATE": _ONLY_GROWS,
    "UNLOAD": _NO_MODULES,
    "UNPIVOT": "CROSS JOIN UNNEST(ARRAY[…]) makes rows of columns",
    "UPDATE": _ONLY_GROWS,
    "UPSERT": _ONLY_GROWS,
    "USE": _ONE_DATABASE,
    "WITH RECURSIVE": "write out as many levels as are needed",
    "the type": "keep the value as STRING, and read it with JSON_VALUE",
}
"""By the construct's first words."""

_FOREIGN = {
    "MINUS": "write EXCEPT",
    "ILIKE": "write LOWER(x) LIKE 'a%'",
    "RLIKE": "write REGEXP(x, 'a.*')",
    "REGEXP": "write REGEXP(x, 'a.*')",
    "COLLATE": "leave it out: texts are compared by their characters",
    "EXCLUDE": "name the columns that are wanted",
    "REPLACE": "name the columns that are wanted",
    "::": "write CAST(x AS INT)",
}
"""By a word or sign that no grammar rule expects anywhere."""


def instead_of(construct: str) -> str | None:
    """What to write instead of a construct that is refused."""
    words = construct.split(" ")
    tried = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    return next((_REFUSED[each] for each in tried if each in _REFUSED), None)


def in_flink(key: str) -> str | None:
    """How Flink says what other systems say with a word or sign."""
    return _FOREIGN.get(key)
