"""Claim job directories at the same time as another process does. Started by test_two_starts.

Reads the names of folders from standard input, and writes `won` or `lost` for each. Gives a folder
back when the next one comes.
"""

from __future__ import annotations

import json
import sys

from everfold.errors import StateError
from everfold.jobs.shared_ownership import SharedOwnership
from everfold.spark.hadoop import connect_without_spark
from everfold.storage import Location


def main(root: str, conf: str, lease_s: str) -> None:
    """Claim each folder."""
    store = connect_without_spark(json.loads(conf))
    store.find(root)
    print("ready", flush=True)
    for name in map(str.strip, sys.stdin):
        owner = SharedOwnership(Location(f"{root}/{name}", store), lease_s=float(lease_s))
        try:
            owner.claim()
        except StateError as error:
            print(error.code, flush=True)
        else:
            owner.record_batch(0, 0)
            print("won", flush=True)
            sys.stdin.readline()
            owner.release()
            print("released", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
