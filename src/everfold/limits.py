"""Size limits of a script, which is refused as `too-complex`, and of records and their schemas.

Parsing, binding, rewriting and checking take time that grows with tokens, with columns and with the
number of uses of a view or of a WITH query. The limits keep the response to any script within
seconds (docs/security.md lists them). They are far above what people and SQL generators write.
"""

from __future__ import annotations

from everfold.errors import Span, SqlError

MAX_CHARACTERS = 5_000_000
"""Characters of a script."""
MAX_TOKENS = 125_000
"""Tokens of a script: words, operators, numbers and strings."""
MAX_PARTS = 65_000
"""Names, values, operators and clauses in the queries of a script."""
MAX_STATEMENTS = 2_000
"""Statements of a script."""
MAX_DIALECTS = 100
"""Dialect switches in a script."""
MAX_COLUMNS = 2_000
"""Columns of a table or of a result, and entries of a GROUP BY, ORDER BY or WINDOW list."""
MAX_SETS = 1_000
"""Grouping sets of a GROUP BY: GROUPING SETS, ROLLUP and CUBE multiply each row by them."""
MAX_FINDINGS = 50
"""Errors in a statement that are reported together."""
MAX_VIEWS = 64
"""Nesting depth of views. Binding recurses this deep."""
MAX_HEIGHT = 200
"""Nodes of a plan between the result and a table. Code that walks over plans recurses this deep."""
MAX_MERGED = 100
"""Nesting depth of calls in an expression that is merged from several projections."""
MAX_NODES = 2_000
"""Nodes of a plan. A view or WITH query counts once per use, since engines expand it for each
use."""
MAX_CELLS = 100_000
"""Columns and subexpressions in all plans of a script, counted in the same way."""
MAX_TEXT = 1_000_000
"""Characters of the columns of a node, each expanded down to the columns of tables."""


def too_complex_error(what: str, most: int, span: Span | None = None, help: str | None = None) -> SqlError:
    """Return the error for a script that exceeds a limit."""
    return SqlError.of("too-complex", f"the script is too complex: {what}; the limit is {most:,}", span, help)


# --- records of a table, refused as `bad-record` --------------------------------------------------

MAX_RECORD_BYTES = 100_000_000
"""Bytes of a record of Avro."""
MAX_RECORD_DEPTH = 400
"""Nesting depth of the values of a record. Readers recurse this deep."""
MAX_RECORD_VALUES = 1_000_000
"""Values of a record of Avro whose schema has values without bytes, or is recursive."""
MAX_SCHEMA_BYTES = 5_000_000
"""Bytes of an answer of a schema registry."""
MAX_SCHEMA_DEPTH = 200
"""Nesting depth of the JSON of a schema."""
MAX_SCHEMA_REFERENCES = 200
"""Schemas that a schema refers to, directly or not."""
