"""Draws the pictures of docs/masks.md beside this script.

usage: python3 docs/masks/draw_masks.py, with python/ on PYTHONPATH
"""

from __future__ import annotations

import os

from flashattn import affine_set, causal, sink, window

FOLDER = os.path.dirname(os.path.abspath(__file__))
SIZE, TILE = 64, (8, 8)

MASKS = {
    "causal": causal,
    "window": window(left=15, right=0),
    "two-sided": window(left=7, right=15),
    "sink": sink(4),
    "window-sink": window(left=15, right=0) | sink(4) & causal,
    "chunks": affine_set("(p, k)[nq, nk] : (p - k >= 0, k - 16 * (p floordiv 16) >= 0)"),
}


def draw_masks() -> dict[str, str]:
    """Returns the text of each picture by the name of its file."""
    return {f"{name}.svg": mask.draw(SIZE, SIZE, tile=TILE) for name, mask in MASKS.items()}


def main() -> None:
    for name, text in draw_masks().items():
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
