"""The names of an operator's keys, columns and calls in its pages: their canonical texts.

State that an earlier release named differently keeps its names (`OperatorNode.state_names`).
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.canonical import call_text, expr_texts, texts_of
from everfold.plan.expressions import Expr
from everfold.plan.nodes import AggCall, StatefulNode


class StateNames:
    """Names the state of an operator."""

    def __init__(self, node: StatefulNode) -> None:
        self._node = node
        self._earlier = dict(node.state_names)

    def name_keys(self, keys: Sequence[Expr]) -> list[str]:
        """Return the names of the keys of groups or partitions."""
        return self._use_earlier(number_repeats([f"key {text}" for text in self._write_each(keys)]))

    def name_columns(self) -> list[str]:
        """Return the names of the columns of whole rows."""
        return self._use_earlier(number_repeats([f"column {text}" for text in self._write_columns()]))

    def name_order(self, expression: Expr) -> str:
        """Return the name of an expression that rows are sorted by."""
        return self._use_earlier([f"order {text}" for text in self._write_each([expression])])[0]

    def name_call(self, call: AggCall) -> str:
        """Return the name of an aggregate call, to which those of its slots are added."""
        return self._use_earlier([self._write_call(call)])[0]

    def name_values(self, arguments: Sequence[Expr]) -> tuple[str, list[str]]:
        """Return the name of the table with the values of arguments, and of its columns."""
        texts = self._write_together(arguments)
        [table, *columns] = self._use_earlier(
            [f"values {', '.join(texts)}", *(f"value {text}" for text in number_repeats(texts))]
        )
        return table, columns

    def name_count(self, call: AggCall) -> str:
        """Return the name of the column that counts a value of a call among the rows of its
        FILTER.
        """
        if call.filter is None:
            return "count"
        return self._use_earlier([f"count FILTER ({self._write_together([*call.args, call.filter])[-1]})"])[0]

    def _use_earlier(self, names: Sequence[str]) -> list[str]:
        return [self._earlier.get(name, name) for name in names]

    def _write_each(self, expressions: Sequence[Expr]) -> Sequence[str]:
        return expr_texts(self._node, expressions)

    def _write_together(self, expressions: Sequence[Expr]) -> Sequence[str]:
        return texts_of(self._node).write(expressions)

    def _write_columns(self) -> Sequence[str]:
        return texts_of(self._node).columns

    def _write_call(self, call: AggCall) -> str:
        return call_text(self._node, call)


def number_repeats(texts: Sequence[str]) -> list[str]:
    """Number the strings that repeat an earlier one."""
    seen: dict[str, int] = {}
    numbered = []
    for text in texts:
        seen[text] = seen.get(text, 0) + 1
        numbered.append(text if seen[text] == 1 else f"{text} #{seen[text]}")
    return numbered
