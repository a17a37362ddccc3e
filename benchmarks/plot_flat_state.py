"""Plot the output of `flat_state.py`: the rows in OVER's state over the rows read.

    python plot_flat_state.py ../scratch/bench/flat_state.jsonl --out flat_state.svg

This requires matplotlib, which `make bench` installs; it is not a dependency of everfold.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Draw the size of OVER's state over the rows of a stream.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    lines = [json.loads(line) for line in options.results.read_text().splitlines()]
    mpl.rcParams |= {"svg.hashsalt": "everfold", "font.size": 9}
    figure, panel = plt.subplots(figsize=(4.4, 2.6), layout="constrained")
    panel.plot([each["rows"] / 1e6 for each in lines], [each["state_rows"] for each in lines], color="#1b6ca8")
    panel.set(title="rows in the state", xlabel="million rows so far", ylim=(0, None))
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(options.out, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
