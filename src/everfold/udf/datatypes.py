"""Types with PyFlink's names: `DataTypes.BIGINT()` is BIGINT of SQL.

Wherever a type is expected, its SQL is accepted as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold import types
from everfold.types import DataType, RowField


class DataTypes:
    """The types of SQL. All are nullable by default."""

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> DataType:  # noqa: N802
        """True and False."""
        return types.BooleanType(nullable=nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 8 bits."""
        return types.TinyIntType(nullable=nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 16 bits."""
        return types.SmallIntType(nullable=nullable)

    @staticmethod
    def INT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 32 bits."""
        return types.IntType(nullable=nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 64 bits."""
        return types.BigIntType(nullable=nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> DataType:  # noqa: N802
        """A float of 32 bits."""
        return types.FloatType(nullable=nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DataType:  # noqa: N802
        """A float of 64 bits."""
        return types.DoubleType(nullable=nullable)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DataType:  # noqa: N802
        """A decimal.Decimal with `precision` digits, `scale` of them after the decimal point."""
        return types.DecimalType(precision=precision, scale=scale, nullable=nullable)

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """A str of `length` characters."""
        return types.StringType(length=length, fixed=True, nullable=nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """A str of at most `length` characters."""
        return types.StringType(length=length, nullable=nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> DataType:  # noqa: N802
        """A str."""
        return types.StringType(nullable=nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """A bytes object of `length` bytes."""
        return types.BytesType(length=length, fixed=True, nullable=nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """A bytes object of at most `length` bytes."""
        return types.BytesType(length=length, nullable=nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> DataType:  # noqa: N802
        """A bytes object."""
        return types.BytesType(nullable=nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DataType:  # noqa: N802
        """A datetime.date."""
        return types.DateType(nullable=nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> DataType:  # noqa: N802
        """A datetime.time."""
        return types.TimeType(precision=precision, nullable=nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> DataType:  # noqa: N802
        """A datetime.datetime without a time zone."""
        return types.TimestampType(precision=precision, nullable=nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> DataType:  # noqa: N802
        """A datetime.datetime with a time zone."""
        return types.TimestampType(precision=precision, local_zone=True, nullable=nullable)

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> DataType:  # noqa: N802
        """The same as TIMESTAMP_LTZ."""
        return DataTypes.TIMESTAMP_LTZ(precision, nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> DataType:  # noqa: N802
        """A list."""
        return types.ArrayType(element=element_type, nullable=nullable)

    @staticmethod
    def LIST_VIEW(element_type: DataType) -> DataType:  # noqa: N802
        """A list in an accumulator."""
        return DataTypes.ARRAY(element_type)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> DataType:  # noqa: N802
        """A dict."""
        return types.MapType(key=key_type, value=value_type, nullable=nullable)

    @staticmethod
    def MAP_VIEW(key_type: DataType, value_type: DataType) -> DataType:  # noqa: N802
        """A dict in an accumulator."""
        return DataTypes.MAP(key_type, value_type)

    @staticmethod
    def MULTISET(element_type: DataType, nullable: bool = True) -> DataType:  # noqa: N802
        """A dict with the number of occurrences of each element."""
        return types.MultisetType(key=element_type, nullable=nullable)

    @staticmethod
    def ROW(row_fields: Sequence[RowField | DataType], nullable: bool = True) -> DataType:  # noqa: N802
        """A Row. Types without names get the field names f0, f1, …"""
        fields = tuple(
            each if isinstance(each, RowField) else RowField(name=f"f{at}", type=each)
            for at, each in enumerate(row_fields)
        )
        return types.RowType(fields=fields, nullable=nullable)

    @staticmethod
    def FIELD(name: str, data_type: DataType) -> RowField:  # noqa: N802
        """A field of a ROW."""
        return RowField(name=name, type=data_type)
