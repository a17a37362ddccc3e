"""Expressions: the tree of a string, shown as its canonical string, which must parse to the same
tree.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everfold.errors import SqlError
from everfold.sql import syntax
from everfold.sql.dialects.flink import parse_expression, parse_query
from everfold.sql.dialects.literals import interval_value
from everfold.sql.dialects.render import render
from everfold.types import BIGINT, INT, DecimalType

CANONICAL = [
    # names
    ("a", "`a`"),
    ("`a``b`.c", "`a``b`.`c`"),
    ("payload.user.id", "`payload`.`user`.`id`"),
    ("t.`order`.group", "`t`.`order`.`group`"),
    ("user", "`user`"),
    ("value + day - hour", "`value` + `day` - `hour`"),
    ("count", "`count`"),
    ("timestamp", "`timestamp`"),
    ("`interval` - 1", "`interval` - 1"),
    ("interval - x", "`interval` - `x`"),
    ("größe", "`größe`"),
    ("EXPR$0", "`EXPR$0`"),
    # precedence, as Calcite's
    ("1 + 2 * 3", "1 + 2 * 3"),
    ("(1 + 2) * 3", "(1 + 2) * 3"),
    ("1 - (2 - 3)", "1 - (2 - 3)"),
    ("1 - 2 - 3", "1 - 2 - 3"),
    ("a || b = c", "`a` || `b` = `c`"),
    ("1 + a || b", "1 + `a` || `b`"),
    ("a || b * c", "`a` || `b` * `c`"),
    ("a = b IS NULL", "`a` = `b` IS NULL"),
    ("a = (b IS NULL)", "`a` = (`b` IS NULL)"),
    ("NOT a = b AND c", "NOT `a` = `b` AND `c`"),
    ("NOT (a = b AND c)", "NOT (`a` = `b` AND `c`)"),
    ("a OR b AND c", "`a` OR `b` AND `c`"),
    ("(a OR b) AND c", "(`a` OR `b`) AND `c`"),
    ("a AND (b AND c)", "`a` AND `b` AND `c`"),
    ("NOT NOT a", "NOT NOT `a`"),
    ("-a * b", "-`a` * `b`"),
    ("-(a * b)", "-(`a` * `b`)"),
    ("- -1", "- -1"),
    ("+a", "`a`"),
    ("-a.b[1]", "-`a`.`b`[1]"),
    ("a % 2 <> 0", "`a` % 2 <> 0"),
    ("a != b", "`a` <> `b`"),
    ("1 < 2 = TRUE", "1 < 2 = TRUE"),
    ("((((a))))", "`a`"),
    # predicates
    ("a IS NOT NULL", "`a` IS NOT NULL"),
    ("NOT a IS NULL", "`a` IS NOT NULL"),
    ("(a = 1) IS UNKNOWN", "`a` = 1 IS UNKNOWN"),
    ("a IS NOT TRUE", "`a` IS NOT TRUE"),
    ("a IS DISTINCT FROM b + 1", "`a` IS DISTINCT FROM `b` + 1"),
    ("a IS NOT DISTINCT FROM b", "`a` IS NOT DISTINCT FROM `b`"),
    ("a = b IS DISTINCT FROM c", "`a` = `b` IS DISTINCT FROM `c`"),
    ("a BETWEEN 1 AND 2 AND b", "`a` BETWEEN 1 AND 2 AND `b`"),
    ("a NOT BETWEEN ASYMMETRIC 1 AND 2", "`a` NOT BETWEEN 1 AND 2"),
    ("a BETWEEN SYMMETRIC 2 AND 1 + 1", "`a` BETWEEN SYMMETRIC 2 AND 1 + 1"),
    ("a IN (1, 2)", "`a` IN (1, 2)"),
    ("a NOT IN (SELECT b FROM t)", "`a` NOT IN (SELECT `b` FROM `t`)"),
    ("a > SOME (SELECT b FROM t)", "`a` > ANY (SELECT `b` FROM `t`)"),
    ("a <= ALL (SELECT b FROM t) IS TRUE", "`a` <= ALL (SELECT `b` FROM `t`) IS TRUE"),
    ("a = ANY (SELECT b FROM t)", "`a` IN (SELECT `b` FROM `t`)"),
    ("a <> ALL (1, 2)", "`a` NOT IN (1, 2)"),
    ("a >= ALL (1, b) AND c", "`a` >= 1 AND `a` >= `b` AND `c`"),
    ("a < ANY (1, b)", "`a` < 1 OR `a` < `b`"),
    ("(a, b) IN ((1, 2), (3, 4))", "(`a`, `b`) IN ((1, 2), (3, 4))"),
    ("a LIKE 'x!%' ESCAPE '!'", "`a` LIKE 'x!%' ESCAPE '!'"),
    ("a NOT LIKE 'x!%' ESCAPE '!'", "`a` NOT LIKE 'x!%' ESCAPE '!'"),
    ("a NOT SIMILAR TO 'x'", "`a` NOT SIMILAR TO 'x'"),
    ("EXISTS (SELECT 1)", "EXISTS (SELECT 1)"),
    ("NOT EXISTS (SELECT 1)", "NOT EXISTS (SELECT 1)"),
    ("(SELECT MAX(a) FROM t) + 1", "(SELECT MAX(`a`) FROM `t`) + 1"),
    ("((SELECT 1) + 1)", "(SELECT 1) + 1"),
    ("a IS NOT JSON OBJECT", "`a` IS NOT JSON OBJECT"),
    ("a IS JSON", "`a` IS JSON VALUE"),
    # literals
    ("'it''s'", "'it''s'"),
    ("'a'\n  'b'", "'ab'"),
    (r"U&'\00e9x'", "'éx'"),
    ("U&'a!00e9!!' UESCAPE '!'", "'aé!'"),
    (r"E'a\nb\u0041\''", "'a\nbA'''"),
    ("x'0aff'", "X'0AFF'"),
    ("007 + 5. + .5 + 0.50 + 1e3 + 1.5E-2 + 1E+2", "7 + 5 + .5 + 0.50 + 1E3 + 1.5E-2 + 1E2"),
    ("true AND FALSE", "TRUE AND FALSE"),
    ("NULL", "NULL"),
    ("DATE '2020-1-2'", "DATE '2020-01-02'"),
    ("TIME '1:02:03.5'", "TIME '01:02:03.5'"),
    ("TIMESTAMP '2020-01-02'", "TIMESTAMP '2020-01-02 00:00:00'"),
    ("TIMESTAMP '2020-01-02 03:04:05.123456'", "TIMESTAMP '2020-01-02 03:04:05.123456'"),
    ("bidtime - INTERVAL '1' SECOND", "`bidtime` - INTERVAL '1' SECOND"),
    ("INTERVAL '10' MINUTES", "INTERVAL '10' MINUTE"),
    ("INTERVAL 5 DAY", "INTERVAL '5' DAY"),
    ("INTERVAL -'1' DAY", "INTERVAL '-1' DAY"),
    ("INTERVAL '100' DAY(3)", "INTERVAL '100' DAY"),
    ("INTERVAL '1 10:30:00.5' DAY TO SECOND(3)", "INTERVAL '1 10:30:00.5' DAY TO SECOND"),
    # calls
    ("Upper(a)", "UPPER(`a`)"),
    ("`upper`(a)", "UPPER(`a`)"),
    ("IF(a, 1, 2)", "IF(`a`, 1, 2)"),
    ("left(a, 2) || RIGHT(a, 1)", "LEFT(`a`, 2) || RIGHT(`a`, 1)"),
    ("COUNT(*)", "COUNT(*)"),
    ("COUNT(DISTINCT a)", "COUNT(DISTINCT `a`)"),
    ("SUM(ALL a) FILTER (WHERE b > 0)", "SUM(`a`) FILTER (WHERE `b` > 0)"),
    ("LISTAGG(a, '-')", "LISTAGG(`a`, '-')"),
    ("ARRAY_AGG(a ORDER BY b DESC)", "ARRAY_AGG(`a`) WITHIN GROUP (ORDER BY `b` DESC)"),
    ("LAG(a, 1) IGNORE NULLS OVER w", "LAG(`a`, 1) IGNORE NULLS OVER `w`"),
    ("f(x => 1, y => 2)", "F(x => 1, y => 2)"),
    ("PROCTIME()", "PROCTIME()"),
    ("CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
    ("current_date", "CURRENT_DATE"),
    ("CURRENT_DATE()", "CURRENT_DATE"),
    ("CAST(a AS DECIMAL(10, 2))", "CAST(`a` AS DECIMAL(10, 2))"),
    (
        "TRY_CAST(a AS ROW<x INT NOT NULL, y ARRAY<STRING>>)",
        "TRY_CAST(`a` AS ROW<`x` INT NOT NULL, `y` ARRAY<STRING>>)",
    ),
    ("EXTRACT(hour FROM ts)", "EXTRACT(HOUR FROM `ts`)"),
    ("FLOOR(ts TO day)", "FLOOR(`ts` TO DAY)"),
    ("FLOOR(a)", "FLOOR(`a`)"),
    ("CEIL(a, 2)", "CEIL(`a`, 2)"),
    ("TIMESTAMPADD(SQL_TSI_DAY, 1, ts)", "TIMESTAMPADD(DAY, 1, `ts`)"),
    ("TIMESTAMPDIFF(MINUTE, a, b)", "TIMESTAMPDIFF(MINUTE, `a`, `b`)"),
    ("TRIM(a)", "TRIM(BOTH ' ' FROM `a`)"),
    ("TRIM('x' FROM a)", "TRIM(BOTH 'x' FROM `a`)"),
    ("TRIM(LEADING FROM a)", "TRIM(LEADING ' ' FROM `a`)"),
    ("TRIM(TRAILING 'x' FROM a)", "TRIM(TRAILING 'x' FROM `a`)"),
    ("TRIM(both)", "TRIM(BOTH ' ' FROM `both`)"),
    ("SUBSTRING(a FROM 2 FOR 3)", "SUBSTRING(`a`, 2, 3)"),
    ("SUBSTRING(a, 2)", "SUBSTRING(`a`, 2)"),
    ("POSITION('a' IN b)", "POSITION('a' IN `b`)"),
    ("OVERLAY(a PLACING b FROM 2 FOR 3)", "OVERLAY(`a` PLACING `b` FROM 2 FOR 3)"),
    ("CASE WHEN a THEN 1 ELSE 2 END", "CASE WHEN `a` THEN 1 ELSE 2 END"),
    ("CASE a WHEN 1 THEN 'x' WHEN 2 THEN 'y' END", "CASE `a` WHEN 1 THEN 'x' WHEN 2 THEN 'y' END"),
    ("ROW(1, 'a')", "ROW(1, 'a')"),
    ("ARRAY[1, 2][1]", "ARRAY[1, 2][1]"),
    ("MAP['a', 1]['a']", "MAP['a', 1]['a']"),
    ("tags[1].name", "`tags`[1].`name`"),
    ("(a).b", "(`a`).`b`"),
    ("f(x).y.z", "F(`x`).`y`.`z`"),
    ("CAST(a AS ROW<x INT>).x", "CAST(`a` AS ROW<`x` INT>).`x`"),
    (
        "JSON_VALUE(j, '$.a' RETURNING INT NULL ON EMPTY ERROR ON ERROR)",
        "JSON_VALUE(`j`, '$.a' RETURNING INT NULL ON EMPTY ERROR ON ERROR)",
    ),
    ("JSON_VALUE(j, 'lax $.a' DEFAULT 1 + 1 ON EMPTY)", "JSON_VALUE(`j`, 'lax $.a' DEFAULT 1 + 1 ON EMPTY)"),
    ("JSON_EXISTS(j, '$.a' FALSE ON ERROR)", "JSON_EXISTS(`j`, '$.a' FALSE ON ERROR)"),
    (
        "JSON_QUERY(j, '$' WITH WRAPPER EMPTY ARRAY ON EMPTY)",
        "JSON_QUERY(`j`, '$' WITH UNCONDITIONAL ARRAY WRAPPER EMPTY ARRAY ON EMPTY)",
    ),
    (
        "JSON_OBJECT('a' VALUE 1, KEY 'b' VALUE c ABSENT ON NULL)",
        "JSON_OBJECT(KEY 'a' VALUE 1, KEY 'b' VALUE `c` ABSENT ON NULL)",
    ),
    ("JSON_OBJECT('x' : 1)", "JSON_OBJECT(KEY 'x' VALUE 1)"),
    ("JSON_OBJECT()", "JSON_OBJECT()"),
    ("JSON_ARRAY(1, a NULL ON NULL)", "JSON_ARRAY(1, `a` NULL ON NULL)"),
    ("JSON_ARRAYAGG(a ORDER BY b)", "JSON_ARRAYAGG(`a` ORDER BY `b`)"),
    # OVER
    (
        "SUM(a) OVER (PARTITION BY b ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW)",
        "SUM(`a`) OVER (PARTITION BY `b` ORDER BY `ts` RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW)",
    ),
    (
        "SUM(a) OVER (ORDER BY ts ROWS 2 PRECEDING)",
        "SUM(`a`) OVER (ORDER BY `ts` ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    ),
    ("SUM(a) OVER (w ORDER BY ts)", "SUM(`a`) OVER (`w` ORDER BY `ts`)"),
    ("COUNT(*) OVER ()", "COUNT(*) OVER ()"),
    (
        "SUM(a) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
        "SUM(`a`) OVER (ORDER BY `ts` ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    ),
]


@pytest.mark.parametrize(("sql", "canonical"), CANONICAL)
def test_an_expression_has_a_canonical_string(sql: str, canonical: str) -> None:
    tree = parse_expression(sql)
    assert render(tree) == canonical
    assert parse_expression(canonical) == tree


@pytest.mark.parametrize("sql", [sql for sql, _ in CANONICAL])
def test_every_node_has_a_position(sql: str) -> None:
    text = f"SELECT 'é',\n  {sql}\nFROM t"
    for node in syntax.walk(parse_query(text)):
        assert node.span is not None, repr(node)
        assert 0 <= node.span.start < node.span.end <= len(text)
        for child in syntax.children(node):
            assert child.span is not None
            assert node.span.start <= child.span.start
            assert child.span.end <= node.span.end


def test_the_span_of_a_node() -> None:
    text = "SELECT a,\n  SUM(price + 1) AS s FROM t"
    (call,) = syntax.find_all(parse_query(text, "q.sql"), syntax.FunctionCall)
    span = call.span
    assert span is not None
    assert (text[span.start : span.end], span.line, span.column, span.source) == ("SUM(price + 1)", 2, 3, "q.sql")


def test_a_tree_is_rewritten_from_the_top() -> None:
    tree = parse_expression("F(a, G(a), H(b))")

    def change(node: syntax.Node) -> syntax.Node | None:
        match node:
            case syntax.ColumnPath(names=("a",)):
                return parse_expression("a + a")
            case syntax.FunctionCall(name="G"):
                return node
            case _:
                return None

    changed = syntax.transform(tree, change)
    assert render(changed) == "F(`a` + `a`, G(`a`), H(`b`))"
    assert render(tree) == "F(`a`, G(`a`), H(`b`))"
    assert changed.span == tree.span
    assert syntax.transform(tree, lambda node: None) is tree


def test_nodes_have_the_documented_fields() -> None:
    path = parse_expression("a.b")
    assert isinstance(path, syntax.ColumnPath)
    assert path.names == ("a", "b")
    access = parse_expression("f(x).y")
    assert isinstance(access, syntax.FieldAccess)
    assert access.field.name == "y"
    cast = parse_expression("TRY_CAST(a AS BIGINT)")
    assert isinstance(cast, syntax.Cast)
    assert (cast.type, cast.safe) == (BIGINT, True)
    assert cast != parse_expression("CAST(a AS BIGINT)")
    assert cast != parse_expression("TRY_CAST(a AS INT)")
    call = parse_expression("Sum(DISTINCT a) FILTER (WHERE b)")
    assert isinstance(call, syntax.FunctionCall)
    assert (call.name, call.original_name, call.distinct, call.special) == ("SUM", "Sum", True, False)
    assert call.filter == parse_expression("b")
    json = parse_expression("JSON_VALUE(j, '$.a' RETURNING DECIMAL(3, 1) DEFAULT 5 ON EMPTY NULL ON ERROR)")
    assert isinstance(json, syntax.FunctionCall)
    assert json.options == (
        syntax.CallOption("RETURNING", type=DecimalType(precision=3, scale=1)),
        syntax.CallOption("ON EMPTY", "DEFAULT", default=syntax.NumberLiteral("5")),
        syntax.CallOption("ON ERROR", "NULL"),
    )
    assert parse_expression("TIMESTAMP '2020-01-02 03:04:05.120'") == syntax.TemporalLiteral(
        "TIMESTAMP", "2020-01-02 03:04:05.120", 3
    )
    assert parse_expression("INTERVAL '1:30' MINUTES TO SECONDS") == syntax.IntervalLiteral("1:30", "MINUTE", "SECOND")


def test_equality_compares_meaning() -> None:
    assert parse_expression("Sum( `a` )") == parse_expression("SUM(a)")
    assert parse_expression("SUM(a)") != parse_expression("SUM(A)")
    assert parse_expression("a.b") != parse_expression("a.B")
    assert parse_expression("'a'") != parse_expression("'A'")
    assert parse_expression("COUNT(a)") != parse_expression("COUNT(DISTINCT a)")
    assert parse_expression("x[1]") != parse_expression("ITEM(x, 1)")
    assert parse_expression("DATE '2020-01-02'") != parse_expression("'2020-01-02'")
    assert parse_expression("CAST(a AS INT)") != parse_expression("CAST(a AS INT NOT NULL)")


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("INTERVAL '10' MINUTES", (600_000, False)),
        ("INTERVAL '0.001' SECOND", (1, False)),
        ("INTERVAL '1.5' SECONDS", (1_500, False)),
        ("INTERVAL '90:30' MINUTE TO SECOND", (5_430_000, False)),
        ("INTERVAL '1:30' MINUTE TO SECOND", (90_000, False)),
        ("INTERVAL '1 10:30:00.5' DAY TO SECOND", (124_200_500, False)),
        ("INTERVAL '2 3' DAY TO HOUR", (183_600_000, False)),
        ("INTERVAL '2 3:04' DAY TO MINUTE", (183_840_000, False)),
        ("INTERVAL '3:04' HOUR TO MINUTE", (11_040_000, False)),
        ("INTERVAL '3:04:05' HOUR TO SECOND", (11_045_000, False)),
        ("INTERVAL '1-2' YEAR TO MONTH", (14, True)),
        ("INTERVAL '2' YEARS", (24, True)),
        ("INTERVAL '1' QUARTER", (3, True)),
        ("INTERVAL '1' WEEK", (604_800_000, False)),
        ("INTERVAL -'1' DAY", (-86_400_000, False)),
        ("INTERVAL '-1' DAY", (-86_400_000, False)),
        ("INTERVAL -'-1' DAY", (86_400_000, False)),
        ("INTERVAL '+1' DAY", (86_400_000, False)),
        ("INTERVAL '-1-2' YEAR TO MONTH", (-14, True)),
        ("INTERVAL 5 DAY", (432_000_000, False)),
    ],
)
def test_intervals_have_a_value(sql: str, value: tuple[int, bool]) -> None:
    node = parse_expression(sql)
    assert isinstance(node, syntax.IntervalLiteral)
    assert interval_value(node) == value


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INTERVAL '1:70' MINUTE TO SECOND", "SECOND is at most 59 after another unit, found 70"),
        ("INTERVAL '1-13' YEAR TO MONTH", "MONTH is at most 11 after another unit, found 13"),
        ("INTERVAL 'x' DAY", "an interval of DAY is written '1'"),
        ("INTERVAL '1' DAY TO SECOND", "an interval of DAY TO SECOND is written '1 10:30:05.5'"),
        ("INTERVAL '1' DAY TO YEAR", "there is no INTERVAL DAY TO YEAR"),
        ("INTERVAL '0.0001' SECOND", "an interval has at most millisecond precision"),
        ("INTERVAL '1.5' MINUTE", "an interval of MINUTE is written '30'"),
        ("INTERVAL '99999999999999999' DAY", "the interval is too long"),
        ("DATE '2020-13-01'", "'2020-13-01' is not a valid DATE: month must be in 1..12"),
        ("DATE '2020-01-01 10:00:00'", "expected the form yyyy-MM-dd"),
        ("TIME '10:00'", "expected the form HH:mm:ss[.fraction]"),
        ("TIMESTAMP '2020-01-02T10:00:00'", "expected the form yyyy-MM-dd HH:mm:ss[.fraction]"),
        ("TIMESTAMP '2020-01-02 25:00:00'", "hour must be in 0..23"),
        ("x'0a1'", "expected pairs of hex digits"),
        (r"U&'\00g1'", "expected four hex digits"),
    ],
)
def test_wrong_literals_are_refused(sql: str, message: str) -> None:
    with pytest.raises(SqlError) as error:
        parse_expression(sql)
    assert error.value.code == "wrong-literal"
    assert message in error.value.diagnostics[0].message


def test_long_chains_of_and_or_are_balanced_and_others_are_refused() -> None:
    for word in ("AND", "OR"):
        terms = [f"a = {number}" for number in range(5_000)]
        tree = parse_expression(f" {word} ".join(terms))
        assert render(tree) == f" {word} ".join(f"`a` = {number}" for number in range(5_000))
    assert render(parse_expression(" + ".join(["a"] * 140))) == " + ".join(["`a`"] * 140)
    with pytest.raises(SqlError) as error:
        parse_expression(" + ".join(["a"] * 5_000))
    assert error.value.code == "too-deep"


def test_casts_compare_their_types() -> None:
    assert parse_expression("CAST(1 AS INTEGER)") == parse_expression("CAST(1 AS INT)")
    assert parse_expression("CAST(1 AS INT)") == syntax.Cast(syntax.NumberLiteral("1"), INT)


def _nest(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = ["=", "<>", "<", "+", "-", "*", "/", "%", "||", "AND", "OR", "LIKE", "NOT LIKE", "SIMILAR TO"]
    operators += ["IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
    forms = [
        "({})",
        "-{}",
        "- -{}",
        "NOT {}",
        "{} IS NOT NULL",
        "{} IS TRUE",
        "({})[1]",
        "({}).x",
        "F({}, 1)",
        "CAST({} AS INT)",
        "SUM({}) OVER w",
    ]
    forms += [
        "{} IN (1, {})",
        "{} NOT BETWEEN {} AND {}",
        "{} LIKE {} ESCAPE '!'",
        "CASE {} WHEN {} THEN {} END",
        "{} IS NOT JSON",
    ]
    pair = st.tuples(inner, st.sampled_from(operators), inner).map(" ".join)
    form = st.tuples(st.sampled_from(forms), inner, inner, inner).map(lambda each: each[0].format(*each[1:]))
    return pair | form


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.sampled_from(["a", "t.b", "1", ".5", "'x'", "NULL", "DATE '2020-01-01'", "INTERVAL '1' DAY", "x[1]"]),
        _nest,
        max_leaves=12,
    )
)
def test_canonical_strings_are_fixed_points(sql: str) -> None:
    """Each expression that parses has a canonical string that parses to the same tree and is a
    fixed point.
    """
    try:
        tree = parse_expression(sql)
    except SqlError:
        return
    text = render(tree)
    assert parse_expression(text) == tree
    assert render(parse_expression(text)) == text
