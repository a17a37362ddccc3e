"""Connector `jdbc`: tables of PostgreSQL, as a source and as a sink.

Named and configured as in Flink, but it does not use JDBC.
"""
