"""Connector `filesystem`: a folder of files, as a source and as a sink."""
