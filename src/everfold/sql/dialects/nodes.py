"""Nodes of expression and query trees that sqlglot lacks, or has in too many forms. The contract of all nodes stands in `flink.py`.

Two trees are equal (`==`, hash) when they mean the same text: places (`meta`) do not compare, names do, letter by letter.
"""

from __future__ import annotations

from sqlglot import exp

from everfold.types import DataType


class ColumnPath(exp.Expression, exp.Condition):
    """A name with dots, `a` or `t.a` or `a.b.c`: which part is a table, a column or a field of a ROW is for the binder to find out."""

    arg_types = {"parts": True}
    _hash_raw_args = True

    @property
    def parts(self) -> list[exp.Identifier]:
        """The identifiers, left to right, at least one."""
        parts: list[exp.Identifier] = self.args["parts"]
        return parts

    @property
    def names(self) -> tuple[str, ...]:
        """The parts' names."""
        return tuple(part.name for part in self.parts)

    @property
    def output_name(self) -> str:
        return self.parts[-1].name


class QualifiedStar(exp.Expression):
    """`t.*`: every column of one relation. A bare `*` is `exp.Star`."""

    arg_types = {"parts": True}
    _hash_raw_args = True

    @property
    def names(self) -> tuple[str, ...]:
        """The parts before the star."""
        return tuple(part.name for part in self.args["parts"])


class FieldAccess(exp.Expression, exp.Condition):
    """`f(x).city`, `rows[1].city`: a field of a ROW that is no plain path. `this` is the value, `field` an `exp.Identifier`."""

    arg_types = {"this": True, "field": True}
    _hash_raw_args = True

    @property
    def field(self) -> str:
        """The field's name."""
        name: str = self.args["field"].name
        return name


class CallOption(exp.Expression):
    """A clause inside a call's parentheses, as `NULL ON EMPTY`: `this` names it (`ON EMPTY`), the rest says what is wanted.

    `value` is a word (`NULL`, `ERROR`, …), `to` a `DataType`, `expression` a value; each only where the clause has one.
    """

    arg_types = {"this": True, "value": False, "to": False, "to_text": False, "expression": False}
    _hash_raw_args = True

    @property
    def value(self) -> str | None:
        """The word of the clause."""
        value: str | None = self.args.get("value")
        return value

    @property
    def to(self) -> DataType | None:
        """The type that the clause names."""
        to: DataType | None = self.args.get("to")
        return to


class FunctionCall(exp.Expression, exp.Condition):
    """Any function call, also those with a syntax of their own: what it means is the function registry's business.

    `this` is the name in capitals (`name`), `expressions` are the arguments; `special` says that it was written in a form of its own
    (`x[1]`, `ARRAY[1]`, `CURRENT_DATE`) and not as NAME(arguments). `meta["spelled"]` has the name as the author wrote it.
    """

    arg_types = {
        "this": True,
        "expressions": False,
        "special": False,
        "distinct": False,
        "order": False,
        "filter": False,
        "nulls": False,
        "options": False,
    }
    _hash_raw_args = True

    @property
    def special(self) -> bool:
        """Whether the call was written in a form of its own."""
        return bool(self.args.get("special"))

    @property
    def distinct(self) -> bool:
        """Whether the arguments follow DISTINCT."""
        return bool(self.args.get("distinct"))

    @property
    def filter(self) -> exp.Expression | None:
        """The condition of FILTER (WHERE …)."""
        found: exp.Expression | None = self.args.get("filter")
        return found

    @property
    def order(self) -> list[exp.Ordered]:
        """The sort keys of WITHIN GROUP (ORDER BY …)."""
        return self.args.get("order") or []

    @property
    def nulls(self) -> str | None:
        """`IGNORE` or `RESPECT`, where IGNORE NULLS or RESPECT NULLS follows."""
        nulls: str | None = self.args.get("nulls")
        return nulls

    @property
    def options(self) -> dict[str, CallOption]:
        """The clauses inside the parentheses by their names."""
        return {option.name: option for option in self.args.get("options") or []}

    @property
    def spelled(self) -> str:
        """The name as the author wrote it."""
        spelled: str = self.meta.get("spelled", self.name)
        return spelled


class FlinkCast(exp.Expression, exp.Condition):
    """CAST(this AS to), or TRY_CAST when `safe`; `to` is everfold's `DataType`, and `to_text` its text.

    Trees compare by their hashes, and INT and BIGINT have the same; their texts differ.
    """

    arg_types = {"this": True, "to": True, "to_text": True, "safe": False}
    _hash_raw_args = True

    @property
    def to(self) -> DataType:
        """The type wanted."""
        to: DataType = self.args["to"]
        return to

    @property
    def safe(self) -> bool:
        """Whether a value that does not fit becomes NULL."""
        return bool(self.args.get("safe"))


class TemporalLiteral(exp.Expression, exp.Condition):
    """DATE '…', TIME '…', TIMESTAMP '…': `kind` is the word, `this` the text, checked to be a real date or time.

    `precision` counts the digits of the fraction of a second, as Flink types the literal.
    """

    arg_types = {"this": True, "kind": True, "precision": False}
    _hash_raw_args = True

    @property
    def kind(self) -> str:
        """`DATE`, `TIME` or `TIMESTAMP`."""
        kind: str = self.args["kind"]
        return kind

    @property
    def precision(self) -> int:
        """Digits of the fraction of a second."""
        return int(self.args.get("precision") or 0)


class IntervalLiteral(exp.Expression, exp.Condition):
    """INTERVAL 'text' unit [TO last]: units are singular capitals; a sign before the quote is in `this`. `interval_value` computes it."""

    arg_types = {"this": True, "unit": True, "last": False}
    _hash_raw_args = True

    @property
    def unit(self) -> str:
        """The first, coarsest unit."""
        unit: str = self.args["unit"]
        return unit

    @property
    def last(self) -> str | None:
        """The unit after TO."""
        last: str | None = self.args.get("last")
        return last


class WindowTvf(exp.Expression):
    """TUMBLE, HOP, CUMULATE or SESSION in FROM, in either spelling.

    `this` is the kind in capitals, `table` an `exp.Table` (or `exp.Subquery`), `partition_by` a list of `ColumnPath`, `timecol` a
    `ColumnPath`, `alias` an `exp.TableAlias` or None; `arguments` are by role whatever their order was:
    TUMBLE: SIZE, OFFSET; HOP: SLIDE, SIZE, OFFSET; CUMULATE: STEP, SIZE, OFFSET; SESSION: GAP. OFFSET may be missing, no other.
    """

    arg_types = {"this": True, "table": True, "timecol": True, "partition_by": False, "arguments": True, "alias": False}

    @property
    def kind(self) -> str:
        """`TUMBLE`, `HOP`, `CUMULATE` or `SESSION`."""
        return self.name

    @property
    def table(self) -> exp.Expression:
        """The relation whose rows get windows."""
        table: exp.Expression = self.args["table"]
        return table

    @property
    def timecol(self) -> ColumnPath:
        """The column in DESCRIPTOR(…)."""
        timecol: ColumnPath = self.args["timecol"]
        return timecol

    @property
    def partition_by(self) -> list[ColumnPath]:
        """The keys of SESSION's PARTITION BY."""
        return self.args.get("partition_by") or []

    @property
    def arguments(self) -> dict[str, exp.Expression]:
        """Role (capitals) to its value."""
        return {each.this.name: each.expression for each in self.args["arguments"]}


class TableFunction(exp.Expression):
    """[LATERAL] TABLE(f(x)) in FROM: `this` is the FunctionCall, `lateral` whether LATERAL was written."""

    arg_types = {"this": True, "lateral": False, "alias": False}


class TableHint(exp.Expression):
    """`/*+ OPTIONS('k' = 'v') */` behind a table: `this` is the hint's name in capitals, `expressions` are `exp.EQ` of two literals, or literals."""

    arg_types = {"this": True, "expressions": False}
    _hash_raw_args = True


try:
    ColumnPath(parts=[])
except TypeError as error:  # "interpreted classes cannot inherit from compiled"
    raise ImportError(f"everfold needs sqlglot without its compiled part ({error}): pip uninstall sqlglotc") from None
