"""Error codes: Python functions."""

from __future__ import annotations

from everfold.error_codes.entry import ErrorCode, Family

ENTRIES = (
    ErrorCode(
        "python-module",
        Family.SQL,
        "The Python module of a function cannot be imported.",
        "`CREATE FUNCTION` names a function as 'module.attribute'. Modules are searched for in the folder of "
        "the script and in the installed packages. The module does not exist there, or raises an error when "
        "it is imported.",
        "correct the name, or the error that the message shows.",
    ),
    ErrorCode(
        "python-attribute",
        Family.SQL,
        "The Python module has no attribute of this name.",
        "The part after the last dot of the identifier must be a name in the module.",
        "correct the name. The message suggests a close one.",
    ),
    ErrorCode(
        "unreadable-function",
        Family.SQL,
        "What a Python function declares is only known when its module is run.",
        "`check`, `explain`, `translate` and the dashboard do not run Python modules: they read the source. Types in "
        "the decorators `udf` and `udaf` and in `get_result_type()` must be constants, `DataTypes`, or names of such "
        "values. The message names the line that would have to be run.",
        "declare the types with constants. If you trust the module, use `everfold check` or `explain` with "
        "`--import-functions`.",
    ),
    ErrorCode(
        "not-a-function",
        Family.SQL,
        "The Python object cannot be used as a function.",
        "It is not callable, its class cannot be created without arguments or lacks a method, or its "
        "`func_type` is not supported.",
        "create the function with `udf` or `udaf` (docs/python-functions.md).",
    ),
    ErrorCode(
        "undeclared-type",
        Family.SQL,
        "A Python function does not declare its result or accumulator type.",
        "SQL needs the types before any row is processed.",
        "declare them with `udf(…, result_type='BIGINT')` or `udaf`, or with `get_result_type()` of an "
        "aggregate function.",
    ),
    ErrorCode(
        "function-exists",
        Family.SQL,
        "A function of this name exists already.",
        "`CREATE FUNCTION` does not replace functions. Temporary and permanent functions are separate.",
        "choose another name, or write `IF NOT EXISTS` to keep the one that exists.",
    ),
    ErrorCode(
        "function-language",
        Family.UNSUPPORTED,
        "A function is declared in another language than Python.",
        "everfold runs functions in Python only. Without `LANGUAGE`, the default is Java, as in Flink.",
        "write the function in Python, and add `LANGUAGE PYTHON`.",
    ),
    ErrorCode(
        "function-failed",
        Family.FUNCTION,
        "A Python function raised an exception.",
        "The message has the exception and the arguments of the call; the notes have the traceback. The batch "
        "was not completed, so the row is processed again when the job resumes.",
        "fix the function, and run the same command again.",
    ),
    ErrorCode(
        "wrong-result",
        Family.FUNCTION,
        "A Python function returned a value that does not fit its result type.",
        "Values are not converted silently: a result of `BIGINT` must be an integer in its range, for example.",
        "return a value of the declared type, or declare another type.",
    ),
    ErrorCode(
        "wrong-accumulator",
        Family.FUNCTION,
        "The accumulator of a Python aggregate does not fit its declared type.",
        "Accumulators are stored in the job's state by their declared type.",
        "keep values of the declared type in the accumulator, or declare another one. A different type needs "
        "a new `--state` folder.",
    ),
)
