"""Render expressions as SQL of an engine, by the entries of the functions that they call."""

from __future__ import annotations

import re
from collections.abc import Sequence

from everfold.plan.expressions import Call, Expr, InputRef, Literal, PythonCall
from everfold.sql.functions.entry import Unsupported
from everfold.sql.functions.registry import lookup
from everfold.sql.functions.writer import MAX_REPEATED_CHARS, RenderContext, Writer

_PLACEHOLDER = re.compile(r"\{(\d+\*?|\*|t\d*|zone|fail: [^}]*)\}")
_VOLATILE = ("error(", "uuid(", "random(")
_MARK = re.compile("\x01(\\d+)\x02")


class Renderer(Writer):
    """Renders one expression for one engine."""

    def write(self, expr: Expr) -> str:
        """Render an expression as an atom, a call, or in parentheses."""
        match expr:
            case InputRef():
                return self.columns[expr.position]
            case Literal():
                return self.literal(expr.value, expr.type)
            case Call():
                return self._call(expr)
        raise AssertionError(expr)

    def _call(self, call: Call) -> str:
        assert not isinstance(call, PythonCall), (
            "Python calls are only in projections, which engines compute themselves"
        )
        entry = lookup(call.function)
        assert entry is not None, call.function
        writing = entry.spark if self.spark else entry.duckdb
        around, self.call_span = self.call_span, call.span or self.call_span
        if isinstance(writing, Unsupported):
            raise self.unsupported(call, writing.reason)
        texts = [self.write(arg) for arg in call.args]
        marks = [f"\x01{at}\x02" for at in range(len(texts))]
        body = self._fill_template(writing, call, marks) if isinstance(writing, str) else writing(self, call, marks)
        self.call_span = around
        return self._bind_repeated(body, texts)

    def _fill_template(self, template: str, call: Call, texts: Sequence[str]) -> str:
        def fill(hole: re.Match[str]) -> str:
            name = hole.group(1)
            if name == "zone":
                return self.text(self.context.zone)
            if name.startswith("fail: "):
                return self.fail(name[len("fail: ") :])
            if name == "t":
                return self.type(call.type)
            if name.startswith("t"):
                return self.type(call.args[int(name[1:])].type)
            if name.endswith("*"):
                return ", ".join(texts[int(name[:-1] or 0) :])
            return texts[int(name)]

        return _PLACEHOLDER.sub(fill, template)

    def _bind_repeated(self, body: str, texts: Sequence[str]) -> str:
        """Replace the marks in a body; bind repeated long arguments to variables."""
        count = dict.fromkeys(range(len(texts)), 0)
        for mark in _MARK.finditer(body):
            count[int(mark.group(1))] += 1
        names = {}
        for at, text in enumerate(texts):
            # DuckDB's TRY does not accept expressions that can raise errors on purpose.
            guarded = "TRY(" in body and any(word in text for word in _VOLATILE)
            if (count[at] > 1 and len(text) * count[at] > MAX_REPEATED_CHARS) or (guarded and count[at]):
                names[at] = self.new_variable()
        if names:
            # Bind long arguments next to the variables, not inside their bodies (see `let_all`).
            for at, text in enumerate(texts):
                if count[at] and at not in names and len(text) > MAX_REPEATED_CHARS:
                    names[at] = self.new_variable()
        body = _MARK.sub(lambda mark: names.get(int(mark.group(1)), texts[int(mark.group(1))]), body)
        return self.let_all({name: texts[at] for at, name in names.items()}, body)


def to_spark(expr: Expr, columns: Sequence[str], context: RenderContext | None = None) -> str:
    """Render an expression as Spark SQL; `columns[i]` is the SQL of input column i."""
    return Renderer("Spark", columns, context or RenderContext()).write(expr)


def to_duckdb(expr: Expr, columns: Sequence[str], context: RenderContext | None = None) -> str:
    """Render an expression as DuckDB SQL; `columns[i]` is the SQL of input column i."""
    return Renderer("DuckDB", columns, context or RenderContext()).write(expr)
