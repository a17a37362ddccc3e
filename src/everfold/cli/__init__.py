"""The command line: `everfold run`, `explain`, `test`, `check-setup`."""
