"""Python functions on Spark: Arrow-optimized UDFs, and the shipping of their modules."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from everfold.error_transport import transport_errors
from everfold.operators.protocol import Operator
from everfold.plan.expressions import PythonCall
from everfold.plan.nodes import Plan
from everfold.plan.python_aggregates import AggregateNode
from everfold.types import DataType
from everfold.udf.declared import unwrap_function
from everfold.udf.function import PythonFunction
from everfold.udf.running import open_function
from everfold.udf.scalar import ScalarRun

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_PACKAGE = str(Path(__file__).parents[1])


def python_column(call: PythonCall, args: Sequence[str], guard: str | None) -> Column:
    """Return a Python call as a column, over its arguments as Spark SQL.

    guard: a condition without which the function is not called and the result is NULL.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.pandas.functions import arrow_udf

    pickle_by_value([call.of])
    make: Any = arrow_udf
    udf = make(_annotate(_Values(call, [arg.type for arg in call.args])), call.type.spark)
    if not call.of.deterministic:
        udf = udf.asNondeterministic()
    column: Column = udf(F.expr(guard or "TRUE"), *map(F.expr, args))
    return column


class _Values:
    """Computes a call over batches of columns; the first column tells which rows are needed.

    A batch of one column is the column instead of a tuple.
    """

    def __init__(self, call: PythonCall, args: Sequence[DataType]) -> None:
        self._call, self._args = call, args

    def __call__(self, batches: Iterator[tuple[pa.Array, ...] | pa.Array]) -> Iterator[pa.Array]:
        call = self._call
        run = ScalarRun(call.of, self._args, call.type, call.span)
        with transport_errors(), open_function(call.of, call.span):
            for batch in batches:
                wanted, *arguments = batch if isinstance(batch, tuple) else (batch,)
                arguments = [column.cast(of.arrow) for column, of in zip(arguments, self._args, strict=True)]
                yield self._where(wanted, arguments, run)

    def _where(self, wanted: pa.Array, arguments: Sequence[pa.Array], run: ScalarRun) -> pa.Array:
        """Compute the call for the needed rows, with NULL for the others."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = int(wanted.true_count)
        if rows == len(wanted):
            return run(arguments, rows)
        values = run([column.filter(wanted) for column in arguments], rows)
        indices = pc.if_else(wanted, pc.subtract(pc.cumulative_sum(wanted.cast(pa.int64())), 1), None)
        return values.take(indices)


def _annotate(values: _Values) -> Any:
    """Return the function in the form that PySpark expects, a plain one with annotations."""
    import pyarrow as pa

    def evaluate(batches):  # type: ignore[no-untyped-def]
        return values(batches)

    evaluate.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    return evaluate


# --- modules --------------------------------------------------------------------------------------


def ship_functions(node: Plan) -> None:
    """Ship the functions that a node calls to the workers, with operators pickled from now on."""
    if isinstance(node, AggregateNode):
        pickle_by_value([call.python for call in node.calls if call.python is not None])


def pickle_operator(operator: Operator) -> bytes:
    """Pickle an operator for the workers. Call `ship_functions` before."""
    from pyspark import cloudpickle

    dumps: Callable[[Operator], bytes] = cloudpickle.dumps
    return dumps(operator)


def pickle_by_value(functions: Sequence[PythonFunction]) -> None:
    """Ship functions to the workers with their modules and those of the same folder.

    Workers have only installed modules.
    """
    from pyspark import cloudpickle

    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    for module in {id(each): each for of in functions for each in _modules(of)}.values():
        register(module)


def _modules(of: PythonFunction) -> Iterator[ModuleType]:
    """Yield the loaded modules in or below the folder that the function's module is imported from.

    Modules that workers have anyway are omitted.
    """
    origin = unwrap_function(of.function)
    home = _folder(sys.modules.get(getattr(origin, "__module__", None) or type(origin).__module__))
    for module in list(sys.modules.values()):
        folder = _folder(module)
        if home is not None and folder is not None and folder.is_relative_to(home) and module.__name__ != "__main__":
            yield module  # the main script is always pickled by value


def _folder(module: ModuleType | None) -> Path | None:
    """Return the folder that a module is imported from.

    None for installed modules and those without a file.
    """
    file = getattr(module, "__file__", None)
    if module is None or not file or file.startswith((*_INSTALLED, _PACKAGE)):
        return None
    folder = Path(file).resolve().parent
    for _ in range(module.__name__.count(".") + (Path(file).name == "__init__.py")):
        folder = folder.parent
    return folder
