"""Draw the speeds that compare.py measured.

python benchmarks/compare.py --json speed.json --chart docs/images/speed.png
python benchmarks/chart.py speed.json docs/images/speed.png      # draw them again
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402 (the backend comes first)
