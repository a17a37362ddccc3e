"""User-defined functions in Python, with PyFlink's interface and names.

`docs/python-functions.md` describes them. The package imports nothing heavy, so that a script with
functions starts at once.
"""

from __future__ import annotations

from everfold.udf.datatypes import DataTypes
from everfold.udf.declared import udaf, udf
from everfold.udf.interface import AggregateFunction, FunctionContext, ScalarFunction, UserDefinedFunction
from everfold.udf.row import Row
from everfold.udf.views import ListView, MapView

__all__ = [
    "AggregateFunction",
    "DataTypes",
    "FunctionContext",
    "ListView",
    "MapView",
    "Row",
    "ScalarFunction",
    "UserDefinedFunction",
    "udaf",
    "udf",
]
