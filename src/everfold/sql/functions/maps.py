"""Maps: the constructor, their parts and their union. A map has each key once, and no NULL key."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions.build_map import build_map, fail_at_null_key
from everfold.sql.functions.coercion import common_type, convert_to, kind, types_of
from everfold.sql.functions.entry import Args, Function, Rule, SqlWriter, Typed
from everfold.sql.functions.writer import Writer
from everfold.types import ArrayType, MapType, RowField, RowType


def _map_rule(args: Args) -> Typed | None:
    if not args or len(args) % 2:
        return None
    key, value = common_type(types_of(args[::2])), common_type(types_of(args[1::2]))
    if key is None or value is None or "null" in (kind(key), kind(value)):
        return None
    return tuple(convert_to(arg, value if at % 2 else key) for at, arg in enumerate(args)), MapType(
        key=key, value=value, nullable=False
    )


def _map(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    keys, values = texts[::2], texts[1::2]
    if writer.spark:
        nulls = [f"{text} IS NULL" for text, arg in zip(keys, call.args[::2], strict=True) if arg.type.nullable]
        whole = f"map({', '.join(texts)})"
        return f"CASE WHEN {' OR '.join(nulls)} THEN {fail_at_null_key(writer)} ELSE {whole} END" if nulls else whole
    if _are_distinct(call.args[::2]):
        return f"map([{', '.join(keys)}], [{', '.join(values)}])"
    name, other = writer.new_variable(), writer.new_variable()
    arrays = {name: f"[{', '.join(keys)}]", other: f"[{', '.join(values)}]"}
    return writer.let_all(arrays, build_map(writer, name, other))


def _are_distinct(keys: Sequence[Expr]) -> bool:
    """Return whether the keys are different constants."""
    constants = [key.value for key in keys if isinstance(key, Literal) and key.value is not None]
    return len(keys) == len(constants) == len({str(each) for each in constants})


def _part_rule(what: str) -> Rule:
    def rule(args: Args) -> Typed | None:
        if len(args) != 1 or not isinstance(args[0].type, MapType):
            return None
        of = args[0].type
        if what == "keys":
            return args, ArrayType(element=of.key)
        if what == "values":
            return args, ArrayType(element=of.value)
        return args, ArrayType(
            element=RowType(fields=(RowField(name="key", type=of.key), RowField(name="value", type=of.value)))
        )

    return rule


def _from_arrays_rule(args: Args) -> Typed | None:
    if len(args) != 2 or not all(isinstance(arg.type, ArrayType) for arg in args):
        return None
    key, value = (arg.type.element for arg in args if isinstance(arg.type, ArrayType))
    return args, MapType(key=key, value=value)


def _from_arrays(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    keys, values = texts
    size = "array_size" if writer.spark else "length"
    fail = writer.fail("wrong-size: the keys and the values of a MAP are not equally many")
    return f"CASE WHEN {size}({keys}) <> {size}({values}) THEN {fail} ELSE {build_map(writer, keys, values)} END"


def _union_rule(args: Args) -> Typed | None:
    common = common_type(types_of(args)) if args else None
    if not isinstance(common, MapType):
        return None
    return tuple(convert_to(arg, common) for arg in args), common.as_nullable()


def _union(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Merge maps; for equal keys the value of the last map is kept."""
    if not writer.spark:
        known = " AND ".join(f"{text} IS NOT NULL" for text in texts)
        return f"CASE WHEN {known} THEN map_concat({', '.join(texts)}) END" if len(texts) > 1 else texts[0]
    whole = texts[0]
    for text in texts[1:]:
        key, value = writer.new_variable(), writer.new_variable()
        left = f"map_filter({whole}, ({key}, {value}) -> NOT map_contains_key({text}, {key}))"
        whole = f"map_concat({left}, {text})"
    return whole


def _entry(name: str, rule: Rule, sql: str | SqlWriter, doc: str, usage: str, operator: bool = False) -> Function:
    return Function(name=name, rule=rule, spark=sql, duckdb=sql, doc=doc, usage=usage, operator=operator)


FUNCTIONS = (
    _entry("MAP", _map_rule, _map, "Map of alternating keys and values; for equal keys the last value is kept.", "MAP[<ANY key>, <ANY value>, …]", operator=True),
    _entry("MAP_KEYS", _part_rule("keys"), "map_keys({0})", "Keys of a map.", "MAP_KEYS(<MAP>)"),
    _entry("MAP_VALUES", _part_rule("values"), "map_values({0})", "Values of a map.", "MAP_VALUES(<MAP>)"),
    _entry("MAP_ENTRIES", _part_rule("entries"), "map_entries({0})", "Entries of a map, as rows.", "MAP_ENTRIES(<MAP>)"),
    _entry("MAP_FROM_ARRAYS", _from_arrays_rule, _from_arrays, "Map of an array of keys and an array of values.", "MAP_FROM_ARRAYS(<ARRAY>, <ARRAY>)"),
    _entry("MAP_UNION", _union_rule, _union, "Merges maps; for equal keys the value of the last map is kept.", "MAP_UNION(<MAP>, …)"),
)  # fmt: skip
