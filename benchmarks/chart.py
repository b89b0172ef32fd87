"""Draw the speeds that compare.py measured.

python benchmarks/compare.py --json speed.json --chart docs/images/speed.png
python benchmarks/chart.py speed.json docs/images/speed.png      # draw them again
"""

import json
import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch

TITLES = {"small": "small size (1024/128)", "original": "original size (4096/512)"}
CORPUS, WHOLE = "batches of 64, corpus order", "whole list"
MANY_LANGS = "ELMoForManyLangs"  # has the original size and, in addition, word embeddings
OURS, PEERS = ("#e08a1e", "#f3cf9d"), ("#6b7684", "#c4cad1")  # colors of the best run and of that in corpus order
BAR = 0.38  # height


def speeds_of(results: dict, size: str) -> dict[str, dict[str, float]]:
    """Return words per second by system and workload, without single sentences and the limit."""
    speeds: dict[str, dict[str, float]] = {}
    for row in results["speeds"]:
        many_langs = row["system"].startswith(MANY_LANGS)
        in_panel = row["size"] == size or (many_langs and size == "original")
        if in_panel and not row["system"].startswith("limit") and not row["workload"].startswith("single"):
            name = f"{MANY_LANGS}\n(with word embeddings)" if many_langs else row["system"]
            workloads = speeds.setdefault(name.replace("ours", "transformers-elmo"), {})
            # ELMoForManyLangs as shipped or without gradients, whichever is faster.
            workloads[row["workload"]] = max(row["words_per_second"], workloads.get(row["workload"], 0))
    return speeds


def draw_panel(axes: Axes, speeds: dict[str, dict[str, float]]):
    best = {name: workloads.get(WHOLE) or max(workloads.values()) for name, workloads in speeds.items()}
    names = sorted(speeds, key=lambda name: (name.startswith("transformers-elmo"), best[name]))
    for y, name in enumerate(names):
        colors = OURS if name.startswith("transformers-elmo") else PEERS
        bars = [speed for speed in (best[name], speeds[name].get(CORPUS)) if speed]
        for n, (speed, color) in enumerate(zip(bars, colors)):
            place = y + (n - (len(bars) - 1) / 2) * BAR
            axes.barh(place, speed, BAR, color=color)
            axes.annotate(f"{speed:,.0f}", (speed, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.margins(x=0.16)
    axes.tick_params(left=False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def draw(results: dict, path: Path):
    """Draw a panel for each size: each system's best run and its speed in corpus order, in words per second.

    The best run is that of the whole list, or in any batches for a peer that does not sort a list itself.
    """
    panels = {size: speeds for size in TITLES if (speeds := speeds_of(results, size))}
    figure = Figure(figsize=(8.6, 3.6), dpi=200, layout="constrained")
    for number, (size, speeds) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), number)
        axes.set_title(TITLES[size], fontsize=9.5, loc="left")
        draw_panel(axes, speeds)
    machine = results["machine"]
    title = f"Words per second, all layers, {machine['threads']} threads on an {machine['cpu']}"
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    best, corpus = [tuple(Patch(color=color) for color in pair) for pair in zip(OURS, PEERS)]
    figure.legend(
        [best, corpus],
        ["best run: whole list, or sorted by length with the best batch size", "batches of 64 in corpus order"],
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
        loc="outside lower center",
        ncols=2,
        fontsize=8,
        frameon=False,
    )
    figure.savefig(path)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
