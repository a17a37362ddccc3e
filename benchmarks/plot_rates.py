"""Plot the output of `run.py`: the rates of all engines, one panel per data set.

    python plot_rates.py history/2026-11-23-1a2b3c4d.jsonl --out rates.svg

This requires matplotlib, which `make bench` installs; it is not a dependency of everfold.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import matplotlib as mpl
from compare import ENGINES, TITLES, group_measurements, read_measurements

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

COLOURS = {"flink": "#8a8a8a", "flink-mini-batch": "#c0c0c0", "spark": "#d1731f", "everfold": "#1b6ca8"}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Draw the rates of all engines.")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    groups = group_measurements(read_measurements(options.results))
    data_sets = list(dict.fromkeys(data for data, _ in groups))
    engines = [engine for engine in ENGINES if any(engine in each for each in groups.values())]
    mpl.rcParams |= {"svg.hashsalt": "everfold", "font.size": 9}
    figure, panels = plt.subplots(
        len(data_sets), 1, figsize=(11, 2.6 * len(data_sets)), layout="constrained", squeeze=False
    )
    for panel, data in zip(panels[:, 0], data_sets, strict=True):
        queries = [query for other, query in groups if other == data]
        for at, engine in enumerate(engines):
            for position, query in enumerate(queries):
                rates = [run.rate / 1e6 for run in groups[data, query].get(engine, [])]
                if not rates:
                    continue
                middle = statistics.median(rates)
                panel.bar(
                    position + (at - (len(engines) - 1) / 2) * 0.8 / len(engines),
                    middle,
                    0.8 / len(engines),
                    color=COLOURS[engine],
                    yerr=[[middle - min(rates)], [max(rates) - middle]],
                    error_kw={"linewidth": 0.8},
                )
        panel.set_xticks(range(len(queries)), queries)
        panel.set(title=data, ylabel="million rows per second")
        panel.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=COLOURS[engine]) for engine in engines]
    panels[0, 0].legend(handles, [TITLES[engine] for engine in engines], frameon=False)
    figure.savefig(options.out, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
