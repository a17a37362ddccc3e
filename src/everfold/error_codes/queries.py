"""Error codes: queries and expressions."""

from __future__ import annotations

from everfold.error_codes.entry import ErrorCode, Family

ENTRIES = (
    ErrorCode(
        "not-in-group-by",
        Family.SQL,
        "A column is neither in `GROUP BY` nor inside an aggregate.",
        "A group has one result row, so each column of the result must have one value per group. The "
        "arguments of `GROUPING` must be grouping keys.",
        "add the column to `GROUP BY`, or aggregate it.",
    ),
    ErrorCode(
        "not-in-select",
        Family.SQL,
        "A column is used that must be in the `SELECT` list.",
        "`ORDER BY` of a `SELECT DISTINCT` can sort only by selected columns. `HAVING` of Lenses SQL refers "
        "to aggregated projections by name.",
        "add the column to the `SELECT` list, in Lenses SQL with a name.",
    ),
    ErrorCode(
        "misplaced-aggregate",
        Family.SQL,
        "An aggregate or `GROUPING` function is used where none is allowed.",
        "Aggregates are computed per group and can be used in `SELECT`, `HAVING`, `QUALIFY` and `ORDER BY`.",
        "aggregate in a subquery, and use its result here.",
    ),
    ErrorCode(
        "aggregate-in-where",
        Family.SQL,
        "An aggregate is used in `WHERE`.",
        "`WHERE` filters rows before they are aggregated.",
        "name the aggregate in `SELECT` and filter by that name in `HAVING`.",
    ),
    ErrorCode(
        "nested-aggregate",
        Family.SQL,
        "An aggregate is used inside another aggregate.",
        "An aggregate takes values of single rows, and not results of groups.",
        "compute the inner aggregate in a subquery, or in a `WITH` of Lenses SQL, and aggregate its result.",
    ),
    ErrorCode(
        "misplaced-star",
        Family.SQL,
        "`*` is used where it is not allowed.",
        "`*` stands for the columns of `FROM` and is allowed in the `SELECT` list and in `COUNT(*)`. `x.*` "
        "needs a table or a `ROW` named x.",
        "name the columns.",
    ),
    ErrorCode(
        "misplaced-hint",
        Family.SQL,
        "A hint is attached to something that is not a table.",
        "Hints such as `OPTIONS` change a table that is read or written. Views and subqueries do not have them.",
        "move the hint to the table in the definition of the view or subquery.",
    ),
    ErrorCode(
        "unsupported-hint",
        Family.UNSUPPORTED,
        "everfold does not support this hint.",
        "After a table, `OPTIONS` is supported; after `SELECT`, `STATE_TTL` is. Spark chooses join strategies "
        "itself, so join hints are not needed.",
        "remove the hint.",
    ),
    ErrorCode(
        "not-a-condition",
        Family.SQL,
        "A condition does not have the type `BOOLEAN`.",
        "`WHERE`, `HAVING`, `ON`, `FILTER`, `QUALIFY` and `CASE WHEN` take conditions.",
        "compare the value with something, for example `x <> 0`.",
    ),
    ErrorCode(
        "not-an-aggregate",
        Family.SQL,
        "A clause of aggregate functions is used in a call of another function.",
        "`DISTINCT`, `FILTER`, `ORDER BY` and `IGNORE NULLS` belong to calls of aggregate functions.",
        "remove the clause, or call an aggregate function.",
    ),
    ErrorCode(
        "unknown-function",
        Family.SQL,
        "No function has this name.",
        "The name is not a built-in function of the dialect (docs/functions.md), a Python function that the "
        "session has created, or a table function. `DROP FUNCTION` raises this for a name that does not "
        "exist.",
        "correct the name, or create the function first.",
    ),
    ErrorCode(
        "unsupported-function",
        Family.UNSUPPORTED,
        "The function, or this form of it, is not available on the engine.",
        "Some functions exist on Spark and not in the memory engine, or the other way round. "
        "docs/functions.md marks these.",
        "run the query on the other engine, or use another function.",
    ),
    ErrorCode(
        "watermark-function",
        Family.UNSUPPORTED,
        "The function returns a watermark, which is not available there.",
        "The watermark belongs to the operators that wait for it: windows, `OVER` and the like. They drop "
        "late rows, count them and keep samples of them. Connectors do not provide watermarks.",
        "declare the watermark as an expression over the time column, such as `ts - INTERVAL '5' SECOND`.",
    ),
    ErrorCode(
        "unsupported-aggregate",
        Family.UNSUPPORTED,
        "The aggregate function does not run in batch on this engine.",
        "The streaming implementation keeps state that the SQL of the batch engine cannot express. The "
        "message has the reason.",
        "run the query as a stream, or on the engine that the message does not name.",
    ),
    ErrorCode(
        "wrong-arguments",
        Family.SQL,
        "A function is called with the wrong number or types of arguments.",
        "The message names what the function takes. Arguments are converted implicitly only where no value "
        "can be lost. The hint `STATE_TTL` and table functions report their arguments in this way, too.",
        "correct the arguments, with `CAST` if necessary.",
    ),
    ErrorCode(
        "named-argument",
        Family.UNSUPPORTED,
        "A function is called with named arguments.",
        "Names of arguments, as in `f(a => 1)`, are supported only in window table functions.",
        "write the arguments by position.",
    ),
    ErrorCode(
        "wrong-literal",
        Family.SQL,
        "A literal does not have a valid value.",
        "A number does not fit its type or has too many digits, an interval, date, time, hexadecimal or "
        "Unicode string is malformed, or `LIMIT` exceeds 2,147,483,647.",
        "correct the literal. A large number can be written as a string and `CAST` to `DECIMAL`.",
    ),
    ErrorCode(
        "wrong-cast",
        Family.SQL,
        "A value cannot be converted to the required type.",
        "Flink has no conversion between the two types, or it has no implicit one. Where the conversion "
        "exists, a single value can still fail at run time with `cast-failed`.",
        "write the `CAST` that the message suggests, or convert through another type such as `STRING`.",
    ),
    ErrorCode(
        "unknown-field",
        Family.SQL,
        "The value has no field of this name.",
        "Fields are accessed in values of type `ROW`. In Lenses SQL this concerns `_meta`, too, whose fields "
        "depend on the topic.",
        "correct the name. The message lists or suggests the existing ones.",
    ),
    ErrorCode(
        "wrong-path",
        Family.SQL,
        "A JSON path is malformed.",
        "A path is a string such as `'$.a.b[0]'`, optionally after `lax` or `strict`.",
        "correct the path.",
    ),
    ErrorCode(
        "unsupported-path",
        Family.UNSUPPORTED,
        "A JSON path uses a feature that everfold does not support.",
        "A path must be a constant string of names and array indexes. Wildcards, filters, ranges and names "
        "that contain quotes are not supported.",
        "use names and indexes only, or several calls.",
    ),
    ErrorCode(
        "subquery",
        Family.UNSUPPORTED,
        "A subquery is used where everfold does not support one.",
        "`IN` and `EXISTS` with a subquery are supported as conditions of `WHERE` and `HAVING`, alone or "
        "combined by `AND`. Lenses SQL has no subqueries.",
        "write it as a join. In Lenses SQL, name it with `WITH`.",
    ),
    ErrorCode(
        "scalar-subquery",
        Family.UNSUPPORTED,
        "A subquery that is used as a value may return more than one row.",
        "The subquery must return one row whatever the data is, which only an aggregation without `GROUP BY` "
        "guarantees.",
        "aggregate it, as in `(SELECT MAX(x) FROM t)`.",
    ),
    ErrorCode(
        "correlated-subquery",
        Family.UNSUPPORTED,
        "A subquery uses a column of the outer query.",
        "everfold evaluates a subquery once, independently of the rows of the outer query.",
        "write it as a join.",
    ),
    ErrorCode(
        "lateral",
        Family.UNSUPPORTED,
        "`LATERAL` with a subquery is not supported.",
        "Such a subquery would have to run for each row of the left side.",
        "write it as a join. `LATERAL` with a window table function and `CROSS JOIN UNNEST` are supported.",
    ),
    ErrorCode(
        "table-function",
        Family.UNSUPPORTED,
        "The table function is not supported.",
        "`FROM` supports `TUMBLE`, `HOP`, `CUMULATE`, `SESSION` and `UNNEST`.",
        "use one of these, or prepare the rows in another job.",
    ),
    ErrorCode(
        "topn-range",
        Family.UNSUPPORTED,
        "A Top-N condition selects no row.",
        "Row numbers start at 1, and the range of the condition ends before it begins.",
        "write `WHERE rn <= n`, with n at least 1.",
    ),
    ErrorCode(
        "unsupported-in-join",
        Family.UNSUPPORTED,
        "A Python function in a join condition reads columns of both sides.",
        "Python functions run in a projection of one input, before the join.",
        "call it in `WHERE`, or on one side in a subquery.",
    ),
    ErrorCode(
        "streaming-join",
        Family.UNSUPPORTED,
        "This join is not supported in a stream.",
        "A stream can be joined with a bounded table on its right. Joining two unbounded tables would keep "
        "all rows of both, and `RIGHT` and `FULL` joins emit rows that are known only at the end of the "
        "stream.",
        "put the stream on the left and the bounded table on the right, combine streams with `UNION ALL` and "
        "aggregate, or run in batch.",
    ),
    ErrorCode(
        "temporal-join",
        Family.UNSUPPORTED,
        "`FOR SYSTEM_TIME AS OF` does not refer to the processing time of the stream.",
        "everfold reads the current rows of the table on the right side of a join and does not keep their "
        "history, so it cannot join with an earlier state.",
        "to join a stream with a bounded table, declare a column `proc AS PROCTIME()` in the left table and name it. "
        "An unbounded table cannot be joined, with or without the clause.",
    ),
    ErrorCode(
        "streaming-order-by",
        Family.UNSUPPORTED,
        "A stream is sorted by something other than its time.",
        "The input never ends, so that a row can only be emitted in order if no earlier one can follow: when the "
        "watermark has passed its time. Rows that change have no order.",
        "begin `ORDER BY` with an ascending time attribute, add `LIMIT n` to follow the first n rows, or run in batch.",
    ),
    ErrorCode(
        "streaming-offset",
        Family.UNSUPPORTED,
        "`OFFSET` without `LIMIT` is not supported in a stream.",
        "All rows would have to be kept forever.",
        "add `LIMIT n`, or run in batch.",
    ),
    ErrorCode(
        "streaming-set-operation",
        Family.UNSUPPORTED,
        "`INTERSECT` and `EXCEPT` are not supported in a stream.",
        "They would keep all rows of both inputs forever. `UNION` and `UNION ALL` are supported.",
        "run the query in batch.",
    ),
    ErrorCode(
        "not-in-stream",
        Family.UNSUPPORTED,
        "An operator of the plan runs only in batch.",
        "Sorting, limiting and set operations need the end of the input.",
        "run the query in batch, with `SET 'execution.runtime-mode' = 'batch'`.",
    ),
    ErrorCode(
        "unsupported-in-stream",
        Family.UNSUPPORTED,
        "The operator is not supported in a stream, or not over updating rows.",
        "Session windows and window Top-N take append-only rows, and some window operators run in batch only.",
        "aggregate by `window_start` and `window_end` first, or run in batch.",
    ),
    ErrorCode(
        "no-retraction",
        Family.UNSUPPORTED,
        "An aggregate cannot retract rows, and its input may do so.",
        "The input is an updating result, such as that of another aggregation, or a table whose rows change. "
        "The aggregate keeps too little state to remove a value. A Python aggregate needs a method `retract`.",
        "use an aggregate that supports retraction, define `retract`, or run in batch.",
    ),
    ErrorCode(
        "changes-beside-changes",
        Family.UNSUPPORTED,
        "Updating rows are joined with a table that is read again in every batch.",
        "When a row is retracted, the join must find the row that it was joined with before. A table that is "
        "read again may have changed since then.",
        "set `'lookup.cache' = 'FULL'` to read the table once when the job starts, or join before the aggregation.",
    ),
    ErrorCode(
        "changes-in-batch",
        Family.UNSUPPORTED,
        "A batch query reads a table that contains changes.",
        "A batch, and the lookup side of a join, read rows. They cannot apply the updates and deletes of a table whose "
        "records are changes, for example of the format `debezium-json`. Upserts are read: the last row of each key.",
        "run the query as a stream, or write the changes to an `upsert-kafka` table and read that.",
    ),
)
