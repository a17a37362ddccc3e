"""Error codes: values and rows at run time."""

from __future__ import annotations

from everfold.error_codes.entry import ErrorCode, Family

ENTRIES = (
    ErrorCode(
        "bad-record",
        Family.DATA,
        "A record cannot be parsed, or a value does not fit its column.",
        "The message has the position of the record and the reason. The job stops rather than skip data silently.",
        "fix the record, or set the format's `ignore-parse-errors` option, which skips and counts such "
        "records. For PostgreSQL, declare a type that can represent the value.",
    ),
    ErrorCode(
        "cast-failed",
        Family.DATA,
        "A value cannot be cast to the requested type.",
        "A string is not a valid number, date or time, or a number is NaN or infinite. The message has the "
        "value and the position of the expression.",
        "use `TRY_CAST`, which returns NULL, or filter these values with `WHERE`.",
    ),
    ErrorCode(
        "division-by-zero",
        Family.DATA,
        "An integer or decimal is divided by zero.",
        "As in Flink, the job fails. The message has the position of the expression.",
        "write `a / NULLIF(b, 0)`, which returns NULL, or filter these rows with `WHERE`.",
    ),
    ErrorCode(
        "json-failed",
        Family.DATA,
        "A JSON function with `ERROR ON EMPTY` or `ERROR ON ERROR` found no value.",
        "The clause asks to fail if there is no value at the path, or if the document is not valid JSON.",
        "fix the data, or use `NULL` or `DEFAULT` in place of `ERROR`.",
    ),
    ErrorCode(
        "time-overflow",
        Family.DATA,
        "`CEIL` of a `TIME` is after the end of the day.",
        "The value is rounded up to the next unit, and `TIME` ends before 24:00.",
        "use `FLOOR`, or a `TIMESTAMP`.",
    ),
    ErrorCode(
        "wrong-size",
        Family.DATA,
        "`ELEMENT` got several elements, or `MAP_FROM_ARRAYS` got arrays of different lengths.",
        "`ELEMENT` returns the only element of an array. `MAP_FROM_ARRAYS` needs one value for each key.",
        "select an element by its index, as in `a[1]`, or make both arrays equally long.",
    ),
    ErrorCode(
        "several-values",
        Family.DATA,
        "`SINGLE_VALUE` got more than one row.",
        "The aggregate, which a scalar subquery may use, is defined for at most one row per group.",
        "make sure that the group has one row, or use `MAX` or `FIRST_VALUE`.",
    ),
    ErrorCode(
        "null-key",
        Family.DATA,
        "A key is NULL where keys must not be.",
        "The key of a pair in `JSON_OBJECTAGG` is NULL, or a record that is written to a table of Lenses SQL "
        "has the key NULL.",
        "filter such rows with `WHERE key IS NOT NULL`. In Lenses SQL, a named key may be NULL: `GROUP BY "
        "field AS name`.",
    ),
    ErrorCode(
        "repeated-key",
        Family.DATA,
        "A key occurs more than once in `JSON_OBJECTAGG`.",
        "The keys of a JSON object are unique, and Flink fails in this case, too.",
        "aggregate the values of each key first, or use `JSON_ARRAYAGG`.",
    ),
    ErrorCode(
        "null-map-key",
        Family.DATA,
        "A key of a `MAP` is NULL.",
        "Flink's maps can have a NULL key, and fail when they are written as JSON; everfold's maps cannot have one.",
        "replace NULL in the keys, for example by `COALESCE(key, '')`, or leave such rows out.",
    ),
    ErrorCode(
        "unsupported-pattern",
        Family.DATA,
        "A regular expression in a column has syntax that RE2 does not know.",
        "The memory engine uses RE2, which has no lookaround, no backreferences and no possessive quantifiers.",
        "change the pattern, or run without `--engine memory`: Spark uses Java's regular expressions, as Flink does.",
    ),
    ErrorCode(
        "regex-too-costly",
        Family.DATA,
        "A regular expression takes too long, or too much memory, for a string.",
        "Spark uses Java's regular expressions, as Flink does. They can take a time that doubles with each "
        "character, for example `(a|aa)+b`, or hours for a string of 100,000 characters, for example `.*a.*b.*c`, and "
        "need memory for each repetition of a group. In Flink such a row blocks or ends the task. A value may take 30 "
        "million steps, and 100 for each of its characters, and 256 MB.",
        "avoid repetitions next to or within another one that can match the same characters, or leave the row out by "
        "a condition on its other columns, or on `CHAR_LENGTH`.",
    ),
    ErrorCode(
        "null-rowtime",
        Family.DATA,
        "The time attribute of a row is NULL.",
        "A row without a time belongs to no window. The message has the file or record.",
        "fix the record, or `SET 'everfold.null-rowtime' = 'drop'` to skip and count such rows.",
    ),
    ErrorCode(
        "csv-needs-quotes",
        Family.DATA,
        "A string cannot be written to CSV without quotes.",
        "The string contains the field delimiter or a line break, and the table has `csv.disable-quote-character`.",
        "set `csv.escape-character`, or leave out `csv.disable-quote-character`.",
    ),
    ErrorCode(
        "refused-row",
        Family.DATA,
        "PostgreSQL refuses a row.",
        "The row violates a constraint, does not fit its column, or contains U+0000 in a string. Nothing of "
        "the batch was written.",
        "fix the data or the table, and run the same command again.",
    ),
)
