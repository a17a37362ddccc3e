"""Nodes of Lenses SQL that others do not have; expressions are those of `nodes.py`."""

from __future__ import annotations

from sqlglot import exp

from everfold.sql.dialects.nodes import ColumnPath


class Duration(exp.Expression):
    """`10m`: `this` is the text as it was written."""

    arg_types = {"this": True, "ms": True}
    _hash_raw_args = True

    @property
    def ms(self) -> int:
        """How long it is, in milliseconds."""
        return int(self.args["ms"])


class WindowBy(exp.Expression):
    """WINDOW BY: `this` is the kind (`TUMBLE`, `HOP`, `SESSION`), `sizes` are its durations, `grace` is that of GRACE BY."""

    arg_types = {"this": True, "sizes": True, "grace": False}
    _hash_raw_args = True

    @property
    def sizes(self) -> list[Duration]:
        """TUMBLE: its size; HOP: its size and how far apart windows start; SESSION: its gap."""
        sizes: list[Duration] = self.args["sizes"]
        return sizes

    @property
    def grace(self) -> Duration | None:
        """How long a window takes records after its end, if that is said."""
        grace: Duration | None = self.args.get("grace")
        return grace


class Projection(exp.Expression):
    """One item of SELECT: `this` is an expression or `exp.Star`, `target` what AS names, with its dots."""

    arg_types = {"this": True, "target": False}

    @property
    def target(self) -> ColumnPath | None:
        """Where the value goes, if AS says so."""
        target: ColumnPath | None = self.args.get("target")
        return target


class GroupKey(exp.Expression):
    """One item of GROUP BY: an expression, and the label that AS gives it."""

    arg_types = {"this": True, "alias": False}


class TopicQuery(exp.Expression):
    """SELECT of Lenses SQL, over one source.

    `kind` is `STREAM`, `TABLE` or None where neither is written; `expressions` are `Projection`s, `source` an Identifier, `alias` one or None;
    `eventtime` a `ColumnPath`, `where` and `having` expressions, `window` a `WindowBy`, `group` a list of `GroupKey`s.
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
        """`STREAM` or `TABLE`, if one is written."""
        kind: str | None = self.args.get("kind")
        return kind

    @property
    def source(self) -> exp.Identifier:
        """What FROM names."""
        source: exp.Identifier = self.args["source"]
        return source

    @property
    def called(self) -> str:
        """The name by which expressions know the source."""
        return (self.args.get("alias") or self.source).name

    @property
    def window(self) -> WindowBy | None:
        """WINDOW BY, if there is one."""
        window: WindowBy | None = self.args.get("window")
        return window

    @property
    def group(self) -> list[GroupKey]:
        """The items of GROUP BY."""
        return self.args.get("group") or []
