"""SQL dialects: each turns a script's text into `everfold.sql.statements`."""
