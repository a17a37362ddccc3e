"""The daemon of Spark's Python workers, without Spark: what its workers inherit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOW_OPTIONS = "stats_print:true,stats_print_opts:mdablxe"
"""Lets Polars' allocator print its options when a process ends."""


@pytest.mark.parametrize("of_driver", ["", "dirty_decay_ms:500,muzzy_decay_ms:1000,"], ids=["alone", "after Polars"])
def test_workers_keep_freed_memory_whatever_the_driver_has_imported(of_driver: str) -> None:
    environment = {**os.environ, "_RJEM_MALLOC_CONF": of_driver + SHOW_OPTIONS}
    code = "from everfold.spark.daemon import load_modules; load_modules()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    printed = done.stdout + done.stderr
    for option in ('opt.thp: "always"', "opt.dirty_decay_ms: 10000 ", "opt.muzzy_decay_ms: 0 "):
        assert option in printed
