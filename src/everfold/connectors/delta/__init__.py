"""Connector `delta`: tables of Delta Lake."""
