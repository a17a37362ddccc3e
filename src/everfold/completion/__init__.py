"""Completion of SQL that is being typed, for the shell and for editors."""
