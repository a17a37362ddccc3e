"""Connector `jdbc`: tables of PostgreSQL, as a source and as a sink. Named and configured as Flink's; there is no JDBC in it."""
