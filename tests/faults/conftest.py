"""One HDFS for all tests of faults, and folders in stores."""

from __future__ import annotations

from hdfs import hdfs_cluster
from totals import folder

__all__ = ["folder", "hdfs_cluster"]
