"""Plot the output of `growth.py`: the time of a batch over the size of the state, one panel per
load, everfold and Spark's own aggregation.

    python plot_growth.py ../scratch/bench/growth.jsonl --out growth.svg

This requires matplotlib, which `make bench` installs; it is not a dependency of everfold.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

COLOURS = {"everfold": "#1b6ca8", "spark": "#d1731f"}
LABELS = {"everfold": "everfold", "spark": "Spark's own"}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Draw the time of a batch over the size of its state.")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    lines = [json.loads(line) for path in options.results for line in path.read_text().splitlines()]
    loads = list(dict.fromkeys((each["load"], each["draws"]) for each in lines))
    mpl.rcParams |= {"svg.hashsalt": "everfold", "font.size": 9}
    figure, panels = plt.subplots(1, len(loads), figsize=(2.1 * len(loads), 2.6), layout="constrained")
    for panel, (load, draws) in zip(panels, loads, strict=True):
        for engine, colour in COLOURS.items():
            seconds: dict[float, list[float]] = {}
            for each in lines:
                if (each["engine"], each["load"], each["draws"]) == (engine, load, draws):
                    seconds.setdefault(each["keys"] / 1e6, []).append(each["ms"] / 1e3)
            if points := [(keys, statistics.median(seconds[keys])) for keys in sorted(seconds)]:
                panel.plot(*zip(*points, strict=True), marker="o", color=colour, label=LABELS[engine])
        panel.set(title=f"{load}\n{draws:,} draws", xlabel="million keys", xscale="log", ylim=(0, None))
        panel.set_xticks([1, 20], ["1", "20"])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("seconds a batch (median)")
    panels[0].legend(frameon=False)
    figure.savefig(options.out, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
