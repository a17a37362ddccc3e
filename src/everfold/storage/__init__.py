"""Where job directories and file tables lie: a local disk, an object store, HDFS.

A `Store` has few operations (`store`), and none of them replaces a file that a job relies on:
the first to create such a file wins. A `Location` is a file or folder in a store. Code above this
package reaches a job directory only through locations.
"""

from everfold.storage.local_store import LOCAL, local
from everfold.storage.location import Location, run_all
from everfold.storage.store import UNFINISHED, Entry, Store

__all__ = ["LOCAL", "UNFINISHED", "Entry", "Location", "Store", "local", "run_all"]
