"""A plot of a result: numbers over the time of their window."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from everfold.errors import UsageError
from everfold.notebook.display import Display, show
from everfold.types import DataType, NumericType, Schema, StringType, TimestampType

if TYPE_CHECKING:
    from everfold.notebook.live_result import LiveResult


class Plot:
    """Draws a line per key: the first number over the first time, by the first string.

    Raises UsageError `missing-package` without Altair, `not-plottable` if there is no time or no
    number.
    """

    def __init__(self, schema: Schema) -> None:
        try:
            import altair
        except ImportError as error:
            raise UsageError.of(
                "missing-package", "--plot needs the package `altair`", help='pip install "everfold[notebook]"'
            ) from error
        self._altair = altair
        self._x, self._y = _find(schema, TimestampType), _find(schema, NumericType)
        self._key = _find(schema, StringType)
        if self._x is None or self._y is None:
            missing = "TIMESTAMP" if self._x is None else "number"
            raise UsageError.of(
                "not-plottable",
                f"the result has no column with a {missing}",
                help="select the start of a window, such as `window_start`, and an aggregate",
            )
        self._names = schema.names
        self._shown: Display | None = None

    def show(self, result: LiveResult) -> None:
        """Show the rows of a result, in place of what was shown before."""
        bundle = _represent(self._draw(result))
        if self._shown is None:
            self._shown = show(bundle, raw=True)
        else:
            self._shown.update(bundle, raw=True)

    def _draw(self, result: LiveResult) -> Any:
        altair = self._altair
        assert self._x is not None
        assert self._y is not None
        wanted = [self._x, self._y, *([] if self._key is None else [self._key])]
        names = ["time", "value", "key"]
        points = [
            {name: _to_json(row[at]) for name, at in zip(names, wanted, strict=False)}
            for row in result.rows()
            if row[self._x] is not None and row[self._y] is not None
        ]
        encodings = {
            "x": altair.X("time:T", title=self._names[self._x]),
            "y": altair.Y("value:Q", title=self._names[self._y]),
        }
        if self._key is not None:
            encodings["color"] = altair.Color("key:N", title=self._names[self._key])
        chart = altair.Chart(altair.Data(values=points)).mark_line(point=True).encode(**encodings)
        return chart.properties(width=600)


def _represent(chart: Any) -> dict[str, Any]:
    """Return a chart by MIME type.

    Front ends draw Vega-Lite by themselves: JupyterLab 4 its version 5, others also newer ones. The
    HTML of Altair is left out, because JupyterLab prefers it, and it loads scripts from elsewhere.
    """
    drawing = chart.to_dict()
    (major,) = re.findall(r"/v(\d+)[^/]*$", drawing["$schema"])
    return {
        f"application/vnd.vegalite.v{major}+json": drawing,
        "application/vnd.vegalite.v5+json": {**drawing, "$schema": "https://vega.github.io/schema/vega-lite/v5.json"},
        "text/plain": "A plot, which this front end cannot draw.",
    }


def _find(schema: Schema, kind: type[DataType]) -> int | None:
    """Return the position of the first column of a kind."""
    return next((at for at, field in enumerate(schema) if isinstance(field.type, kind)), None)


def _to_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
