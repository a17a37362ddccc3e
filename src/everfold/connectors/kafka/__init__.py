"""Connector `kafka`: topics, as a source and as a sink."""
