"""Case files: how everfold's SQL is tested, ours and users'. `docs/case-files.md` specifies the format."""
