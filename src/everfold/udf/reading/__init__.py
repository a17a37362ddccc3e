"""Read Python functions from the source of their modules, without running it.

`check`, `explain` and the dashboard judge scripts of people who may not run code. They need the
types of Python functions, which decorators and methods declare. Importing the module would run it,
so its source is interpreted instead: constants, types of SQL, `udf`, `udaf`, classes, and functions
that only return such values. Everything else is an `Unknown` with its position.

Functions become stand-ins with the same names, signatures and base classes, which never run.
"""

from __future__ import annotations

from everfold.udf.reading.modules import FunctionReader, ModuleFailure, NoModuleError
from everfold.udf.reading.unknown import Unknown, UnknownError

__all__ = ["FunctionReader", "ModuleFailure", "NoModuleError", "Unknown", "UnknownError"]
