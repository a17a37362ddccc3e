"""Hashes and encodings of strings and bytes."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.expressions import Call, Literal
from everfold.sql.functions.cast_from_text import matches
from everfold.sql.functions.entry import Args, Function, Typed, Unsupported
from everfold.sql.functions.signatures import signature
from everfold.sql.functions.writer import Writer
from everfold.types import StringType

_NO_SHA = Unsupported("DuckDB has only SHA-1 and SHA-256")
_UTF8 = ("UTF-8", "UTF8")
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}(==)?|[A-Za-z0-9+/]{3}=?)?$"


def _hash(name: str, length: int, spark: str, duckdb: str | Unsupported) -> Function:
    return Function(
        name=name,
        rule=signature(f"STRING -> CHAR({length})"),
        spark=spark,
        duckdb=duckdb,
        doc=f"{name} hash as hexadecimal digits.",
        usage=f"{name}(<STRING>)",
    )


def _sha2_rule(args: Args) -> Typed | None:
    typed = signature("STRING INT -> STRING")(args)
    if not isinstance(typed, tuple) or not isinstance(args[1], Literal) or args[1].value not in (224, 256, 384, 512):
        return None
    return typed[0], StringType(length=128)


def _sha2_duckdb(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    size = call.args[1]
    if not isinstance(size, Literal) or size.value != 256:
        raise writer.unsupported(call, _NO_SHA.reason)
    return f"sha256({texts[0]})"


def _charset(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    name = call.args[1]
    if not isinstance(name, Literal) or str(name.value).upper() not in _UTF8:
        raise writer.unsupported(call, "DuckDB has only UTF-8 strings")
    return f"{call.function.lower()}({texts[0]})"


def _base64(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    return f"base64(encode({texts[0]}))" if isinstance(call.args[0].type, StringType) else f"base64({texts[0]})"


def _from_base64(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Fail the job if the string is not valid, as in Flink.

    DuckDB cannot decode text that is not UTF-8.
    """
    text = texts[0]
    if writer.spark:
        decoded = f"CAST(unbase64({text}) AS STRING)"
    else:
        padded = f"rpad({text}, CAST(4 * ceil(length({text}) / 4) AS INTEGER), '=')"
        not_utf8 = writer.fail_with_value("cast-failed", text, "is not the Base64 of UTF-8 text")
        decoded = f"coalesce(TRY(decode(from_base64({padded}))), {not_utf8})"
    fail = writer.fail_with_value("cast-failed", text, "is not valid Base64")
    return f"CASE WHEN {matches(writer, text, _BASE64)} THEN {decoded} WHEN {text} IS NOT NULL THEN {fail} END"


FUNCTIONS = (
    _hash("MD5", 32, "md5({0})", "md5({0})"),
    _hash("SHA1", 40, "sha1({0})", "sha1({0})"),
    _hash("SHA224", 56, "sha2({0}, 224)", _NO_SHA),
    _hash("SHA256", 64, "sha2({0}, 256)", "sha256({0})"),
    _hash("SHA384", 96, "sha2({0}, 384)", _NO_SHA),
    _hash("SHA512", 128, "sha2({0}, 512)", _NO_SHA),
    Function(name="SHA2", rule=_sha2_rule, spark="sha2({0}, {1})", duckdb=_sha2_duckdb, usage="SHA2(<STRING>, 224, 256, 384 or 512)",
             doc="SHA-2 hash of the given number of bits, as hexadecimal digits."),
    Function(name="TO_BASE64", rule=signature("STRING -> STRING", "BYTES -> STRING"), spark="base64(CAST({0} AS BINARY))",
             duckdb=_base64, doc="Encodes a string as Base64.", usage="TO_BASE64(<STRING>)"),
    Function(name="FROM_BASE64", rule=signature("STRING -> STRING"), spark=_from_base64, duckdb=_from_base64,
             doc="Decodes a Base64 string; fails the job if it is not valid.", usage="FROM_BASE64(<STRING>)"),
    Function(name="HEX", rule=signature("BIGINT -> STRING", "STRING -> STRING"), spark="hex({0})",
             duckdb=lambda writer, call, texts: f"hex({texts[0]})" if isinstance(call.args[0].type, StringType)
             else f"printf('%X', CAST({texts[0]} AS BIGINT))",
             doc="A number, or the bytes of a string, as hexadecimal digits.", usage="HEX(<BIGINT or STRING>)"),
    Function(name="UNHEX", rule=signature("STRING -> BYTES"), spark="unhex({0})",
             duckdb="CASE WHEN regexp_full_match({0}, '([0-9a-fA-F][0-9a-fA-F])*') THEN unhex({0}) END",
             doc="Decodes hexadecimal digits to bytes; NULL if there are other characters.", usage="UNHEX(<STRING>)"),
    Function(name="BIN", rule=signature("BIGINT -> STRING"), spark="bin({0})", duckdb="coalesce(nullif(ltrim(bin(CAST({0} AS BIGINT)), '0'), ''), CASE WHEN {0} = 0 THEN '0' END)",
             doc="A number as binary digits.", usage="BIN(<BIGINT>)"),
    Function(name="ENCODE", rule=signature("STRING TEXT -> BYTES"), spark="encode({0}, {1})", duckdb=_charset,
             doc="Encodes a string to bytes in a character set.", usage="ENCODE(<STRING>, <STRING charset>)"),
    Function(name="DECODE", rule=signature("BYTES TEXT -> STRING"), spark="decode({0}, {1})", duckdb=_charset,
             doc="Decodes bytes in a character set to a string.", usage="DECODE(<BYTES>, <STRING charset>)"),
    Function(name="URL_ENCODE", rule=signature("STRING -> STRING"), spark="url_encode({0})",
             duckdb="replace(url_encode({0}), '%20', '+')", doc="Encodes a string for the query of a URL.", usage="URL_ENCODE(<STRING>)"),
    Function(name="URL_DECODE", rule=signature("STRING -> STRING"), spark="try_url_decode({0})",
             duckdb="CASE WHEN NOT regexp_matches({0}, '%([^0-9a-fA-F]|.[^0-9a-fA-F]|.?$)') THEN url_decode(replace({0}, '+', ' ')) END",
             doc="Decodes a string from the query of a URL; NULL if it is malformed.", usage="URL_DECODE(<STRING>)"),
    Function(name="UUID", rule=signature(" -> CHAR(36) NOT NULL"), spark="uuid()", duckdb="CAST(uuid() AS VARCHAR)", deterministic=False,
             doc="Random identifier; a batch that is repeated after a crash gets another one.", usage="UUID()"),
)  # fmt: skip
