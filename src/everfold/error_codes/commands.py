"""Error codes: commands, case files, the Python API and the setup."""

from __future__ import annotations

from everfold.error_codes.entry import ErrorCode, Family

ENTRIES = (
    ErrorCode(
        "no-script",
        Family.COMMAND,
        "No script was specified, or more than one.",
        "A command takes one script file, or SQL with `-e`.",
        "name one script, or pass `-e SQL`.",
    ),
    ErrorCode(
        "unreadable-file",
        Family.COMMAND,
        "A script or case file cannot be read.",
        "The file does not exist, is not readable, or is not UTF-8.",
        "correct the path. The message has the reason.",
    ),
    ErrorCode(
        "file-exists",
        Family.COMMAND,
        "`everfold init` would overwrite files.",
        "A file that the project needs exists already. Nothing has been written.",
        "name another folder: `everfold init FOLDER`.",
    ),
    ErrorCode(
        "no-job",
        Family.COMMAND,
        "The folder is not a job directory.",
        "A job directory has a manifest, which `everfold run` writes.",
        "name the folder that `--state` named when the job ran.",
    ),
    ErrorCode(
        "no-version",
        Family.COMMAND,
        "The job has no version of this number.",
        "The first version of a job is 0, and each change adds one.",
        "use a number that the message lists, or see `everfold history FOLDER`.",
    ),
    ErrorCode(
        "too-many-partitions",
        Family.COMMAND,
        "A job cannot have so many partitions.",
        "Its state is divided into buckets, whose number was fixed when the job was created. A bucket is in one "
        "partition, so further partitions would be empty.",
        "choose at most the number of buckets; a new job with a higher `parallelism.default` has more of them.",
    ),
    ErrorCode(
        "no-operator",
        Family.COMMAND,
        "The job has no operator of this name.",
        "`everfold state --operator` takes the name or label of a stateful operator.",
        "use one that the message lists.",
    ),
    ErrorCode(
        "wrong-condition",
        Family.COMMAND,
        "The condition of `everfold state --where` cannot be evaluated.",
        "The condition is SQL over the columns of the state. Names that are not plain identifiers need double quotes.",
        "correct the condition, for example `--where 'spent > 10'`.",
    ),
    ErrorCode(
        "folder-name",
        Family.COMMAND,
        "The path of a job directory contains a character that Spark reads as a pattern.",
        "Spark expands `*`, `?`, brackets and braces in paths.",
        "name another folder with `--state`.",
    ),
    ErrorCode(
        "folder-of-job",
        Family.COMMAND,
        "The output folder is inside the job directory.",
        "Files in a job directory belong to the job.",
        "name a folder outside of it with `--out`.",
    ),
    ErrorCode(
        "nothing-to-check",
        Family.COMMAND,
        "The script has no query to check.",
        "`everfold check` compares the queries and `INSERT` statements of two scripts.",
        "add a `SELECT` or an `INSERT`.",
    ),
    ErrorCode(
        "not-in-memory",
        Family.UNSUPPORTED,
        "The memory engine cannot run this job.",
        "`--engine memory` reads bounded input, supports fewer connectors and keeps no state, so it cannot "
        "suspend a job.",
        "leave out `--engine memory`.",
    ),
    ErrorCode(
        "no-terminal",
        Family.COMMAND,
        "The shell was started without a terminal.",
        "`everfold sql` reads what a person types. Its standard input and output must be a terminal.",
        "run a script with `everfold run`; `everfold run -` reads it from standard input.",
    ),
    ErrorCode(
        "unknown-command",
        Family.COMMAND,
        "The shell has no such command.",
        "A line that begins with a backslash is a command of the shell. `\\?` lists them.",
        "correct the name. The message suggests a close one.",
    ),
    ErrorCode(
        "not-plottable",
        Family.COMMAND,
        "The result of a notebook's cell cannot be plotted.",
        "`%%everfold --plot` draws a number over a time, so the result needs a column of each.",
        "select the start of a window, such as `window_start`, and an aggregate; or leave out `--plot`.",
    ),
    ErrorCode(
        "unknown-rule",
        Family.COMMAND,
        "No compatibility rule has this code.",
        "`everfold explain` takes codes of rules, which `everfold check` prints. docs/rules.md lists them.",
        "correct the code. The message suggests a close one.",
    ),
    ErrorCode(
        "unknown-code",
        Family.COMMAND,
        "The name is neither a file nor an error code.",
        "`everfold explain` takes a script, the code of a compatibility rule, or an error code. "
        "docs/errors.md lists the error codes.",
        "correct the code. The message suggests a close one.",
    ),
    ErrorCode(
        "bad-case-file",
        Family.COMMAND,
        "A case file is malformed.",
        "The file is not valid YAML, has an unknown or missing entry, or a table in it cannot be parsed "
        "(docs/case-files.md).",
        "correct the line that the message names.",
    ),
    ErrorCode(
        "no-case-files",
        Family.COMMAND,
        "A folder has no case files.",
        "`everfold test FOLDER` runs all files below the folder that are named `*.case.yaml`.",
        "name another folder, or rename the files.",
    ),
    ErrorCode(
        "no-such-file",
        Family.COMMAND,
        "A path of `everfold test` does not exist.",
        "The command takes case files and folders.",
        "correct the path.",
    ),
    ErrorCode(
        "unbounded-case",
        Family.UNSUPPORTED,
        "A table of a case file is unbounded.",
        "A case compares the result with the expected rows after all input was read, so the input must end.",
        "give the table rows in the case, or declare a bounded one.",
    ),
    ErrorCode(
        "engine-missing",
        Family.SETUP,
        "The engine `spark` cannot run here.",
        "A Python package that it needs is not installed. The message names it. Spark is an extra, because `check`, "
        "`explain`, `test` and the memory engine do without it.",
        "run `pip install 'everfold[spark]'`. `everfold check-setup` checks the whole installation.",
    ),
    ErrorCode(
        "missing-package",
        Family.SETUP,
        "A connector or a command needs a Python package that is not installed.",
        "Optional dependencies are extras: `postgres` for the connector `jdbc`, `metrics` for `--metrics-port`, "
        "`shell` for `everfold sql`, `ui` for `everfold ui`, `notebook` for `%%everfold`, `lsp` for `everfold lsp`.",
        "run the `pip install` that the message shows.",
    ),
    ErrorCode(
        "port-not-available",
        Family.SETUP,
        "A server cannot listen on its port.",
        "Another process listens on the port of `--metrics-port` or `everfold ui --port`, only an administrator may "
        "use it, or the machine has no such address as `--metrics-host` or `--host`.",
        "choose another port or address. Port 0 takes a free one, and the command prints it.",
    ),
    ErrorCode(
        "no-java",
        Family.SETUP,
        "Java was not found, or is too old.",
        "Spark needs a Java runtime. It is searched for in `JAVA_HOME` and in `PATH`.",
        "install the version that the message names, and set `JAVA_HOME` if there are several.",
    ),
    ErrorCode(
        "spark-submit",
        Family.COMMAND,
        "An option of `everfold run` contradicts `spark-submit`, which has started the process.",
        "`spark-submit` decides about the master, the deploy mode and the options of the JVM, such as its memory, "
        "before everfold starts. The code covers `--master` and these options of `--conf`.",
        "pass the option to `spark-submit`, before the script.",
    ),
    ErrorCode(
        "spark-start",
        Family.SETUP,
        "Spark did not start.",
        "The message has the first line of the reason, for example an invalid `--conf` or `--master`; the log "
        "has the rest.",
        "resolve the reason, and check the machine with `everfold check-setup`.",
    ),
    ErrorCode(
        "no-archive",
        Family.SETUP,
        "Java did not write the archive of Spark's classes.",
        "The archive makes Spark start faster. Everything works without it.",
        "see the log that the message names, or continue without the archive.",
    ),
    ErrorCode(
        "not-a-query",
        Family.COMMAND,
        "`sql_query` or `explain_sql` was called with something else than one query.",
        "`sql_query` of the Python API takes one `SELECT`. `explain_sql` takes one `SELECT`, `INSERT`, "
        "`CREATE TABLE … AS` or statement set.",
        "use `execute_sql` for other statements.",
    ),
    ErrorCode(
        "not-a-job",
        Family.COMMAND,
        "`execute_sql(…, wait=False)` was called with a script that is not one job.",
        "The handle that it returns belongs to one job: the `INSERT` or the statement set at the end of the script. "
        "Statements before it may declare tables.",
        "start several jobs with several calls, and read the rows of a query with `sql_query`.",
    ),
    ErrorCode(
        "never-starts",
        Family.COMMAND,
        "A statement of `execute_sql` comes after an INSERT without end.",
        "`execute_sql` waits for each statement, and an INSERT from unbounded input ends only when it is stopped. "
        "`everfold run` starts such jobs at the same time.",
        "write the INSERTs as one job, `BEGIN STATEMENT SET; … END;`, or start each one with `wait=False`.",
    ),
    ErrorCode(
        "mixed-sources",
        Family.UNSUPPORTED,
        "A query reads both a streaming DataFrame and a table with a connector.",
        "The caller runs the query of a DataFrame, and everfold runs the query of a table, so one query "
        "cannot have both.",
        "read both as DataFrames, or both as tables.",
    ),
    ErrorCode(
        "updating-result",
        Family.UNSUPPORTED,
        "The result retracts rows, and `to_spark` has no row kinds.",
        "A DataFrame without row kinds cannot express updates and deletes.",
        "use `to_changelog()`.",
    ),
)
