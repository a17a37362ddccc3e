"""Nodes that only Lenses SQL has; the nodes of expressions are in `nodes.py`."""

from __future__ import annotations

from sqlglot import exp

from everfold.sql.dialects.nodes import ColumnPath


class Duration(exp.Expression):
    """`10m`: `this` is the duration as written."""

    arg_types = {"this": True, "ms": True}
    _hash_raw_args = True

    @property
    def ms(self) -> int:
        """The duration in milliseconds."""
        return int(self.args["ms"])


class WindowBy(exp.Expression):
    """WINDOW BY: `this` is the kind (`TUMBLE`, `HOP`, `SESSION`).

    `sizes` are the durations of the window, `grace` is the duration of GRACE BY.
    """

    arg_types = {"this": True, "sizes": True, "grace": False}
    _hash_raw_args = True

    @property
    def sizes(self) -> list[Duration]:
        """TUMBLE: the size; HOP: the size and the hop; SESSION: the gap."""
        sizes: list[Duration] = self.args["sizes"]
        return sizes

    @property
    def grace(self) -> Duration | None:
        """How long a window accepts records after its end, if specified."""
        grace: Duration | None = self.args.get("grace")
        return grace


class Projection(exp.Expression):
    """One item of SELECT: `this` is an expression or `exp.Star`, `target` the path after AS."""

    arg_types = {"this": True, "target": False}

    @property
    def target(self) -> ColumnPath | None:
        """The field that receives the value, if AS names one."""
        target: ColumnPath | None = self.args.get("target")
        return target


class GroupKey(exp.Expression):
    """One item of GROUP BY: an expression and its alias."""

    arg_types = {"this": True, "alias": False}


class TopicQuery(exp.Expression):
    """SELECT of Lenses SQL, over one source.

    `kind` is `STREAM`, `TABLE` or None if neither is written. `expressions` are `Projection`s,
    `source` is an Identifier, `alias` an Identifier or None, `eventtime` a `ColumnPath`, `where`
    and `having` are expressions, `window` is a `WindowBy`, `group` a list of `GroupKey`s.
    """

    arg_types = {
        "kind": False,
        "expressions": True,
        "source": True,
        "alias": False,
        "eventtime": False,
        "where": False,
        "window": False,
        "group": False,
        "having": False,
    }
    _hash_raw_args = True

    @property
    def kind(self) -> str | None:
        """`STREAM` or `TABLE`, if specified."""
        kind: str | None = self.args.get("kind")
        return kind

    @property
    def source(self) -> exp.Identifier:
        """The source that FROM names."""
        source: exp.Identifier = self.args["source"]
        return source

    @property
    def source_name(self) -> str:
        """The name of the source in expressions: its alias, or else its own name."""
        return (self.args.get("alias") or self.source).name

    @property
    def window(self) -> WindowBy | None:
        """The WINDOW BY clause, if any."""
        window: WindowBy | None = self.args.get("window")
        return window

    @property
    def group(self) -> list[GroupKey]:
        """The items of GROUP BY."""
        return self.args.get("group") or []
