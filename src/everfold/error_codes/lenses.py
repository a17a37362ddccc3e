"""Error codes: Lenses SQL and translation."""

from __future__ import annotations

from everfold.error_codes.entry import ErrorCode, Family

ENTRIES = (
    ErrorCode(
        "no-group-by",
        Family.SQL,
        "An aggregation of Lenses SQL has no `GROUP BY`.",
        "The key of the result consists of the fields of `GROUP BY`.",
        "add `GROUP BY field`.",
    ),
    ErrorCode(
        "no-aggregated-projection",
        Family.SQL,
        "An aggregation of Lenses SQL selects no aggregate.",
        "With `GROUP BY`, at least one projection must contain an aggregate function.",
        "add one, such as `COUNT(*) AS records`.",
    ),
    ErrorCode(
        "no-key",
        Family.SQL,
        "The records of the source have no key.",
        "A source that is read as a table, or whose `_key` is used, needs a key by which its records are identified.",
        "declare a column `_key` or a `PRIMARY KEY`, or read the source as a stream.",
    ),
    ErrorCode(
        "unnamed-key",
        Family.SQL,
        "A field of the key has no name.",
        "An expression in `GROUP BY` becomes a field of the key, and the key has more than one field.",
        "name it with `AS`.",
    ),
    ErrorCode(
        "unqualified-key",
        Family.SQL,
        "`_key` is ambiguous in an aggregation.",
        "It can mean the key of the source or the key of the result, which `GROUP BY` defines.",
        "qualify it with the name of the source.",
    ),
    ErrorCode(
        "key-format",
        Family.UNSUPPORTED,
        "A key without a field name has a type that its storage format does not hold.",
        "A single value is stored as STRING, INT, LONG, DOUBLE or BYTES. Other types, such as BOOLEAN and DECIMAL, "
        "are stored as fields of a structure.",
        "name the key, as in `GROUP BY x AS name`, or convert it, as in `CAST(x AS STRING)`.",
    ),
    ErrorCode(
        "value-format",
        Family.UNSUPPORTED,
        "A value without fields has a type that its storage format does not hold.",
        "A single value is stored as STRING, INT, LONG, DOUBLE or BYTES. Other types, such as BOOLEAN and DECIMAL, "
        "are stored as fields of a structure.",
        "name a field, as in `x AS name`, or convert it, as in `CAST(x AS STRING) AS _value`.",
    ),
    ErrorCode(
        "key-projection",
        Family.SQL,
        "A projection of an aggregation writes to `_key`.",
        "`GROUP BY` defines the key of an aggregation.",
        "name a field of the value, and shape the key with `GROUP BY x AS name`.",
    ),
    ErrorCode(
        "meta-projection",
        Family.SQL,
        "A projection writes to `_meta`.",
        "`_meta` holds metadata of the record that is read, such as its offset.",
        "choose another name for the projection.",
    ),
    ErrorCode(
        "unnamed-projection",
        Family.SQL,
        "A projection has no name.",
        "Each projection becomes a field of the result's value. Fields keep their names; expressions have none.",
        "name it with `AS`.",
    ),
    ErrorCode(
        "rekeyed-table",
        Family.UNSUPPORTED,
        "A query on a table changes the key.",
        "The rows of a table are identified by their key, so it must stay the same.",
        "write `SELECT STREAM`, which treats the records as events.",
    ),
    ErrorCode(
        "stream-only-aggregate",
        Family.SQL,
        "The aggregate works on streams only.",
        "When a record of a table changes, its old value is retracted. This aggregate can handle that only if "
        "all values are kept.",
        "write `SELECT STREAM`, or `SET everfold.lenses.exact-tables = true` to keep all values.",
    ),
    ErrorCode(
        "table-as-stream",
        Family.SQL,
        "A table is read with `SELECT STREAM`.",
        "The rows of this source are the latest state of each key, and not individual events.",
        "write `SELECT TABLE`.",
    ),
    ErrorCode(
        "table-in-batch",
        Family.UNSUPPORTED,
        "Computed rows are read as a table in batch mode.",
        "A table holds the last row of each key. The rows of a topic or a file have an order, those of a join or an "
        "aggregation of a batch have none.",
        "run the query as a stream, or write the rows to a topic and read that.",
    ),
    ErrorCode(
        "eventtime-on-table",
        Family.SQL,
        "`EVENTTIME BY` is used with a table.",
        "A table holds the latest state of each key, and not a series of events.",
        "write `SELECT STREAM`, or leave the clause out.",
    ),
    ErrorCode(
        "wrong-event-time",
        Family.SQL,
        "The field of `EVENTTIME BY` is not a time.",
        "The field must hold milliseconds since 1970, or a timestamp.",
        "name another field, or convert it.",
    ),
    ErrorCode(
        "window-on-table",
        Family.SQL,
        "`WINDOW BY` is used with a table.",
        "A table holds the latest state of each key, and not a series of events over time.",
        "write `SELECT STREAM`, or leave `WINDOW BY` out.",
    ),
    ErrorCode(
        "wrong-duration",
        Family.SQL,
        "A duration of Lenses SQL is malformed.",
        "A duration is a number and a unit, such as `10s`, `5m` or `1h`.",
        "correct the duration.",
    ),
    ErrorCode(
        "wrong-field",
        Family.SQL,
        "The name of a declared field is not valid.",
        "A nested field cannot be declared by its path, and `_meta` cannot be declared.",
        "declare a structure, such as `a ROW<b INT>`.",
    ),
    ErrorCode(
        "wrong-format",
        Family.SQL,
        "The declared columns of a topic do not fit its `FORMAT`.",
        "`FORMAT (key, value)` sets the storage formats of the key and of the value. A format of single "
        "values, such as `STRING`, takes one column `_key` or `_value` of its type; the others take fields.",
        "declare the columns that the message names, or another format.",
    ),
    ErrorCode(
        "unknown-topic",
        Family.SQL,
        "The topic of an `INSERT` is not declared.",
        "Topics are created automatically only with `defaults.topic.autocreate`.",
        "`SET defaults.topic.autocreate = true`, or declare the topic with `CREATE TABLE`.",
    ),
    ErrorCode(
        "not-in-flink",
        Family.UNSUPPORTED,
        "The script cannot be translated to Flink SQL.",
        "It uses a feature of Lenses SQL without an equivalent. The message names it.",
        "remove the feature, or run the script in the Lenses dialect.",
    ),
    ErrorCode(
        "not-in-lenses",
        Family.UNSUPPORTED,
        "The script cannot be translated to Lenses SQL.",
        "It uses a feature of Flink SQL without an equivalent. The message names it.",
        "remove the feature, or run the script in the Flink dialect.",
    ),
    ErrorCode(
        "not-one-plan",
        Family.UNSUPPORTED,
        "The translated script does not have the same plan.",
        "`everfold translate` compares the plans of both scripts, and prints the translation only if they are equal.",
        "compare the plans with `everfold explain`, and simplify the query.",
    ),
)
