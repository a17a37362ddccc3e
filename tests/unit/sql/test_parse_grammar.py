"""The layers of the grammar: each class adds to the one below, and may redefine only what that one
leaves open.
"""

from __future__ import annotations

from everfold.sql.dialects.grammar import Grammar
from everfold.sql.dialects.token_stream import TokenStream

OPEN = {"expression", "binary", "query", "order_by", "window"}
"""The methods that `Calls` needs from the layers above it."""


def test_no_layer_hides_a_method_of_another() -> None:
    seen: dict[str, str] = {}
    for layer in reversed(Grammar.__mro__[: Grammar.__mro__.index(TokenStream) + 1]):
        for name in vars(layer):
            if not name.startswith("__") and name not in OPEN:
                assert name not in seen, f"{layer.__name__}.{name} hides that of {seen[name]}"
                seen[name] = layer.__name__
