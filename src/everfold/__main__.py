"""`python -m everfold` is the command `everfold`."""

from __future__ import annotations

from everfold.cli.main import main

if __name__ == "__main__":
    main()
