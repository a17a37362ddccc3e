"""Three-valued logic: NULL is UNKNOWN."""

from __future__ import annotations

from everfold.sql.functions.entry import Function
from everfold.sql.functions.signatures import signature


def _test(name: str, template: str, doc: str, parameter: str = "BOOLEAN") -> Function:
    return Function(
        name=name,
        rule=signature(f"{parameter} -> BOOLEAN"),
        spark=template,
        duckdb=template,
        doc=doc,
        usage=f"NOT <{parameter}>" if name == "NOT" else f"<{parameter}> {name}",
        operator=True,
    )


FUNCTIONS = (
    Function(
        name="AND",
        rule=signature("BOOLEAN BOOLEAN+ -> BOOLEAN"),
        spark=lambda writer, call, texts: "(" + " AND ".join(texts) + ")",
        duckdb=lambda writer, call, texts: "(" + " AND ".join(texts) + ")",
        doc="TRUE if all operands are TRUE; FALSE if any is FALSE.",
        usage="<BOOLEAN> AND <BOOLEAN>",
        operator=True,
    ),
    Function(
        name="OR",
        rule=signature("BOOLEAN BOOLEAN+ -> BOOLEAN"),
        spark=lambda writer, call, texts: "(" + " OR ".join(texts) + ")",
        duckdb=lambda writer, call, texts: "(" + " OR ".join(texts) + ")",
        doc="TRUE if any operand is TRUE; FALSE if all are FALSE.",
        usage="<BOOLEAN> OR <BOOLEAN>",
        operator=True,
    ),
    _test("NOT", "(NOT {0})", "Negation; UNKNOWN stays UNKNOWN."),
    _test("IS TRUE", "({0} IS TRUE)", "Whether the value is TRUE; never UNKNOWN."),
    _test("IS NOT TRUE", "({0} IS NOT TRUE)", "Whether the value is FALSE or UNKNOWN."),
    _test("IS FALSE", "({0} IS FALSE)", "Whether the value is FALSE; never UNKNOWN."),
    _test("IS NOT FALSE", "({0} IS NOT FALSE)", "Whether the value is TRUE or UNKNOWN."),
    _test("IS UNKNOWN", "({0} IS NULL)", "Whether the value is UNKNOWN."),
    _test("IS NOT UNKNOWN", "({0} IS NOT NULL)", "Whether the value is TRUE or FALSE."),
    _test("IS NULL", "({0} IS NULL)", "Whether the value is NULL.", "ANY"),
    _test("IS NOT NULL", "({0} IS NOT NULL)", "Whether the value is not NULL.", "ANY"),
)
