"""Run the `everfold` command with `python -m everfold`."""

from __future__ import annotations

from everfold.cli.main import main

if __name__ == "__main__":
    main()
