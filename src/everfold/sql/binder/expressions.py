"""Scalar expressions: turn trees into typed expressions over the columns of a relation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from everfold.aggregates.registry import window_function_names
from everfold.errors import Diagnostic, Span, SqlError, suggest_name
from everfold.plan.expressions import Call, Expr, InputRef, Literal
from everfold.sql.binder.aggregate_calls import bind_call
from everfold.sql.binder.context import Context, Problems
from everfold.sql.binder.grouping import GROUPING, GROUPING_TYPE
from everfold.sql.binder.json_options import with_options
from everfold.sql.binder.legacy_windows import is_time_of_window
from everfold.sql.binder.literals import bind_literal, boolean_literal, null_literal, string_literal
from everfold.sql.binder.names import (
    GROUPING_FUNCTIONS,
    LEGACY_WINDOWS,
    OVER_FUNCTIONS,
    aggregate_names,
    find_aggregate,
    find_over_function,
)
from everfold.sql.binder.python_functions import (
    bind_python_aggregate,
    bind_python_call,
    find_user_function,
    is_aggregate_call,
)
from everfold.sql.binder.scope import Relation, check_field, resolve
from everfold.sql.dialects.nodes import ColumnPath, FieldAccess, FlinkCast, FunctionCall, QualifiedStar
from everfold.types import BOOLEAN, AnyType, BooleanType, NullType, with_article

if TYPE_CHECKING:
    from everfold.sql.binder.aggregates import Calls
    from everfold.sql.binder.legacy_windows import GroupWindow
    from everfold.sql.binder.over import OverCalls
    from everfold.sql.binder.subqueries import Subqueries
    from everfold.sql.user_functions import UserFunction

_INFIX: dict[type[exp.Expression], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.DPipe: "||",
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeNEQ: "IS DISTINCT FROM", exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.And: "AND", exp.Or: "OR", exp.Like: "LIKE", exp.SimilarTo: "SIMILAR TO",
}  # fmt: skip


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

    def bind(self, node: exp.Expression) -> Expr:
        """Return the typed expression. All unknown columns are reported together."""
        problems = Problems()
        self._check_columns(node, problems)
        problems.check()
        return self._bind(node)

    def condition(self, node: exp.Expression) -> Expr:
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

    def _check_columns(self, node: exp.Expression, problems: Problems) -> None:
        if isinstance(node, exp.Query):
            return
        if isinstance(node, ColumnPath):
            with problems:
                self._column(node)
            return
        for child in node.iter_expressions():
            self._check_columns(child, problems)

    # --- nodes ---

    def _bind(self, node: exp.Expression) -> Expr:
        span = self.context.span(node)
        literal = bind_literal(node, self.context)
        if literal is not None:
            return literal
        match node:
            case ColumnPath():
                return self._column(node)
            case FieldAccess():
                value = self._bind(node.this)
                check_field(value, node.field, span)
                return self._build("FIELD", (value, string_literal(node.field)), span)
            case exp.Neg():
                negated = bind_literal(node.this, self.context, negative=True)
                if (
                    isinstance(negated, Literal)
                    and isinstance(negated.value, int | float)
                    and not isinstance(negated.value, bool)
                ):
                    return Literal(type=negated.type, value=negated.value, span=span)
                return self._build("UNARY_MINUS", (self._bind(node.this),), span)
            case exp.Not():
                return self._build("NOT", (self._bind(node.this),), span)
            case exp.Is():
                return self._is(node, span)
            case exp.Between():
                return self._between(node, span)
            case exp.In():
                return self._in(node, span)
            case exp.Overlaps():
                return self._build("OVERLAPS", (*self._period(node.this), *self._period(node.expression)), span)
            case exp.Escape():
                like = node.this
                name = "LIKE" if isinstance(like, exp.Like) else "SIMILAR TO"
                return self._build(name, self._all((like.this, like.expression, node.expression)), span)
            case exp.Case():
                return self._case(node, span)
            case FlinkCast():
                return self._cast(node, span)
            case exp.Tuple():
                return self._build("ROW", self._all(node.expressions), span)
            case FunctionCall():
                return self._call(node, span)
            case exp.Window():
                return self._over(node)
            case exp.Subquery() | exp.Exists() | exp.Query():
                return self._subquery(node)
            case exp.Star() | QualifiedStar():
                raise self.context.error(
                    "misplaced-star", "`*` is only allowed in the SELECT list and in COUNT(*)", node
                )
            case exp.Kwarg():
                raise self.context.unsupported(
                    "named-argument",
                    "named arguments are only supported in window TVFs",
                    node,
                    "write the arguments by position",
                )
            case exp.Var():
                return Literal(type=string_literal(node.name).type, value=node.name, span=span)
        operator = _INFIX.get(type(node))
        if operator is not None and isinstance(node.expression, exp.Any | exp.All):
            return self._quantified(operator, node, span)
        if operator is None:
            raise self.context.unsupported(
                "unsupported-expression", f"`{self.context.sql(node)}` is not supported here", node
            )
        return self._build(operator, (self._bind(node.this), self._bind(node.expression)), span)

    def _column(self, node: ColumnPath) -> Expr:
        span = self.context.span(node)
        if len(node.names) == 1 and node.names[0] in self.aliases:
            return self.aliases[node.names[0]]
        return resolve(self.relation, node.names, span, self.context.outer)

    def _all(self, nodes: Sequence[exp.Expression]) -> tuple[Expr, ...]:
        return tuple(self._bind(each) for each in nodes)

    def _build(self, name: str, args: tuple[Expr, ...], span: Span | None) -> Expr:
        from everfold.sql.functions import build

        return build(name, args, span)

    def _cast(self, node: FlinkCast, span: Span | None) -> Expr:
        from everfold.sql.functions import cast

        value = cast(self._bind(node.this), node.to, span, try_=node.safe)
        if isinstance(value, InputRef) and self._is_time_attribute(value):
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

    def _is(self, node: exp.Is, span: Span | None) -> Expr:
        value, kind = self._bind(node.this), node.expression
        name = "IS NULL"
        if isinstance(kind, exp.Boolean):
            name = "IS TRUE" if kind.this else "IS FALSE"
        elif isinstance(kind, exp.Var):
            name = "IS UNKNOWN"
        return self._build(name, (value,), span)

    def _between(self, node: exp.Between, span: Span | None) -> Expr:
        value, low, high = self._all((node.this, node.args["low"], node.args["high"]))
        plain = self._build("BETWEEN", (value, low, high), span)
        if not node.args.get("symmetric"):
            return plain
        return self._build("OR", (plain, self._build("BETWEEN", (value, high, low), span)), span)

    def _in(self, node: exp.In, span: Span | None) -> Expr:
        if node.args.get("query") is not None:
            return self._subquery(node)
        if not isinstance(node.this, exp.Tuple):
            return self._build("IN", (self._bind(node.this), *self._all(node.expressions)), span)
        left = self._all(node.this.expressions)
        any_: Expr | None = None
        for each in node.expressions:
            right = self._all(each.expressions) if isinstance(each, exp.Tuple) else ()
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

    def _period(self, node: exp.Expression) -> tuple[Expr, ...]:
        """Return both ends of a period, which is written as a row; the second may be its length."""
        row = isinstance(node, exp.Tuple) or (isinstance(node, FunctionCall) and node.name in ("ROW", "PERIOD"))
        if not row or len(node.expressions) != 2:
            raise self.context.error(
                "wrong-arguments",
                f"OVERLAPS compares periods, and `{self.context.sql(node)}` is not one",
                node,
                "write (start, end) or (start, INTERVAL '1' HOUR)",
            )
        return self._all(node.expressions)

    def _case(self, node: exp.Case, span: Span | None) -> Expr:
        operand = self._bind(node.this) if node.this is not None else None
        args: list[Expr] = []
        for branch in node.args["ifs"]:
            when = self._bind(branch.this)
            args += [
                when if operand is None else self._build("=", (operand, when), when.span),
                self._bind(branch.args["true"]),
            ]
        default = node.args.get("default")
        args.append(self._bind(default) if default is not None else null_literal())
        return self._build("CASE", tuple(args), span)

    def _subquery(self, node: exp.Expression) -> Expr:
        if self.subqueries is None:
            raise self.context.unsupported(
                "subquery", f"a subquery is not supported in {self.clause}", node, "write it as a join"
            )
        return self.subqueries.bind(node, self.relation, self.context)

    def _quantified(self, operator: str, node: exp.Expression, span: Span | None) -> Expr:
        """Bind a comparison with ANY or ALL rows of a subquery, through their minimum and maximum.

        `= ANY` and `<> ALL` are not handled here.
        """
        if self.subqueries is None:
            return self._subquery(node.expression.this)
        every, value = isinstance(node.expression, exp.All), self._bind(node.this)
        found = self.subqueries.bind_values(node.expression.this, self.relation, self.context)

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

    def _call(self, node: FunctionCall, span: Span | None) -> Expr:
        name = node.name
        function = find_user_function(node, self.context)
        if is_aggregate_call(node, self.context):
            return self._aggregate(node)
        if function is not None:
            self.refuse_aggregate_clauses(node)
            return bind_python_call(function, self._all(node.expressions), span)
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
        self.refuse_aggregate_clauses(node)
        args = list(node.expressions)
        if name in ("FLOOR", "CEIL", "CEILING") and len(args) == 2 and isinstance(args[1], exp.Var):
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

    def refuse_aggregate_clauses(self, node: FunctionCall) -> None:
        """Raise SqlError `not-an-aggregate` if a call has a clause of aggregate functions."""
        for clause, present in (
            ("DISTINCT", node.distinct),
            ("FILTER", node.filter),
            ("ORDER BY", node.order),
            ("NULLS", node.nulls),
        ):
            if present:
                raise self.context.error(
                    "not-an-aggregate", f"{clause} belongs to aggregate functions, and `{node.name}` is not one", node
                )

    def _over(self, node: exp.Window) -> Expr:
        from everfold.sql.binder.over import WindowBinder
        from everfold.sql.binder.over_functions import NEIGHBORS, SHARES, bind_neighbor, bind_share

        context, call = self.context, node.this
        if self.overs is None:
            where = f"`{self.within}`" if self.within is not None else self.clause
            raise context.error(
                "misplaced-over",
                f"OVER is not allowed in {where}",
                node,
                "compute it in a subquery: SELECT … FROM (SELECT …, f(x) OVER (…) AS y FROM t)",
            )
        assert isinstance(call, FunctionCall)
        function = find_user_function(call, context)
        if function is None and call.name in SHARES and not context.streaming:
            return bind_share(node, call, self._argument_binder(), self.overs, context)
        entry = find_over_function(call.name) if function is None else None
        if function is not None and function.is_aggregate:
            return self._bind_python_over(node, call, function)
        inside = self._argument_binder()
        if function is None and call.name in NEIGHBORS:
            return bind_neighbor(node, call, inside, self.overs, context)
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

    def _bind_python_over(self, node: exp.Window, call: FunctionCall, function: UserFunction) -> Expr:
        """Bind a user's aggregate function over a window, in a query that is only checked."""
        from everfold.sql.binder.over import WindowBinder

        assert self.overs is not None
        self.context.reject(self._over_function_error(call))
        inside = ExpressionBinder(self.relation, self.context, self.clause, calls=self.calls, window=self.window)
        like = find_over_function("MAX")
        assert like is not None
        window, parts = WindowBinder(self.context, self.overs, inside.bind).window(node, like)
        bound = bind_python_aggregate(function, call, inside.bind, inside.condition, self.context)
        return self.overs.reference(window, bound, parts)

    def _over_function_error(self, call: FunctionCall) -> SqlError:
        from everfold.sql.binder.over_functions import unsupported_function_error

        context, name = self.context, call.name
        if find_user_function(call, context) is not None:
            return context.unsupported(
                "over-function", f"`{name}` is a Python function, which OVER does not support yet", call
            )
        if name in OVER_FUNCTIONS:
            return unsupported_function_error(name, call, context)
        near = suggest_name(name, (*aggregate_names(), *window_function_names()))
        return context.error("over-function", f"`{name}` is not an aggregate function, and OVER needs one", call, near)

    def _grouping(self, node: FunctionCall) -> Expr:
        """Bind GROUPING and similar functions. Their values are known only when the sets are."""
        span = self.context.span(node)
        if self.calls is None:
            raise self.context.error("misplaced-aggregate", f"`{node.name}` is not allowed in {self.clause}", node)
        if node.name == "GROUP_ID":
            return Literal(type=GROUPING_TYPE, value=0, span=span)
        if not node.expressions:
            raise self.context.error("wrong-arguments", f"`{node.name}` takes the keys of GROUP BY", node)
        inside = ExpressionBinder(self.relation, self.context, self.clause, within=node.name)
        return Call(function=GROUPING, args=inside._all(node.expressions), type=GROUPING_TYPE, span=span)

    def _aggregate(self, node: FunctionCall) -> Expr:
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
        inside = ExpressionBinder(self.relation, context, self.clause, within=name, subqueries=self.subqueries)
        where = ExpressionBinder(self.relation, context, "FILTER", within="FILTER", subqueries=self.subqueries)
        function, entry = find_user_function(node, context), find_aggregate(name)
        if function is not None:
            return self.calls.reference(bind_python_aggregate(function, node, inside.bind, where.condition, context))
        assert entry is not None, name
        return self.calls.reference(bind_call(node, entry, inside.bind, where.condition, context))
