"""Compare the measurements of all engines in a Markdown table, after checking each against DuckDB.

    python compare.py results.jsonl --data ../scratch/bench

A wrong result is marked `wrong` in the table, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from expected import compute_expected
from measurement import Check, Measurement

ENGINES = ("flink", "flink-mini-batch", "spark", "everfold")
Key = tuple[str, str]


def read_measurements(paths: Iterable[Path]) -> list[Measurement]:
    """Return the measurements in files of JSON lines.

    Other lines, such as an engine's logs, are skipped.
    """
    lines = (line for path in paths for line in path.read_text().splitlines() if line.startswith("{"))
    return [parse_measurement(line) for line in lines]


def parse_measurement(line: str) -> Measurement:
    fields = json.loads(line)
    return Measurement(**{**fields, "check": Check(**fields["check"])})


def is_right(one: Measurement, data: Path) -> bool:
    """Return whether the output of the run is what DuckDB computes from the same rows."""
    return one.check == _compute_expected(one.query, data / one.data, one.check.until_ms)


@cache
def _compute_expected(query: str, data: Path, until_ms: int | None) -> Check:
    return compute_expected(query, data, until_ms)


def format_table(measurements: list[Measurement], wrong: list[Measurement]) -> str:
    """Return a table of rates in million rows per second, the median of an engine's runs, and
    everfold's rate relative to the others.
    """
    runs: dict[Key, dict[str, list[Measurement]]] = {}
    for one in measurements:
        runs.setdefault((one.data, one.query), {}).setdefault(one.engine, []).append(one)
    lines = [
        "| data | query | rows | Flink | Flink, mini-batch | Spark | everfold | everfold / Flink | everfold / Flink, mini-batch | everfold / Spark |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (data, query), engines in runs.items():
        rates = {engine: statistics.median(run.rows_per_s for run in engines[engine]) for engine in engines}
        cells = ["wrong" if any(run in wrong for run in engines.get(e, ())) else _rate(rates.get(e)) for e in ENGINES]
        ratios = [_ratio(rates, other) for other in ENGINES[:-1]]
        rows = next(iter(engines.values()))[0].rows
        lines.append(f"| {' | '.join([data, query, f'{rows:,}', *cells, *ratios])} |")
    return "\n".join(lines)


def _rate(rows_per_s: float | None) -> str:
    return "" if rows_per_s is None else f"{rows_per_s / 1e6:.2f} M/s"


def _ratio(rates: Mapping[str, float], other: str) -> str:
    return f"{rates['everfold'] / rates[other]:.2f}" if "everfold" in rates and other in rates else ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare the measurements of all engines.")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--data", type=Path, required=True, help="the folder that the data folders lie in")
    options = parser.parse_args(arguments)
    measurements = read_measurements(options.results)
    wrong = [one for one in measurements if not is_right(one, options.data)]
    print(format_table(measurements, wrong))
    for one in wrong:
        right = _compute_expected(one.query, options.data / one.data, one.check.until_ms)
        print(f"wrong: {one.engine} {one.query} on {one.data}: {one.check}, expected {right}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
