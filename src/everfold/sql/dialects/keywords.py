"""Which words are taken. Flink reserves some 300; here a word is taken only where it would be ambiguous, so `user` may be a column."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NOT_A_NAME = _words("""
    SELECT FROM WHERE GROUP HAVING ORDER UNION INTERSECT EXCEPT LIMIT JOIN ON USING AS WITH CASE WHEN THEN ELSE END AND OR NOT IN IS
    BETWEEN LIKE EXISTS NULL TRUE FALSE DISTINCT VALUES INTO BY CROSS INNER LEFT RIGHT FULL NATURAL UNNEST LATERAL TABLE CAST TRY_CAST
""")
"""Words that never name a column or a table without backticks (behind a dot they do)."""

NOT_AN_ALIAS = NOT_A_NAME | _words("""
    OFFSET FETCH WINDOW FOR QUALIFY TABLESAMPLE MATCH_RECOGNIZE PIVOT UNPIVOT SIMILAR ESCAPE OVER FILTER WITHIN MINUS SET OUTER SEMI ANTI
    ASOF INSERT CREATE PARTITION RESPECT IGNORE COLLATE
""")
"""Words that are no alias unless AS comes before."""

NOT_A_FUNCTION = NOT_A_NAME - _words("LEFT RIGHT")
"""Words that call nothing when a parenthesis follows."""

NILADIC = _words("CURRENT_TIMESTAMP CURRENT_DATE CURRENT_TIME LOCALTIME LOCALTIMESTAMP")
"""Functions without parentheses."""

_INTERVAL_UNITS = _words("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND")
_OTHER_UNITS = _words("MILLISECOND MICROSECOND NANOSECOND EPOCH DOW ISODOW DOY ISOYEAR DECADE CENTURY MILLENNIUM")

UNITS = {f"{unit}{plural}": unit for unit in sorted(_INTERVAL_UNITS) for plural in ("", "S")}
"""Units of intervals, also in the plural, to the singular."""

TIME_UNITS = {
    **{unit: unit for unit in sorted(_INTERVAL_UNITS | _OTHER_UNITS)},
    **{f"SQL_TSI_{unit}": unit for unit in sorted(_INTERVAL_UNITS)},
}
"""Units of EXTRACT, FLOOR, TIMESTAMPADD, to their plain names; no plurals, as in Flink."""
