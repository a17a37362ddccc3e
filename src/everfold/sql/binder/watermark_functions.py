"""Functions of Flink that return a watermark: they are rejected with the reason."""

from __future__ import annotations

from everfold.errors import UnsupportedFeature
from everfold.sql import syntax
from everfold.sql.binder.context import Context

_REASONS = {
    "CURRENT_WATERMARK": (
        "windows and other operators by event time know the watermark, expressions do not",
        "leave the condition out: operators by event time drop late rows, and everfold counts them",
    ),
    "SOURCE_WATERMARK": (
        "no connector provides watermarks",
        "declare how far rows may be out of order: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
    ),
}
WATERMARK_FUNCTIONS = tuple(_REASONS)


def watermark_function_error(node: syntax.FunctionCall, context: Context) -> UnsupportedFeature:
    """Return the error for a call of one of `WATERMARK_FUNCTIONS`."""
    reason, help_ = _REASONS[node.name]
    return context.unsupported("watermark-function", f"`{node.name}` is not supported: {reason}", node, help_)
