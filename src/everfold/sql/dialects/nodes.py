"""Nodes of expression and query trees that sqlglot lacks, or has in too many forms.

`flink.py` specifies all nodes. Two trees are equal (`==`, hash) when their canonical SQL is equal:
positions (`meta`) do not compare; names compare case-sensitively.
"""

from __future__ import annotations

from sqlglot import exp

from everfold.types import DataType


class ColumnPath(exp.Expression, exp.Condition):
    """A dotted name: `a`, `t.a` or `a.b.c`.

    The binder decides which part is a table, a column or a field of a ROW.
    """

    arg_types = {"parts": True}
    _hash_raw_args = True

    @property
    def parts(self) -> list[exp.Identifier]:
        """The identifiers from left to right, at least one."""
        parts: list[exp.Identifier] = self.args["parts"]
        return parts

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts."""
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
    """A field of a ROW that is not a plain path: `f(x).city`, `rows[1].city`.

    `this` is the value, `field` an `exp.Identifier`.
    """

    arg_types = {"this": True, "field": True}
    _hash_raw_args = True

    @property
    def field(self) -> str:
        """The field's name."""
        name: str = self.args["field"].name
        return name


class CallOption(exp.Expression):
    """A clause inside a call's parentheses, such as `NULL ON EMPTY`.

    `this` is the name of the clause (`ON EMPTY`). `value` is a word (`NULL`, `ERROR`, …), `to` a
    `DataType`, `expression` a value; each is set only if the clause has one.
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
    """Any function call, including calls with special syntax; the registry defines its meaning.

    `this` is the name in capitals (`name`), `expressions` are the arguments. `special` is True for
    calls that are not written as NAME(arguments): `x[1]`, `ARRAY[1]`, `CURRENT_DATE`.
    `meta["spelled"]` is the name as written in the script.
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
        """Whether the call is not written as NAME(arguments)."""
        return bool(self.args.get("special"))

    @property
    def distinct(self) -> bool:
        """Whether DISTINCT precedes the arguments."""
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
        """`IGNORE` or `RESPECT` if IGNORE NULLS or RESPECT NULLS follows the call."""
        nulls: str | None = self.args.get("nulls")
        return nulls

    @property
    def options(self) -> dict[str, CallOption]:
        """The clauses inside the parentheses by name."""
        return {option.name: option for option in self.args.get("options") or []}

    @property
    def original_name(self) -> str:
        """The name as written in the script."""
        spelled: str = self.meta.get("spelled", self.name)
        return spelled


class FlinkCast(exp.Expression, exp.Condition):
    """CAST(this AS to), or TRY_CAST if `safe`; `to` is a `DataType` and `to_text` its SQL.

    `to_text` is there because trees compare by hash: INT and BIGINT have the same hash, but
    different SQL.
    """

    arg_types = {"this": True, "to": True, "to_text": True, "safe": False}
    _hash_raw_args = True

    @property
    def to(self) -> DataType:
        """The target type."""
        to: DataType = self.args["to"]
        return to

    @property
    def safe(self) -> bool:
        """Whether a value that cannot be cast becomes NULL."""
        return bool(self.args.get("safe"))


class TemporalLiteral(exp.Expression, exp.Condition):
    """DATE '…', TIME '…', TIMESTAMP '…': `kind` is the keyword, `this` the validated value.

    `precision` is the number of digits of the fraction of a second, as in the literal's Flink type.
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
    """INTERVAL 'text' unit [TO last].

    Units are singular and in capitals; `this` includes a sign before the quote. `interval_value`
    computes the value.
    """

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
    """TUMBLE, HOP, CUMULATE or SESSION in FROM, with named or positional arguments.

    `this` is the kind in capitals, `table` an `exp.Table` or `exp.Subquery`, `partition_by` a list
    of `ColumnPath`, `timecol` a `ColumnPath`, `alias` an `exp.TableAlias` or None. `arguments` are
    in the order of their roles, whatever their order in the script: TUMBLE: SIZE, OFFSET; HOP:
    SLIDE, SIZE, OFFSET; CUMULATE: STEP, SIZE, OFFSET; SESSION: GAP. Only OFFSET may be missing.
    """

    arg_types = {"this": True, "table": True, "timecol": True, "partition_by": False, "arguments": True, "alias": False}

    @property
    def kind(self) -> str:
        """`TUMBLE`, `HOP`, `CUMULATE` or `SESSION`."""
        return self.name

    @property
    def table(self) -> exp.Expression:
        """The relation whose rows are assigned to windows."""
        table: exp.Expression = self.args["table"]
        return table

    @property
    def timecol(self) -> ColumnPath:
        """The column in DESCRIPTOR(…)."""
        timecol: ColumnPath = self.args["timecol"]
        return timecol

    @property
    def partition_by(self) -> list[ColumnPath]:
        """The keys of PARTITION BY in SESSION."""
        return self.args.get("partition_by") or []

    @property
    def arguments(self) -> dict[str, exp.Expression]:
        """The arguments by role (in capitals)."""
        return {each.this.name: each.expression for each in self.args["arguments"]}


class TableFunction(exp.Expression):
    """[LATERAL] TABLE(f(x)) in FROM: `this` is the FunctionCall; `lateral` is True with LATERAL."""

    arg_types = {"this": True, "lateral": False, "alias": False}


class TableHint(exp.Expression):
    """A hint after a table: `/*+ OPTIONS('k' = 'v') */`.

    `this` is the name of the hint in capitals, `expressions` are literals or `exp.EQ` of two
    literals.
    """

    arg_types = {"this": True, "expressions": False}
    _hash_raw_args = True


try:
    ColumnPath(parts=[])
except TypeError as error:  # "interpreted classes cannot inherit from compiled"
    raise ImportError(f"everfold needs sqlglot without its compiled part ({error}): pip uninstall sqlglotc") from None
