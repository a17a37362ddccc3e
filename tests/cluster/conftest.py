"""One HDFS for all tests of clusters."""

from __future__ import annotations

from hdfs import hdfs_cluster
from totals import folder

__all__ = ["folder", "hdfs_cluster"]
