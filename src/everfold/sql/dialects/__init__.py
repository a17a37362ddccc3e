"""SQL dialects: each parses a script into `everfold.sql.statements`."""
