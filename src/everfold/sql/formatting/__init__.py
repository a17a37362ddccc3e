"""Format a script in one style: keywords in capitals, a clause per line, comments in place."""

from everfold.sql.formatting.script import format_script

__all__ = ["format_script"]
