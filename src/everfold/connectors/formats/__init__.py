"""Formats: how a record's bytes become a row, and a row a record."""
