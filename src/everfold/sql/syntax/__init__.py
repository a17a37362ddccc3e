"""The syntax tree: what the author of a query wrote, with nothing resolved.

Nodes are frozen and hashable, and equal if their canonical SQL is equal: `a` and `` `a` `` are
equal trees, and positions do not compare. Names are case-sensitive with and without backticks.

There are no nodes for parentheses, which only shape the tree; `dialects.render` adds them where
they are needed. Trees are at most `MAX_DEPTH` high, and scripts nest at most `MAX_NESTING` levels
deep (otherwise SqlError `too-deep`), so recursion over them is safe. Long AND and OR chains are
balanced.
"""

from everfold.sql.syntax.calls import (
    CallOption,
    Frame,
    FrameBound,
    FunctionCall,
    NamedArgument,
    OrderBy,
    Over,
    SortKey,
    WindowSpec,
)
from everfold.sql.syntax.expressions import (
    Between,
    BinaryOperation,
    BooleanLiteral,
    Case,
    Cast,
    ColumnPath,
    Exists,
    FieldAccess,
    HexLiteral,
    In,
    InQuery,
    IntervalLiteral,
    Is,
    Keyword,
    Like,
    Negative,
    Not,
    NullLiteral,
    NumberLiteral,
    QualifiedStar,
    QuantifiedComparison,
    Star,
    StringLiteral,
    Subquery,
    TemporalLiteral,
    Tuple,
    When,
    flatten_chain,
    implicit_name,
)
from everfold.sql.syntax.lenses import Duration, GroupKey, Projection, TopicQuery, WindowBy
from everfold.sql.syntax.node import (
    Expression,
    Identifier,
    Node,
    Query,
    children,
    find_all,
    map_children,
    transform,
    walk,
)
from everfold.sql.syntax.queries import (
    Clause,
    CommonTable,
    FlinkQuery,
    GroupBy,
    GroupingSets,
    NamedWindow,
    NestedQuery,
    RowCount,
    Select,
    SelectItem,
    SetOperation,
    Values,
)
from everfold.sql.syntax.relations import (
    DerivedTable,
    Hint,
    Join,
    Relation,
    SystemTime,
    Table,
    TableAlias,
    TableFunction,
    Unnest,
    WindowTvf,
)

__all__ = [
    "Between", "BinaryOperation", "BooleanLiteral", "CallOption", "Case", "Cast", "Clause", "ColumnPath",
    "CommonTable", "DerivedTable", "Duration", "Exists", "Expression", "FieldAccess", "FlinkQuery", "Frame",
    "FrameBound", "FunctionCall", "GroupBy", "GroupKey", "GroupingSets", "HexLiteral", "Hint", "Identifier", "In",
    "InQuery", "IntervalLiteral", "Is", "Join", "Keyword", "Like", "NamedArgument", "NamedWindow", "Negative",
    "NestedQuery", "Node", "Not", "NullLiteral", "NumberLiteral", "OrderBy", "Over", "Projection", "QualifiedStar",
    "QuantifiedComparison", "Query", "Relation", "RowCount", "Select", "SelectItem", "SetOperation", "SortKey",
    "Star", "StringLiteral", "Subquery", "SystemTime", "Table", "TableAlias", "TableFunction", "TemporalLiteral",
    "TopicQuery", "Tuple", "Unnest", "Values", "When", "WindowBy", "WindowSpec", "WindowTvf", "children", "find_all",
    "flatten_chain", "implicit_name", "map_children", "transform", "walk",
]  # fmt: skip
