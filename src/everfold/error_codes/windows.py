"""Error codes: windows and time."""

from __future__ import annotations

from everfold.error_codes.entry import ErrorCode, Family

ENTRIES = (
    ErrorCode(
        "no-time-attribute",
        Family.SQL,
        "The time column of a window is not a time attribute.",
        "In a stream, a window closes when the watermark passes its end, so its time needs a `WATERMARK` or "
        "must be `PROCTIME()`. `window_start` and `window_end` are plain timestamps; `window_time` is a time "
        "attribute. In batch, any `TIMESTAMP` or `TIMESTAMP_LTZ` column will do.",
        "declare a `WATERMARK` for the column, or `EVENTTIME BY` in Lenses SQL.",
    ),
    ErrorCode(
        "window-size",
        Family.SQL,
        "The size of a window is not valid.",
        "Sizes are constant, positive intervals of fixed length, so months are not allowed. The size of `HOP` "
        "and `CUMULATE` must be a multiple of the slide or step.",
        "correct the interval. `GROUP BY HOP(ts, slide, size)` takes any size.",
    ),
    ErrorCode(
        "window-offset",
        Family.SQL,
        "The offset of `TUMBLE` is not shorter than its size.",
        "An offset shifts the start of all windows, and a shift by a whole window has no effect.",
        "use a shorter offset.",
    ),
    ErrorCode(
        "proctime-in-batch",
        Family.UNSUPPORTED,
        "A batch query uses the processing time of a window.",
        "Processing time is the time at which a stream processes a row. A batch processes all rows at once.",
        "use a column of the data as the time.",
    ),
    ErrorCode(
        "proctime-window",
        Family.UNSUPPORTED,
        "An aggregate over a window's result needs event time.",
        "The query combines the window with columns of its rows, which is not supported for windows by "
        "processing time.",
        "use a time column with a `WATERMARK`.",
    ),
    ErrorCode(
        "two-windows",
        Family.UNSUPPORTED,
        "`GROUP BY` has two windows.",
        "A group belongs to one window of one kind.",
        "aggregate by one window, and then the result by the other.",
    ),
    ErrorCode(
        "window-in-sets",
        Family.UNSUPPORTED,
        "A group window is combined with `GROUPING SETS`, `ROLLUP` or `CUBE`.",
        "The old syntax `GROUP BY TUMBLE(…)` does not support grouping sets.",
        "use a window table function, and group by `window_start`, `window_end` and the sets.",
    ),
    ErrorCode(
        "misplaced-window",
        Family.SQL,
        "A group window function is used where it is not allowed.",
        "`TUMBLE(…)`, `HOP(…)` and `SESSION(…)` belong in `GROUP BY`. Their bounds, such as "
        "`TUMBLE_START(…)`, belong in `SELECT` and `HAVING` of the same query.",
        "write the window in `GROUP BY`, and select its start, end or rowtime.",
    ),
    ErrorCode(
        "other-window",
        Family.SQL,
        "A window bound names another window than `GROUP BY`.",
        "`TUMBLE_START(ts, INTERVAL '1' HOUR)` and similar functions repeat the window of `GROUP BY` exactly.",
        "use the same column and sizes as in `GROUP BY`.",
    ),
    ErrorCode(
        "other-time",
        Family.SQL,
        "A window bound asks for a kind of time that the window does not have.",
        "`…_ROWTIME` is defined for windows by event time. Windows by processing time have `…_PROCTIME`.",
        "use `…_PROCTIME`, or a window by event time.",
    ),
    ErrorCode(
        "emit-delay",
        Family.SQL,
        "Early firing is enabled without a delay.",
        "`table.exec.emit.early-fire.enabled` emits results of open windows, and needs to know how often.",
        "set `table.exec.emit.early-fire.delay`, for example to `1 min`, or to `0 ms` for every batch.",
    ),
    ErrorCode(
        "emit-lateness",
        Family.SQL,
        "Late firing is enabled without a fitting allowed lateness.",
        "`table.exec.emit.late-fire.enabled` emits changes of closed windows. Their state is kept for "
        "`table.exec.emit.allow-lateness`, which must be positive and not less than "
        "`table.exec.emit.late-fire.delay`.",
        "set `table.exec.emit.allow-lateness`, or a shorter delay.",
    ),
    ErrorCode(
        "without-over",
        Family.SQL,
        "A window function is called without `OVER`.",
        "Functions such as `ROW_NUMBER`, `RANK` and `LAG` are defined only for the ordered rows of a window.",
        "write `OVER (PARTITION BY … ORDER BY …)` after the call.",
    ),
    ErrorCode(
        "misplaced-over",
        Family.SQL,
        "`OVER` is used where it is not allowed.",
        "Window calls are allowed in `SELECT`, `QUALIFY` and `ORDER BY`, because they are computed after "
        "`WHERE` and `GROUP BY`. They cannot be inside an aggregate.",
        "compute the call in a subquery, and use its result.",
    ),
    ErrorCode(
        "over-function",
        Family.UNSUPPORTED,
        "This function cannot be used with `OVER` here.",
        "`OVER` takes aggregate and window functions. In a stream, functions that need later rows, such as "
        "`LEAD` and `NTILE`, are not available, and Python functions are not supported with `OVER`.",
        "use another function, or run in batch.",
    ),
    ErrorCode(
        "over-without-order",
        Family.SQL,
        "`OVER` lacks `ORDER BY`.",
        "Rows of a stream have no inherent order, and functions such as `RANK` depend on it.",
        "write `OVER (PARTITION BY … ORDER BY …)`, with the time attribute in a stream.",
    ),
    ErrorCode(
        "over-frame",
        Family.SQL,
        "The frame of an `OVER` window is not valid.",
        "It begins after its end, begins at `UNBOUNDED FOLLOWING`, ends at `UNBOUNDED PRECEDING`, or belongs "
        "to a function that takes no frame, such as `ROW_NUMBER`.",
        "put the earlier bound first, or leave the frame out.",
    ),
    ErrorCode(
        "over-bound",
        Family.SQL,
        "A bound of an `OVER` frame is not valid or not supported.",
        "A bound is a constant that is not negative: a number of rows for `ROWS`, a distance in the type of "
        "the only `ORDER BY` column for `RANGE`. In a stream, `RANGE` with a distance needs an ascending time "
        "attribute and append-only rows.",
        "write a number of rows with `ROWS`, or an `INTERVAL` with `RANGE`.",
    ),
    ErrorCode(
        "over-upper-bound",
        Family.UNSUPPORTED,
        "In a stream, a frame does not end at the current row.",
        "Later rows have not arrived yet, and frames that end earlier are not supported.",
        "write `… AND CURRENT ROW`, or run in batch.",
    ),
    ErrorCode(
        "over-order",
        Family.UNSUPPORTED,
        "Processing time is one of several `ORDER BY` columns of an `OVER` window.",
        "A stream is ordered by arrival if it is ordered by processing time, and cannot be ordered by "
        "anything else in addition.",
        "order by processing time alone, or by other columns only.",
    ),
    ErrorCode(
        "over-descending",
        Family.UNSUPPORTED,
        "An `OVER` window in a stream is ordered by descending processing time.",
        "The latest row would come first, and a stream never has a latest row.",
        "leave `DESC` out, or run in batch.",
    ),
    ErrorCode(
        "over-changes",
        Family.UNSUPPORTED,
        "An `OVER` window by processing time reads updating rows.",
        "The order of arrival is defined for inserts, and not for changes of earlier rows.",
        "order by a column, compute `OVER` before the aggregation, or run in batch.",
    ),
    ErrorCode(
        "unknown-window",
        Family.SQL,
        "No window of this name is defined, or it refers to itself.",
        "`OVER w` and `WINDOW v AS (w …)` name windows of the `WINDOW` clause of the same query.",
        "define the window with `WINDOW w AS (…)`, or correct the name.",
    ),
    ErrorCode(
        "window-twice",
        Family.SQL,
        "A named window is extended by a part that it has already.",
        "A window that builds on another one can add `ORDER BY` or a frame if the other one lacks it. It "
        "cannot change `PARTITION BY`.",
        "define a separate window.",
    ),
    ErrorCode(
        "qualify-without-window",
        Family.SQL,
        "The condition of `QUALIFY` contains no window function.",
        "`QUALIFY` filters by the results of window functions.",
        "use `WHERE`, or `HAVING` for groups.",
    ),
)
