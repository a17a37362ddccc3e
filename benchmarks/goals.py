"""Compare everfold's rates with the goals: how many times as fast as Flink and Spark it must be.

    python goals.py history/2026-11-23-1a2b3c4d.jsonl

The ratio to Flink is that to its faster mode of those measured, in each repetition; a query counts
with the median of its repetitions. A goal is not reached with a wrong result.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from compare import Groups, compute_ratios, format_table, group_measurements, read_measurements

FLINK = ("flink", "flink-mini-batch")
SPARK = ("spark",)
OF_WINDOWS = ("q5_window", "q7_window")
"""The inner aggregations of Nexmark's q5 and q7 are not queries of Nexmark."""
Ratios: TypeAlias = dict[str, float]


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal: the data and engines of its ratios, the number made of them, and its least value."""

    name: str
    data: tuple[str, ...]
    others: tuple[str, ...]
    least: float
    reduce: Callable[[Ratios], tuple[float, str]]


def find_least(ratios: Ratios) -> tuple[float, str]:
    """Return the least ratio, and the query that has it."""
    query = min(ratios, key=lambda each: ratios[each])
    return ratios[query], query


def count_triple(ratios: Ratios) -> tuple[float, str]:
    """Return the share of queries that are at least three times as fast, and their number."""
    number = sum(ratio >= 3 for ratio in ratios.values())
    return number / len(ratios), f"{number} of {len(ratios)}"


def average(ratios: Ratios) -> tuple[float, str]:
    """Return the geometric mean of the ratios, and their number."""
    return statistics.geometric_mean(ratios.values()), f"{len(ratios)} queries"


PARQUET = ("1k-keys", "1m-keys")
GOALS = (
    Goal("Parquet: least ratio to Flink", PARQUET, FLINK, 2, find_least),
    Goal("Parquet: share of queries with 3 or more", PARQUET, FLINK, 0.5, count_triple),
    Goal("Parquet: least ratio to Spark", PARQUET, SPARK, 1.5, find_least),
    Goal("Kafka: least ratio to Flink", ("1k-keys, Kafka",), FLINK, 1.5, find_least),
    Goal("Nexmark: least ratio to Flink", ("nexmark",), FLINK, 1, find_least),
    Goal("Nexmark: geometric mean of the ratios", ("nexmark",), FLINK, 2, average),
)


def format_goals(groups: Groups) -> str:
    """Return a table of the goals for which something is measured, and what is reached."""
    rows = []
    for goal in GOALS:
        of_goal = {
            f"{query}, {data}": measured
            for (data, query), measured in groups.items()
            if data in goal.data and query not in OF_WINDOWS
        }
        ratios = {
            name: statistics.median(found)
            for name, measured in of_goal.items()
            if (found := compute_ratios(measured, goal.others))
        }
        if ratios:
            reached, of = goal.reduce(ratios)
            right = all(run.right for measured in of_goal.values() for runs in measured.values() for run in runs)
            verdict = ("reached" if reached >= goal.least else "missed") if right else "wrong"
            rows.append([goal.name, of, verdict, f"{goal.least:g}", f"{reached:.2f}"])
    return format_table(["goal", "of", "", "at least", "measured"], rows, texts=3)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare everfold's rates with the goals.")
    parser.add_argument("results", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    print(format_goals(group_measurements(read_measurements(options.results))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
