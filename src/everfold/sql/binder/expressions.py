"""Scalar expressions: turn trees into typed expressions over the columns of a relation."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates.registry import window_function_names
from everfold.errors import Diagnostic, Span, SqlError, suggest_name
from everfold.plan.expressions import Call, Expr, InputRef, Literal
from everfold.plan.nodes import is_proctime
from everfold.sql import syntax
from everfold.sql.binder.aggregate_calls import bind_call, refuse_aggregate_clauses
from everfold.sql.binder.aggregates import Calls
from everfold.sql.binder.constants import boolean_literal, null_literal, string_literal
from everfold.sql.binder.context import Context, Problems
from everfold.sql.binder.grouping import GROUPING, GROUPING_TYPE
from everfold.sql.binder.json_options import with_options
from everfold.sql.binder.legacy_windows import GroupWindow, is_time_of_window
from everfold.sql.binder.literals import bind_literal
from everfold.sql.binder.names import (
    GROUPING_FUNCTIONS,
    LEGACY_WINDOWS,
    OVER_FUNCTIONS,
    aggregate_names,
    find_aggregate,
    find_over_function,
)
from everfold.sql.binder.over import OverCalls, WindowBinder
from everfold.sql.binder.over_functions import NEIGHBORS, SHARES, bind_neighbor, bind_share, unsupported_function_error
from everfold.sql.binder.python_functions import (
    bind_python_aggregate,
    bind_python_call,
    find_user_function,
    is_aggregate_call,
)
from everfold.sql.binder.scope import Relation, check_field, resolve
from everfold.sql.binder.subqueries import Subqueries
from everfold.sql.binder.watermark_functions import WATERMARK_FUNCTIONS, watermark_function_error
from everfold.sql.user_functions import UserFunction
from everfold.types import BOOLEAN, AnyType, BooleanType, NullType, with_article


class ExpressionBinder:
    """Binds expressions over one relation.

    `clause` names the clause in messages (`WHERE`). `calls` collects aggregate calls where they are
    allowed; a call becomes a reference after the columns of the relation. `overs` and `subqueries`
    do the same for calls over windows and for scalar subqueries. `window` is the group window of
    GROUP BY. `aliases` are names that take precedence over columns. `within` is the function whose
    arguments are bound.
    """

    def __init__(
        self,
        relation: Relation,
        context: Context,
        clause: str,
        *,
        calls: Calls | None = None,
        overs: OverCalls | None = None,
        window: GroupWindow | None = None,
        subqueries: Subqueries | None = None,
        aliases: dict[str, Expr] | None = None,
        within: str | None = None,
    ) -> None:
        self.relation = relation
        self.context = context
        self.clause = clause
        self.calls = calls
        self.overs = overs
        self.window = window
        self.subqueries = subqueries
        self.aliases = aliases or {}
        self.within = within

    # --- entry points ---

    def bind(self, node: syntax.Expression) -> Expr:
        """Return the typed expression. All unknown columns are reported together."""
        problems = Problems()
        self._check_columns(node, problems)
        problems.check()
        return self._bind(node)

    def condition(self, node: syntax.Expression) -> Expr:
        """Bind a BOOLEAN expression. Raises SqlError `not-a-condition` for any other type."""
        bound = self.bind(node)
        if isinstance(bound.type, NullType):
            return null_literal(boolean_literal(False).type)
        if not isinstance(bound.type, BooleanType | AnyType):
            raise self.context.error(
                "not-a-condition",
                f"{self.clause} takes a condition, and `{self.context.sql(node)}` is {with_article(bound.type)}",
                node,
            )
        return bound

    def _check_columns(self, node: syntax.Node, problems: Problems) -> None:
        if isinstance(node, syntax.Query):
            return
        if isinstance(node, syntax.ColumnPath):
            with problems:
                self._column(node)
            return
        for child in syntax.children(node):
            self._check_columns(child, problems)

    # --- nodes ---

    def _bind(self, node: syntax.Expression) -> Expr:
        span = node.span
        literal = bind_literal(node, self.context)
        if literal is not None:
            return literal
        match node:
            case syntax.ColumnPath():
                return self._column(node)
            case syntax.FieldAccess():
                value, name = self._bind(node.value), node.field.name
                check_field(value, name, span)
                return self._build("FIELD", (value, string_literal(name)), span)
            case syntax.Negative():
                negated = bind_literal(node.operand, self.context, negative=True)
                if (
                    isinstance(negated, Literal)
                    and isinstance(negated.value, int | float)
                    and not isinstance(negated.value, bool)
                ):
                    return Literal(type=negated.type, value=negated.value, span=span)
                return self._build("UNARY_MINUS", (self._bind(node.operand),), span)
            case syntax.Not():
                return self._build("NOT", (self._bind(node.operand),), span)
            case syntax.Is():
                return self._build(f"IS {node.test}", (self._bind(node.operand),), span)
            case syntax.Between():
                return self._between(node, span)
            case syntax.In():
                return self._in(node, span)
            case syntax.BinaryOperation(operator="OVERLAPS"):
                return self._build("OVERLAPS", (*self._period(node.left), *self._period(node.right)), span)
            case syntax.BinaryOperation():
                return self._build(node.operator, self._all((node.left, node.right)), span)
            case syntax.Like():
                escape = () if node.escape is None else (node.escape,)
                return self._build(node.operator, self._all((node.operand, node.pattern, *escape)), span)
            case syntax.QuantifiedComparison():
                return self._quantified(node, span)
            case syntax.Case():
                return self._case(node, span)
            case syntax.Cast():
                return self._cast(node, span)
            case syntax.Tuple():
                return self._build("ROW", self._all(node.items), span)
            case syntax.FunctionCall():
                return self._call(node, span)
            case syntax.Over():
                return self._over(node)
            case syntax.Subquery() | syntax.Exists() | syntax.InQuery():
                return self._subquery(node)
            case syntax.Star() | syntax.QualifiedStar():
                raise self.context.error(
                    "misplaced-star", "`*` is only allowed in the SELECT list and in COUNT(*)", node
                )
            case syntax.NamedArgument():
                raise self.context.unsupported(
                    "named-argument",
                    "named arguments are only supported in window TVFs",
                    node,
                    "write the arguments by position",
                )
            case syntax.Keyword():
                return Literal(type=string_literal(node.word).type, value=node.word, span=span)
            case _:
                what = f"`{self.context.sql(node)}` is not supported here"
                raise self.context.unsupported("unsupported-expression", what, node)

    def _column(self, node: syntax.ColumnPath) -> Expr:
        if len(node.names) == 1 and node.names[0] in self.aliases:
            return self.aliases[node.names[0]]
        return resolve(self.relation, node.names, node.span, self.context.outer)

    def _all(self, nodes: Sequence[syntax.Expression]) -> tuple[Expr, ...]:
        return tuple(self._bind(each) for each in nodes)

    def _build(self, name: str, args: tuple[Expr, ...], span: Span | None) -> Expr:
        from everfold.sql.functions import build

        return build(name, args, span)

    def _cast(self, node: syntax.Cast, span: Span | None) -> Expr:
        from everfold.sql.functions import cast

        value = cast(self._bind(node.operand), node.type, span, try_=node.safe)
        if is_proctime(value) or (isinstance(value, InputRef) and self._is_time_attribute(value)):
            # A cast that changes nothing still makes a plain timestamp of a time attribute.
            return Call(function="CAST", args=(value,), type=value.type, span=span)
        return value

    def _is_time_attribute(self, reference: InputRef) -> bool:
        """Return whether a reference is a time attribute.

        Calls and subqueries, which follow the columns, never are.
        """
        schema = self.relation.plan.schema
        return is_time_of_window(reference) or (
            reference.position < len(schema) and schema[reference.position].time is not None
        )

    def _between(self, node: syntax.Between, span: Span | None) -> Expr:
        value, low, high = self._all((node.operand, node.low, node.high))
        plain = self._build("BETWEEN", (value, low, high), span)
        if not node.symmetric:
            return plain
        return self._build("OR", (plain, self._build("BETWEEN", (value, high, low), span)), span)

    def _in(self, node: syntax.In, span: Span | None) -> Expr:
        if not isinstance(node.operand, syntax.Tuple):
            return self._build("IN", (self._bind(node.operand), *self._all(node.values)), span)
        left = self._all(node.operand.items)
        any_: Expr | None = None
        for each in node.values:
            right = self._all(each.items) if isinstance(each, syntax.Tuple) else ()
            if len(right) != len(left):
                raise self.context.error("wrong-arguments", f"IN compares rows of {len(left)} values", each)
            same: Expr | None = None
            for one, other in zip(left, right, strict=True):
                equal = self._build("=", (one, other), span)
                same = equal if same is None else self._build("AND", (same, equal), span)
            assert same is not None
            any_ = same if any_ is None else self._build("OR", (any_, same), span)
        assert any_ is not None
        return any_

    def _period(self, node: syntax.Expression) -> tuple[Expr, ...]:
        """Return both ends of a period, which is written as a row; the second may be its length."""
        ends: tuple[syntax.Expression, ...] = ()
        match node:
            case syntax.Tuple(items=ends) | syntax.FunctionCall(name="ROW" | "PERIOD", arguments=ends):
                pass
        if len(ends) != 2:
            raise self.context.error(
                "wrong-arguments",
                f"OVERLAPS compares periods, and `{self.context.sql(node)}` is not one",
                node,
                "write (start, end) or (start, INTERVAL '1' HOUR)",
            )
        return self._all(ends)

    def _case(self, node: syntax.Case, span: Span | None) -> Expr:
        operand = None if node.operand is None else self._bind(node.operand)
        args: list[Expr] = []
        for branch in node.branches:
            when = self._bind(branch.condition)
            args += [
                when if operand is None else self._build("=", (operand, when), when.span),
                self._bind(branch.result),
            ]
        args.append(null_literal() if node.default is None else self._bind(node.default))
        return self._build("CASE", tuple(args), span)

    def _subquery(self, node: syntax.Expression) -> Expr:
        if self.subqueries is None:
            raise self.context.unsupported(
                "subquery", f"a subquery is not supported in {self.clause}", node, "write it as a join"
            )
        return self.subqueries.bind(node, self.relation, self.context)

    def _quantified(self, node: syntax.QuantifiedComparison, span: Span | None) -> Expr:
        """Bind a comparison with ANY or ALL rows of a subquery, through their minimum and maximum.

        `= ANY` and `<> ALL` are not handled here.
        """
        if self.subqueries is None:
            return self._subquery(node.subquery)
        operator, every, value = node.operator, node.quantifier == "ALL", self._bind(node.operand)
        found = self.subqueries.bind_values(node.subquery, self.relation, self.context)

        def compare(name: str, bound: Expr) -> Expr:
            return self._build(name, (value, bound), span)

        if operator in ("=", "<>"):
            decides = self._build("OR", (compare("<>", found.least), compare("<>", found.greatest)), span)
        elif every:
            hardest = found.greatest if operator in (">", ">=") else found.least
            decides = self._build("NOT", (compare(operator, hardest),), span)
        else:
            decides = compare(operator, found.least if operator in (">", ">=") else found.greatest)
        some_null = self._build("<", (found.non_null_rows, found.rows), span)
        unknown = self._build("OR", (some_null, self._build("IS NULL", (value,), span)), span)
        empty = self._build("=", (found.rows, Literal(type=found.rows.type, value=0)), span)
        cases = (
            empty,
            boolean_literal(every),
            decides,
            boolean_literal(not every),
            unknown,
            null_literal(BOOLEAN),
            boolean_literal(every),
        )
        return self._build("CASE", cases, span)

    # --- calls ---

    def _call(self, node: syntax.FunctionCall, span: Span | None) -> Expr:
        name = node.name
        function = find_user_function(node, self.context)
        if is_aggregate_call(node, self.context):
            return self._aggregate(node)
        if function is not None:
            refuse_aggregate_clauses(node, self.context)
            return bind_python_call(function, self._all(node.arguments), span)
        if name in OVER_FUNCTIONS:
            raise self.context.error(
                "without-over", f"`{name}` needs a window", node, f"write {name}(…) OVER (PARTITION BY … ORDER BY …)"
            )
        if name in LEGACY_WINDOWS:
            if self.window is None:
                raise self.context.error(
                    "misplaced-window",
                    f"`{name}` belongs to a window in GROUP BY, and is not allowed in {self.clause}",
                    node,
                    f"write GROUP BY {name.partition('_')[0]}(…), or use a window TVF",
                )
            return self.window.column(node, self.relation, self.context)
        refuse_aggregate_clauses(node, self.context)
        if name in WATERMARK_FUNCTIONS:
            raise watermark_function_error(node, self.context)
        args = node.arguments
        if name in ("FLOOR", "CEIL", "CEILING") and len(args) == 2 and isinstance(args[1], syntax.Keyword):
            name = "FLOOR_TO" if name == "FLOOR" else "CEIL_TO"
        bound = with_options(node, self._all(args), self._bind)
        from everfold.sql.functions import names as scalar_names

        try:
            return self._build(name, bound, span)
        except SqlError as error:
            if error.code != "unknown-function":
                raise
            found = error.diagnostics[0]
            known = (function.name for function in self.context.catalog.functions)
            near = (
                suggest_name(name, (*aggregate_names(), *scalar_names(), *known))
                or "SHOW FUNCTIONS lists all functions"
            )
            raise SqlError(Diagnostic(found.code, found.message, found.span, near)) from None

    def _over(self, node: syntax.Over) -> Expr:
        context, call = self.context, node.call
        if self.overs is None:
            where = f"`{self.within}`" if self.within is not None else self.clause
            raise context.error(
                "misplaced-over",
                f"OVER is not allowed in {where}",
                node,
                "compute it in a subquery: SELECT … FROM (SELECT …, f(x) OVER (…) AS y FROM t)",
            )
        function = find_user_function(call, context)
        if function is None and call.name in SHARES and not context.streaming:
            return bind_share(node, self._argument_binder().bind, self.overs, context)
        entry = find_over_function(call.name) if function is None else None
        if function is not None and function.is_aggregate:
            return self._bind_python_over(node, function)
        inside = self._argument_binder()
        if function is None and call.name in NEIGHBORS:
            return bind_neighbor(node, inside.bind, inside.condition, self.overs, context)
        if entry is None:
            raise self._over_function_error(call)
        window, parts = WindowBinder(context, self.overs, inside.bind).window(node, entry)
        order = tuple(key.expression for key in window.order) if entry.takes_order_key else ()
        bound = bind_call(call, entry, inside.bind, inside.condition, context, order)
        return self.overs.reference(window, bound, parts)

    def _argument_binder(self) -> ExpressionBinder:
        """Return the binder of the arguments of a call over a window."""
        return ExpressionBinder(
            self.relation, self.context, self.clause, calls=self.calls, subqueries=self.subqueries, window=self.window
        )

    def _bind_python_over(self, node: syntax.Over, function: UserFunction) -> Expr:
        """Bind a user's aggregate function over a window, in a query that is only checked."""
        assert self.overs is not None
        self.context.reject(self._over_function_error(node.call))
        inside = ExpressionBinder(self.relation, self.context, self.clause, calls=self.calls, window=self.window)
        like = find_over_function("MAX")
        assert like is not None
        window, parts = WindowBinder(self.context, self.overs, inside.bind).window(node, like)
        bound = bind_python_aggregate(function, node.call, inside.bind, inside.condition, self.context)
        return self.overs.reference(window, bound, parts)

    def _over_function_error(self, call: syntax.FunctionCall) -> SqlError:
        context, name = self.context, call.name
        if find_user_function(call, context) is not None:
            return context.unsupported(
                "over-function", f"`{name}` is a Python function, which OVER does not support yet", call
            )
        if name in OVER_FUNCTIONS:
            return unsupported_function_error(name, call, context)
        near = suggest_name(name, (*aggregate_names(), *window_function_names()))
        return context.error("over-function", f"`{name}` is not an aggregate function, and OVER needs one", call, near)

    def _grouping(self, node: syntax.FunctionCall) -> Expr:
        """Bind GROUPING and similar functions. Their values are known only when the sets are."""
        span = node.span
        if self.calls is None:
            raise self.context.error("misplaced-aggregate", f"`{node.name}` is not allowed in {self.clause}", node)
        if node.name == "GROUP_ID":
            return Literal(type=GROUPING_TYPE, value=0, span=span)
        if not node.arguments:
            raise self.context.error("wrong-arguments", f"`{node.name}` takes the keys of GROUP BY", node)
        inside = ExpressionBinder(self.relation, self.context, self.clause, within=node.name)
        return Call(function=GROUPING, args=inside._all(node.arguments), type=GROUPING_TYPE, span=span)

    def _aggregate(self, node: syntax.FunctionCall) -> Expr:
        name, context = node.name, self.context
        if name in GROUPING_FUNCTIONS:
            return self._grouping(node)
        if self.within is not None:
            raise context.error(
                "nested-aggregate",
                f"`{name}` cannot be inside `{self.within}`: aggregates cannot be nested",
                node,
                "aggregate in a subquery first",
            )
        if self.calls is None:
            help_ = "write it in HAVING" if self.clause == "WHERE" else None
            code = "aggregate-in-where" if self.clause == "WHERE" else "misplaced-aggregate"
            raise context.error(code, f"the aggregate `{name}` is not allowed in {self.clause}", node, help_)
        inside = ExpressionBinder(self.relation, context, self.clause, within=name)
        where = ExpressionBinder(self.relation, context, "FILTER", within="FILTER")
        function, entry = find_user_function(node, context), find_aggregate(name)
        if function is not None:
            return self.calls.reference(bind_python_aggregate(function, node, inside.bind, where.condition, context))
        assert entry is not None, name
        return self.calls.reference(bind_call(node, entry, inside.bind, where.condition, context))
