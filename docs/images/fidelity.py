"""Draws docs/images/fidelity.png from the table "Fidelity beside speed" of docs/research/speed.md.

python docs/images/fidelity.py
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt

IMAGES = Path(__file__).parent
PAGE = IMAGES.parent / "research" / "speed.md"
COLOURS = {"ours": "#1d4e79", "llama.cpp": "#2f5d2b", "onnxruntime-genai": "#8a4b08"}


class Setting(NamedTuple):
    program: str
    name: str
    agreement: float  # % of float32's tokens
    speed: float  # tokens a second


def settings() -> list[Setting]:
    section = PAGE.read_text(encoding="utf-8").split("## Fidelity beside speed")[1].split("\n## ")[0]
    rows = [
        [cell.strip(" *`") for cell in line.split("|")[1:-1]] for line in section.splitlines() if "%" in line
    ]
    return [
        Setting(row[0], row[1], float(row[2].rstrip("%")), float(row[4])) for row in rows if len(row) == 5
    ]


def main() -> None:
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    points = settings()
    for setting in points:
        colour = COLOURS[setting.program]
        axes.scatter(setting.agreement, setting.speed, color=colour, zorder=3)
        left = setting.agreement > 95
        under = any(
            0 < other.speed - setting.speed < 8 and abs(other.agreement - setting.agreement) < 2
            for other in points
        )
        axes.annotate(
            f"{setting.program} {setting.name}",
            (setting.agreement, setting.speed),
            textcoords="offset points",
            xytext=(-6 if left else 6, -12 if under else 4),
            ha="right" if left else "left",
            color=colour,
        )
    axes.set(
        xlabel="tokens that float32 prefers too, %", ylabel="tokens a second", xlim=(70, 100), ylim=(150, 300)
    )
    axes.grid(alpha=0.3)
    figure.savefig(IMAGES / "fidelity.png", dpi=120)


if __name__ == "__main__":
    main()
