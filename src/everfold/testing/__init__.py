"""Case files: tests of SQL, for everfold and for its users.

`docs/case-files.md` specifies the format.
"""
