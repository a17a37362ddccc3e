"""Random scalar expressions of a given type, from a list of forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from flink.tree import HOLE, Node

NUMBERS = ("INT", "BIGINT", "DECIMAL", "DOUBLE")
COMPARABLE = (*NUMBERS, "STRING", "DATE", "TIMESTAMP", "TIME")
ANY = (*COMPARABLE, "BOOLEAN")

# For each type: a form with a hole for each argument, and the types of the arguments. `=` stands
# for the type of the expression, `number`, `comparable` and `any` for some type, the same one in
# all holes of the form.
FORMS: dict[str, list[tuple[str, str]]] = {
    "any": [
        ("CASE WHEN § THEN § ELSE § END", "BOOLEAN = ="),
        ("CASE WHEN § THEN § END", "BOOLEAN ="),
        ("COALESCE(§, §)", "= ="),
        ("IF(§, §, §)", "BOOLEAN = ="),
        ("IFNULL(§, §)", "= ="),
    ],
    "comparable": [("NULLIF(§, §)", "= ="), ("GREATEST(§, §)", "= ="), ("LEAST(§, §)", "= =")],
    "INT": [
        ("(§ + §)", "INT INT"),
        ("(§ - §)", "INT INT"),
        ("(§ * §)", "INT INT"),
        ("(§ / NULLIF(§, 0))", "INT INT"),
        ("MOD(§, NULLIF(§, 0))", "INT INT"),
        ("(- §)", "INT"),
        ("ABS(§)", "INT"),
        ("SIGN(§)", "INT"),
        ("CHAR_LENGTH(§)", "STRING"),
        ("POSITION('b' IN §)", "STRING"),
        ("LOCATE('c', §, 2)", "STRING"),
        ("INSTR(§, 'b')", "STRING"),
        ("ASCII(§)", "STRING"),
        ("REGEXP_COUNT(§, '[ab]')", "STRING"),
        ("TRY_CAST(§ AS INT)", "STRING"),
        ("CAST(§ AS INT)", "number"),
        ("CAST(§ AS INT)", "BOOLEAN"),
        ("CARDINALITY(§)", "ARRAY"),
        ("§[1]", "ARRAY"),
        ("ARRAY_POSITION(§, 2)", "ARRAY"),
        ("ARRAY_MAX(§)", "ARRAY"),
        ("TIMESTAMPDIFF(MINUTE, §, §)", "TIMESTAMP TIMESTAMP"),
        ("TIMESTAMPDIFF(DAY, §, §)", "DATE DATE"),
        ("JSON_VALUE('{\"a\": 7}', '$.a' RETURNING INT)", ""),
    ],
    "BIGINT": [
        ("(§ + §)", "BIGINT INT"),
        ("(§ - §)", "INT BIGINT"),
        ("(§ * §)", "BIGINT INT"),
        ("(§ / NULLIF(§, 0))", "BIGINT INT"),
        ("CAST(§ AS BIGINT)", "number"),
        ("TRY_CAST(§ AS BIGINT)", "STRING"),
        ("EXTRACT(YEAR FROM §)", "DATE"),
        ("EXTRACT(WEEK FROM §)", "DATE"),
        ("EXTRACT(MINUTE FROM §)", "TIMESTAMP"),
        ("EXTRACT(HOUR FROM §)", "TIME"),
        ("HOUR(§)", "TIMESTAMP"),
        ("DAYOFWEEK(§)", "DATE"),
        ("QUARTER(§)", "TIMESTAMP"),
        ("DAYOFYEAR(§)", "DATE"),
    ],
    "DECIMAL": [
        ("(§ + §)", "DECIMAL INT"),
        ("(§ - §)", "DECIMAL DECIMAL"),
        ("(§ * §)", "DECIMAL INT"),
        ("(§ / NULLIF(§, 0))", "DECIMAL INT"),
        ("ROUND(§, 1)", "DECIMAL"),
        ("FLOOR(§)", "DECIMAL"),
        ("CEIL(§)", "DECIMAL"),
        ("TRUNCATE(§, 1)", "DECIMAL"),
        ("ABS(§)", "DECIMAL"),
        ("CAST(§ AS DECIMAL(12, 3))", "number"),
        ("TRY_CAST(§ AS DECIMAL(20, 2))", "STRING"),
    ],
    "DOUBLE": [
        ("(§ + §)", "DOUBLE INT"),
        ("(§ - §)", "DOUBLE DECIMAL"),
        ("(§ * §)", "DOUBLE DOUBLE"),
        ("(§ / 4)", "DOUBLE"),
        ("SQRT(ABS(§))", "number"),
        ("POWER(§, 2)", "DOUBLE"),
        ("LN(ABS(§) + 1)", "number"),
        ("SIN(§)", "DOUBLE"),
        ("ATAN(§)", "DOUBLE"),
        ("ROUND(§, 2)", "DOUBLE"),
        ("FLOOR(§)", "DOUBLE"),
        ("ABS(§)", "DOUBLE"),
        ("CAST(§ AS DOUBLE)", "number"),
        ("TRY_CAST(§ AS DOUBLE)", "STRING"),
    ],
    "STRING": [
        ("(§ || §)", "STRING STRING"),
        ("UPPER(§)", "STRING"),
        ("LOWER(§)", "STRING"),
        ("INITCAP(§)", "STRING"),
        ("SUBSTRING(§ FROM 2 FOR 2)", "STRING"),
        ("SUBSTRING(§ FROM §)", "STRING INT"),
        ("TRIM(§)", "STRING"),
        ("TRIM(LEADING 'a' FROM §)", "STRING"),
        ("REPLACE(§, 'b', 'xy')", "STRING"),
        ("LPAD(§, 5, '*')", "STRING"),
        ("RPAD(§, 4, '-+')", "STRING"),
        ("REVERSE(§)", "STRING"),
        ("REPEAT(§, 2)", "STRING"),
        ("LEFT(§, 2)", "STRING"),
        ("RIGHT(§, 2)", "STRING"),
        ("CONCAT(§, '/', §)", "STRING STRING"),
        ("CONCAT_WS('-', §, §)", "STRING STRING"),
        ("OVERLAY(§ PLACING 'zz' FROM 2)", "STRING"),
        ("REGEXP_REPLACE(§, '[a-b]', '_')", "STRING"),
        ("REGEXP_EXTRACT(§, '([a-c])(.)', 2)", "STRING"),
        ("SPLIT_INDEX(§, ',', 1)", "STRING"),
        ("TRANSLATE(§, 'abc', 'xy')", "STRING"),
        ("TO_BASE64(§)", "STRING"),
        ("MD5(§)", "STRING"),
        ("HEX(§)", "STRING"),
        ("BIN(§)", "INT"),
        ("ELT(2, §, §)", "STRING STRING"),
        ("CAST(§ AS STRING)", "any"),
        ("DATE_FORMAT(§, 'yyyy-MM-dd HH:mm')", "TIMESTAMP"),
        ("JSON_OBJECT('k' VALUE §)", "INT"),
        ("JSON_ARRAY(§, §)", "INT STRING"),
        ("JSON_STRING(§)", "STRING"),
        ("JSON_VALUE(§, '$.a')", "STRING"),
    ],
    "BOOLEAN": [
        *((f"(§ {sign} §)", "comparable comparable") for sign in ("=", "<>", "<", "<=", ">", ">=")),
        ("(§ AND §)", "BOOLEAN BOOLEAN"),
        ("(§ OR §)", "BOOLEAN BOOLEAN"),
        ("(NOT §)", "BOOLEAN"),
        ("(§ IS NULL)", "any"),
        ("(§ IS NOT NULL)", "any"),
        ("(§ IS TRUE)", "BOOLEAN"),
        ("(§ IS NOT FALSE)", "BOOLEAN"),
        ("(§ IS DISTINCT FROM §)", "comparable comparable"),
        ("(§ BETWEEN § AND §)", "comparable comparable comparable"),
        ("(§ IN (§, §))", "INT INT INT"),
        ("(§ NOT IN ('a', 'bc', 'x,y'))", "STRING"),
        ("(§ LIKE 'a%')", "STRING"),
        ("(§ LIKE '_b%')", "STRING"),
        ("(§ SIMILAR TO '(a|b)+')", "STRING"),
        ("STARTSWITH(§, 'a')", "STRING"),
        ("REGEXP(§, 'b.?c')", "STRING"),
        ("ARRAY_CONTAINS(§, 2)", "ARRAY"),
        ("IS_DIGIT(§)", "STRING"),
        ("(§ IS JSON)", "STRING"),
        ("CAST(§ AS BOOLEAN)", "INT"),
    ],
    "DATE": [
        ("CAST(§ AS DATE)", "TIMESTAMP"),
        ("(§ + INTERVAL '3' DAY)", "DATE"),
        ("(§ - INTERVAL '1' MONTH)", "DATE"),
        ("FLOOR(§ TO MONTH)", "DATE"),
        ("TO_DATE(CAST(§ AS STRING))", "DATE"),
        ("TIMESTAMPADD(DAY, 40, §)", "DATE"),
    ],
    "TIMESTAMP": [
        ("(§ + INTERVAL '90' MINUTE)", "TIMESTAMP"),
        ("(§ - INTERVAL '2' MONTH)", "TIMESTAMP"),
        ("(§ + INTERVAL '1 02:03:04' DAY TO SECOND)", "TIMESTAMP"),
        ("FLOOR(§ TO HOUR)", "TIMESTAMP"),
        ("CEIL(§ TO DAY)", "TIMESTAMP"),
        ("CAST(§ AS TIMESTAMP(3))", "DATE"),
        ("TIMESTAMPADD(MINUTE, 7, §)", "TIMESTAMP"),
        ("TO_TIMESTAMP(CAST(§ AS STRING))", "TIMESTAMP"),
    ],
    "FLOAT": [("CAST(§ AS FLOAT)", "INT"), ("(§ * 2)", "FLOAT"), ("(- §)", "FLOAT")],
    "TIME": [("CAST(§ AS TIME)", "TIMESTAMP")],
    "ARRAY": [
        ("ARRAY[§, §]", "INT INT"),
        ("ARRAY_DISTINCT(§)", "ARRAY"),
        ("ARRAY_REVERSE(§)", "ARRAY"),
        ("ARRAY_CONCAT(§, §)", "ARRAY ARRAY"),
        ("ARRAY_UNION(§, §)", "ARRAY ARRAY"),
        ("ARRAY_REMOVE(§, 2)", "ARRAY"),
        ("ARRAY_APPEND(§, §)", "ARRAY INT"),
    ],
}

LITERALS: dict[str, tuple[str, ...]] = {
    "INT": ("0", "1", "2", "-3", "7", "12"),
    "BIGINT": ("CAST(5 AS BIGINT)", "10000000000"),
    "DECIMAL": ("1.5", "0.25", "-2.0", "10.00"),
    "DOUBLE": ("0.5e0", "2e0", "-1.25e0"),
    "STRING": ("'a'", "'bc'", "'x,y'", "'Äb'", "''", "'12'"),
    "FLOAT": ("CAST(0.5 AS FLOAT)",),
    "BOOLEAN": ("TRUE", "FALSE"),
    "DATE": ("DATE '2020-01-01'", "DATE '2019-12-31'"),
    "TIME": ("TIME '08:10:00'",),
    "TIMESTAMP": ("TIMESTAMP '2020-01-01 08:10:00'", "TIMESTAMP '2019-12-31 23:59:59.500'"),
    "ARRAY": ("ARRAY[1, 2, 2]",),
}

Scope = Mapping[str, Sequence[str]]
"""Columns by type."""


def expression(random: Random, type: str, scope: Scope, depth: int) -> Node:
    """Return a random expression of the type over the columns."""
    columns = scope.get(type, ())
    if depth <= 0 or random.random() < 0.25:
        if columns and random.random() < 0.85:
            return Node(random.choice(columns), type=type)
        return Node(random.choice(LITERALS[type]), type=type)
    forms = list(FORMS[type])
    if random.random() < 0.15:
        forms = FORMS["any"] + (FORMS["comparable"] if type in COMPARABLE else [])
    text, arguments = random.choice(forms)
    some = {"number": random.choice(NUMBERS), "comparable": random.choice(COMPARABLE), "any": random.choice(ANY)}
    types = [type if name == "=" else some.get(name, name) for name in arguments.split()]
    assert text.count(HOLE) == len(types), text
    children = [expression(random, each, scope, depth - 1) for each in types]
    # The planner folds a form over constants, where the two engines differ more often than over
    # rows.
    if children and not any(node.text in all_columns(scope) for child in children for node in child.walk()):
        at = next((at for at, each in enumerate(types) if scope.get(each)), None)
        if at is not None:
            children[at] = Node(random.choice(scope[types[at]]), type=types[at])
    return Node(text, tuple(children), type=type)


def all_columns(scope: Scope) -> set[str]:
    """Return all columns."""
    return {name for names in scope.values() for name in names}
