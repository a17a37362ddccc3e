"""The columns that vectorized functions take and return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from everfold.types import DataType
from everfold.udf.function import FuncType
from everfold.udf.values import WrongValue

if TYPE_CHECKING:
    import pyarrow as pa


def to_function_column(column: pa.Array | pa.ChunkedArray, kind: FuncType) -> Any:
    """Convert a column to pyarrow.Array, polars.Series or pandas.Series, as `kind` requires."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    match kind:
        case "polars":
            import polars as pl

            return pl.Series(pl.from_arrow(whole))
        case "pandas":
            return whole.to_pandas()
        case _:
            return whole


def cast_to_declared(column: pa.Array, of: DataType) -> pa.Array:
    """Cast a column to the Arrow type of its declared type, if another library changed it.

    Maps may remain lists of structs.
    """
    import pyarrow as pa

    try:
        return column.cast(of.arrow)
    except pa.ArrowNotImplementedError:
        return column


def first_values(given: Sequence[Any]) -> list[Any]:
    """Return the first value of each column of any library. Empty columns are skipped."""
    return [unwrap_scalar(column[0]) for column in given if len(column)]


def unwrap_scalar(value: Any) -> Any:
    """Return a single value without its Arrow wrapper."""
    import pyarrow as pa

    return value.as_py() if isinstance(value, pa.Scalar) else value


def from_function_column(value: Any, of: DataType, rows: int) -> pa.Array:
    """Convert a column returned by a function to Arrow, with the declared type.

    Raises WrongValue if it is not a column, has the wrong length or another type.
    """
    import pyarrow as pa

    try:
        column = _arrow(value)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise WrongValue(f"is not a column of {of.sql}: {' '.join(str(error).split())}") from None
    if column is None:
        raise WrongValue(
            f"is of type {type(value).__name__}, not a column: "
            "a vectorized function returns a pyarrow, Polars, pandas or NumPy column"
        )
    if len(column) != rows:
        raise WrongValue(f"has {len(column)} values for {rows} rows")
    if not _fits(column.type, of.arrow):
        raise WrongValue(f"is an Arrow column of {column.type}, but {of.sql} is {of.arrow} in Arrow")
    try:
        made: pa.Array = column.cast(of.arrow)
    except pa.ArrowException as error:
        raise WrongValue(f"does not fit into {of.sql}: {' '.join(str(error).split())}") from None
    if made.null_count and not of.nullable:
        raise WrongValue(f"contains NULLs, but is declared as {of}")
    return made


def _arrow(value: Any) -> pa.Array | None:
    """Return a column of any library as one Arrow array, None if it is not a column."""
    import pyarrow as pa

    library = type(value).__module__.partition(".")[0]
    if library == "polars":
        import polars as pl

        if isinstance(value, pl.Series):
            value = value.to_arrow(compat_level=pl.CompatLevel.oldest())
    elif library == "pandas":
        value = pa.array(value, from_pandas=True)
    elif library == "numpy" and getattr(value, "ndim", 0) == 1:
        value = pa.array(value)
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    return value if isinstance(value, pa.Array) else None


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast is allowed: within a family of types, never to or from strings."""
    import pyarrow.types as kinds

    if found.equals(wanted) or kinds.is_null(found):
        return True
    if kinds.is_dictionary(found):
        return _fits(found.value_type, wanted)
    if _is_list(found) and _is_list(wanted):
        return _fits(found.value_type, wanted.value_type)
    if kinds.is_struct(found) and kinds.is_struct(wanted):
        same = [field.name for field in found] == [field.name for field in wanted]
        return same and all(_fits(one.type, other.type) for one, other in zip(found, wanted, strict=True))
    if kinds.is_map(found) and kinds.is_map(wanted):
        return _fits(found.key_type, wanted.key_type) and _fits(found.item_type, wanted.item_type)
    if kinds.is_timestamp(found) and kinds.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None)
    if kinds.is_floating(wanted):
        return bool(kinds.is_floating(found) or kinds.is_integer(found))
    families = (kinds.is_integer, kinds.is_decimal, kinds.is_date, _is_string, _is_binary)
    return any(family(found) and family(wanted) for family in families)


def _is_list(of: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_list(of) or kinds.is_large_list(of) or kinds.is_fixed_size_list(of))


def _is_string(of: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_string(of) or kinds.is_large_string(of) or kinds.is_string_view(of))


def _is_binary(of: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(
        kinds.is_binary(of) or kinds.is_large_binary(of) or kinds.is_fixed_size_binary(of) or kinds.is_binary_view(of)
    )
