"""Reserved words.

Flink reserves about 300 words. Here a word is reserved only where it would be ambiguous, so `user`
may be a column.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NOT_A_NAME = _words("""
    SELECT FROM WHERE GROUP HAVING ORDER UNION INTERSECT EXCEPT LIMIT JOIN ON USING AS WITH CASE WHEN THEN ELSE END AND OR NOT IN IS
    BETWEEN LIKE EXISTS NULL TRUE FALSE DISTINCT VALUES INTO BY CROSS INNER LEFT RIGHT FULL NATURAL UNNEST LATERAL TABLE CAST TRY_CAST
""")
"""Words that cannot name a column or table without backticks, except after a dot."""

NOT_AN_ALIAS = NOT_A_NAME | _words("""
    OFFSET FETCH WINDOW FOR QUALIFY TABLESAMPLE MATCH_RECOGNIZE PIVOT UNPIVOT SIMILAR ESCAPE OVER FILTER WITHIN MINUS SET OUTER SEMI ANTI
    ASOF INSERT CREATE PARTITION RESPECT IGNORE COLLATE
""")
"""Words that can be an alias only after AS."""

AFTER_AN_ITEM = ("FROM", "AS", "OVER", "FILTER", "WITHIN")
"""Keywords that may come after an item of SELECT."""

AFTER_A_RELATION = (
    *(
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "WINDOW",
        "QUALIFY",
        "OFFSET",
        "FETCH",
    ),
    *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ON", "USING", "AS"),
)
"""Keywords that may come after an item of FROM."""

NOT_A_FUNCTION = NOT_A_NAME - _words("LEFT RIGHT")
"""Words that are not a function name before a parenthesis."""

NILADIC = _words("CURRENT_TIMESTAMP CURRENT_DATE CURRENT_TIME LOCALTIME LOCALTIMESTAMP")
"""Functions that are called without parentheses."""

_INTERVAL_UNITS = _words("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND")
_OTHER_UNITS = _words("MILLISECOND MICROSECOND NANOSECOND EPOCH DOW ISODOW DOY ISOYEAR DECADE CENTURY MILLENNIUM")

UNITS = {f"{unit}{plural}": unit for unit in sorted(_INTERVAL_UNITS) for plural in ("", "S")}
"""Units of intervals, singular and plural, mapped to the singular."""

TIME_UNITS = {
    **{unit: unit for unit in sorted(_INTERVAL_UNITS | _OTHER_UNITS)},
    **{f"SQL_TSI_{unit}": unit for unit in sorted(_INTERVAL_UNITS)},
}
"""Units of EXTRACT, FLOOR and TIMESTAMPADD mapped to their plain names; no plurals, as in Flink."""
