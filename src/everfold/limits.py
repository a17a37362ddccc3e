"""How much a script may ask of everfold before it is refused as `too-complex`.

Whatever is read, bound, rewritten and judged takes time that grows with tokens, with columns and with the places in which a view or a name of WITH stands.
The limits keep the answer to any script within seconds (docs/security.md lists them), far beyond what people and generators of SQL write.
"""

from __future__ import annotations

from everfold.errors import Span, SqlError

MAX_CHARACTERS = 5_000_000
"""Characters of a script."""
MAX_TOKENS = 125_000
"""Words, signs, numbers and strings of a script."""
MAX_PARTS = 65_000
"""Names, values, operators and clauses in the queries of a script."""
MAX_STATEMENTS = 2_000
"""Statements of a script."""
MAX_DIALECTS = 100
"""How often a script changes its dialect."""
MAX_COLUMNS = 2_000
"""Columns of a table or of a result, and what GROUP BY, ORDER BY or WINDOW of a query list."""
MAX_SETS = 1_000
"""Sets of keys of a GROUP BY: GROUPING SETS, ROLLUP and CUBE make as many rows of each."""
MAX_FINDINGS = 50
"""Mistakes in a statement that are reported together."""
MAX_VIEWS = 64
"""Views that are made of each other. Binding recurses so deep."""
MAX_HEIGHT = 200
"""Nodes of a plan between the result and a table. What walks over plans recurses so deep."""
MAX_MERGED = 100
"""Calls in each other in an expression that is made of those of several projections."""
MAX_NODES = 2_000
"""Nodes of a plan, those of a view or of a name of WITH counted as often as it is used: engines read them so."""
MAX_CELLS = 100_000
"""Columns and parts of expressions in all plans of a script, counted likewise."""
MAX_TEXT = 1_000_000
"""Characters of the columns of a node, each written out down to the columns of tables."""


def too_complex(what: str, most: int, span: Span | None = None, help: str | None = None) -> SqlError:
    """The error of something that there is too much of."""
    return SqlError.of("too-complex", f"the script is too complex: {what}, and {most:,} are the most", span, help)
