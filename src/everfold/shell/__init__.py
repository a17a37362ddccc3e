"""The SQL shell."""
