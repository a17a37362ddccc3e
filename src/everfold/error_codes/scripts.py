"""Error codes: scripts, options, tables and views."""

from __future__ import annotations

from everfold.error_codes.entry import ErrorCode, Family
from everfold.limits import MAX_CHARACTERS, MAX_COLUMNS, MAX_NODES, MAX_SETS, MAX_STATEMENTS, MAX_TOKENS, MAX_VIEWS

ENTRIES = (
    ErrorCode(
        "syntax",
        Family.SQL,
        "The script is not valid SQL at the marked position.",
        "The parser expected something else there. The message names what it found and, where possible, what "
        "may come next. Strings take single quotes, names take backticks, and statements end with a "
        "semicolon.",
        "correct the SQL at the marked position.",
    ),
    ErrorCode(
        "unsupported-statement",
        Family.UNSUPPORTED,
        "The statement is valid Flink SQL, but everfold does not run it.",
        "Examples are `CREATE OR REPLACE`, `CREATE DATABASE`, `ALTER` and `EXECUTE PLAN`. `SHOW JOBS`, `STOP JOB` "
        "and `DESCRIBE JOB` are statements of the shell. The statement is refused before anything starts.",
        "use the alternative that the message suggests, or remove the statement.",
    ),
    ErrorCode(
        "unsupported-clause",
        Family.UNSUPPORTED,
        "A clause of the statement is valid Flink SQL, but everfold does not support it.",
        "Examples are `ORDER BY` within an aggregate call, `UNIQUE`, `LIKE` of a table without a `CREATE "
        "TABLE` statement, and `UNNEST` of several collections.",
        "remove the clause, or use the form that the message suggests.",
    ),
    ErrorCode(
        "unsupported-expression",
        Family.UNSUPPORTED,
        "The expression is valid SQL, but everfold does not support it at this position.",
        "The parser accepts the expression, and the binder has no meaning for it.",
        "rewrite the expression with the functions and operators of docs/functions.md.",
    ),
    ErrorCode(
        "too-complex",
        Family.SQL,
        "The script exceeds a size limit.",
        "Compile time grows with the size of a script, so everfold limits it. Among the limits are "
        f"{MAX_CHARACTERS:,} characters, {MAX_TOKENS:,} tokens, {MAX_STATEMENTS:,} statements, {MAX_COLUMNS:,} "
        f"columns of a table or result, {MAX_SETS:,} grouping sets, {MAX_VIEWS} nested views and {MAX_NODES:,} "
        "nodes of a plan, where a view counts once per use. docs/security.md lists all of them.",
        "split the script into several jobs, or replace repeated uses of a view with a table.",
    ),
    ErrorCode(
        "too-deep",
        Family.SQL,
        "An expression or a query is nested too deeply.",
        "The parser recurses over the nesting. The limits are 64 nested parentheses, calls and subqueries, of "
        "which a query counts twice, and 150 levels of an expression, such as a chain of operators.",
        "split the expression with a view or `WITH`.",
    ),
    ErrorCode(
        "unknown-variable",
        Family.SQL,
        "A variable of the script has no value.",
        "A script refers to a variable as `${name}` or to an environment variable. The session has no value "
        "under that name.",
        "pass `--var name=value`, or export the environment variable.",
    ),
    ErrorCode(
        "unknown-option",
        Family.SQL,
        "No option has this name.",
        "The name is neither an option of `SET` (docs/options.md) nor one of the table's connector and format "
        "(docs/connectors.md). Unknown options are refused, because an ignored one could change the result.",
        "correct the name. The message suggests the closest one.",
    ),
    ErrorCode(
        "unsupported-option",
        Family.UNSUPPORTED,
        "everfold supports only one value of this option, and it is not the specified one.",
        "The option exists in Flink, where it takes other values. docs/options.md lists the supported value "
        "of each such option.",
        "leave the option out, or set it to the supported value.",
    ),
    ErrorCode(
        "wrong-option-value",
        Family.SQL,
        "The value of an option is not valid.",
        "The value has the wrong type, is outside its range, or contradicts another option. The code covers "
        "options of `SET`, of tables, and `--conf`, `--var` and `--source` of the command line.",
        "write a value of the type that the message names.",
    ),
    ErrorCode(
        "duplicate-option",
        Family.SQL,
        "An option of a table is specified twice.",
        "The list in `WITH` has the same key more than once, so its value is ambiguous.",
        "remove one of the two.",
    ),
    ErrorCode(
        "missing-option",
        Family.SQL,
        "A table lacks an option that its connector or format needs.",
        "The option is always required, or another option makes it so: for example `password` needs "
        "`username`, and a startup mode of `timestamp` needs the timestamp.",
        "add the option. docs/connectors.md describes the options of each connector.",
    ),
    ErrorCode(
        "late-option",
        Family.SQL,
        "An option of a Lenses topic is set after the topic was declared.",
        "The properties of a topic are read when it is declared, so the option would have no effect.",
        "move the `SET topic.<name>.<property>` statement before the topic.",
    ),
    ErrorCode(
        "unknown-dialect",
        Family.COMMAND,
        "No SQL dialect has this name.",
        "The dialects are `flink` and `lenses`. `--dialect` sets the initial one, and `SET "
        "'everfold.dialect'` changes it within a script.",
        "correct the name.",
    ),
    ErrorCode(
        "unknown-table",
        Family.SQL,
        "No table or view has this name.",
        "Tables and views exist from their `CREATE` statement to the end of the session. A hint such as "
        "`STATE_TTL` can name only tables and aliases of its `FROM`.",
        "declare the table first, or correct the name. The message suggests a close one or lists the known ones.",
    ),
    ErrorCode(
        "unknown-view",
        Family.SQL,
        "No view has the name in `DROP VIEW`.",
        "The view was not created in this session, was dropped already, or is not temporary although the "
        "statement says `TEMPORARY`.",
        "correct the name, or write `IF EXISTS`.",
    ),
    ErrorCode(
        "unknown-database",
        Family.SQL,
        "The name refers to a catalog or database that does not exist.",
        "everfold has a single database, `default_catalog.default_database`, as a session of Flink has by default.",
        "leave out the qualification, or use this database.",
    ),
    ErrorCode(
        "unknown-job",
        Family.SQL,
        "No job has this ID or name.",
        "`STOP JOB` and `DESCRIBE JOB` take an ID or a name that `SHOW JOBS` lists. `STOP JOB` stops the jobs of the "
        "shell that runs it.",
        "use a job that `SHOW JOBS` lists.",
    ),
    ErrorCode(
        "table-exists",
        Family.SQL,
        "A table or view with this name exists already.",
        "Tables and views share one namespace, and `CREATE` does not replace them. `DROP` removes a declaration from "
        "the session, and never rows.",
        "choose another name, or write `IF NOT EXISTS` to keep the one that exists.",
    ),
    ErrorCode(
        "temporary-hides",
        Family.SQL,
        "A temporary table or view hides the permanent one that is to be dropped.",
        "`DROP TABLE` and `DROP VIEW` refer to permanent objects. With a temporary object of the same name, "
        "it would be unclear which one is meant.",
        "drop the temporary one first, with `DROP TEMPORARY …`.",
    ),
    ErrorCode(
        "not-a-table",
        Family.SQL,
        "The statement needs a table, and the name belongs to a view or to a query.",
        "A view cannot be written to, dropped with `DROP TABLE`, copied with `LIKE` or shown with `SHOW "
        "CREATE TABLE`. In Lenses SQL the name of a `WITH` is not a topic.",
        "name a table, or use the statement for views.",
    ),
    ErrorCode(
        "not-a-view",
        Family.SQL,
        "The statement needs a view, and the name belongs to a table.",
        "`DROP VIEW` and `SHOW CREATE VIEW` apply to views only.",
        "use `DROP TABLE` or `SHOW CREATE TABLE`, or correct the name.",
    ),
    ErrorCode(
        "recursive-view",
        Family.SQL,
        "A view refers to itself.",
        "The query of the view uses the view, directly or through other views, so it cannot be expanded.",
        "remove the reference from the query of the view.",
    ),
    ErrorCode(
        "view-changed",
        Family.SQL,
        "A view no longer has the columns that it was created with.",
        "A table that the view selects with `*` was dropped and created again with another number of columns.",
        "create the view after the table, or list its columns.",
    ),
    ErrorCode(
        "unknown-column",
        Family.SQL,
        "No column has this name here.",
        "The name is not a column of the tables in scope, of the table in a column list, primary key or "
        "`PARTITIONED BY`, or `ORDER BY n` is outside the result. Names are case-sensitive.",
        "correct the name. The message suggests a close one or lists the known ones.",
    ),
    ErrorCode(
        "duplicate-column",
        Family.SQL,
        "A column name occurs twice where names must be unique.",
        "This concerns the columns of a table or view, of `PRIMARY KEY`, of an `INSERT` column list, of "
        "`PARTITIONED BY`, and the projections of Lenses SQL.",
        "rename one of the columns with `AS`, or remove it.",
    ),
    ErrorCode(
        "ambiguous-column",
        Family.SQL,
        "A column name can refer to several columns.",
        "Two tables of `FROM` have a column of this name, or a subquery has two. With `USING`, each side must "
        "have exactly one.",
        "qualify the name with its table, or rename one of the columns with `AS`.",
    ),
    ErrorCode(
        "column-count",
        Family.SQL,
        "The number of columns does not match.",
        "A query must have as many columns as the table that it is inserted into, the column list of its view "
        "or alias, or the other side of a set operation. All rows of `VALUES` have the same number of values.",
        "list the columns, or add or remove some of the query.",
    ),
    ErrorCode(
        "missing-column",
        Family.SQL,
        "A column that must have a value gets none.",
        "In an `INSERT` with a column list, each column that is `NOT NULL` must be in the list. When a "
        "Parquet file is read, each declared column must be in the file.",
        "add the column to the list or the file, or declare it without `NOT NULL`.",
    ),
    ErrorCode(
        "type-mismatch",
        Family.SQL,
        "The types of two columns or values do not fit together.",
        "The query of an `INSERT` must return types that the table's columns accept implicitly. The sides of "
        "a set operation and the rows of `VALUES` must have a common type.",
        "convert one of them with `CAST`.",
    ),
    ErrorCode(
        "untyped-null",
        Family.SQL,
        "A result column is NULL without a type.",
        "`NULL` alone has no type, and a column of a result or a table must have one.",
        "write `CAST(NULL AS STRING)`, or another type.",
    ),
    ErrorCode(
        "wrong-primary-key",
        Family.SQL,
        "`PRIMARY KEY` names a column that is not physical.",
        "A primary key consists of stored columns. Computed columns and metadata columns cannot be a part of it.",
        "name physical columns.",
    ),
    ErrorCode(
        "like-conflict",
        Family.SQL,
        "`CREATE TABLE … LIKE` declares something that the source table has already.",
        "By default the parts of both tables are combined, and a part such as the watermark or the primary "
        "key can exist only once.",
        "write `EXCLUDING` or `OVERWRITING` with the part that the message names.",
    ),
    ErrorCode(
        "wrong-watermark",
        Family.SQL,
        "The `WATERMARK` of a table is not valid.",
        "A watermark is declared for a column of type `TIMESTAMP` or `TIMESTAMP_LTZ` with a precision of 0 to "
        "3, and its expression has the same kind of type. Processing time has no watermark.",
        "cast the column in a computed column, for example `ts AS CAST(t AS TIMESTAMP(3))`, and declare the "
        "watermark for that.",
    ),
    ErrorCode(
        "nested-rowtime",
        Family.UNSUPPORTED,
        "A watermark is declared for a field of a `ROW`.",
        "everfold supports watermarks for top-level columns only.",
        "declare a computed column for the field, such as `ts AS payload.ts`, and its watermark.",
    ),
    ErrorCode(
        "insert-overwrite",
        Family.UNSUPPORTED,
        "`INSERT OVERWRITE` is not supported.",
        "In a stream it has no meaning, because the input never ends. In batch mode everfold does not support it yet.",
        "write `INSERT INTO`, to a new folder.",
    ),
    ErrorCode(
        "unknown-type",
        Family.SQL,
        "No data type has this name.",
        "The supported types are those of Flink SQL (docs/sql.md).",
        "correct the name. The message suggests a close one.",
    ),
    ErrorCode(
        "wrong-type",
        Family.SQL,
        "A data type is written with invalid parameters.",
        "Length, precision and scale have ranges, an `INTERVAL` takes certain pairs of units, and the fields "
        "of a `ROW` have unique names. The declared types of Python functions are checked in the same way.",
        "correct the parameter that the message names.",
    ),
    ErrorCode(
        "unsupported-type",
        Family.UNSUPPORTED,
        "everfold does not support this data type here.",
        "Some types of Flink, such as `RAW`, `VARIANT` and `TIMESTAMP WITH TIME ZONE`, have no equivalent. "
        "JSON functions return and accept fewer types, and a DataFrame can have Spark types that SQL does not "
        "have.",
        "use the type that the message suggests, or `CAST` the value.",
    ),
    ErrorCode(
        "timestamp-precision",
        Family.UNSUPPORTED,
        "A timestamp has more than six fractional digits.",
        "everfold stores microseconds, as Spark does; Flink supports up to nine digits.",
        "use a precision of at most 6.",
    ),
)
