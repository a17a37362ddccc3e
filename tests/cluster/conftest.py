"""One S3 server and one HDFS for all tests of clusters.

The JVM of the tests keeps its connections, so a second server of the same bucket would not be used.
"""

from __future__ import annotations

from cluster.totals import folder
from cluster.warm_process import warm_process
from hdfs import hdfs_cluster
from s3 import s3_jars, s3_server

__all__ = ["folder", "hdfs_cluster", "s3_jars", "s3_server", "warm_process"]
