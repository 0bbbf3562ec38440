"""Draws the pictures of docs/masks.md beside this script.

usage: python3 docs/masks/draw_masks.py, with python/ on PYTHONPATH
"""

from __future__ import annotations

import os

import numpy
from flashattn import affine_set, causal, masks, sink, window

FOLDER = os.path.dirname(os.path.abspath(__file__))
SIZE, TILE = 64, (8, 8)

#: Three documents; a question and three answers, of which only the answers count.
DOCUMENTS = numpy.repeat([0, 1, 2], [12, 30, 22])
ANSWERS = numpy.repeat([0, 1, 2, 3], [20, 12, 22, 10])
#: A root with three branches of 21 nodes each, which fork after 7 nodes.
BRANCH = [-1, *range(6), *range(6, 13), 6, *range(14, 20)]
TREE = [-1, *(1 + 21 * branch + parent if parent >= 0 else 0 for branch in range(3) for parent in BRANCH)]
#: For each key, the first row that does not see it: the end of its document, or of a window in it.
ROWS = numpy.minimum(numpy.repeat([12, 42, 64], [12, 30, 22]), numpy.arange(SIZE) + 16)

MASKS = {
    "causal": causal,
    "window": window(left=15, right=0),
    "two-sided": window(left=7, right=15),
    "sink": sink(4),
    "window-sink": window(left=15, right=0) | sink(4) & causal,
    "chunks": affine_set("(p, k)[nq, nk] : (p - k >= 0, k - 16 * (p floordiv 16) >= 0)"),
    "documents": masks.documents(DOCUMENTS, causal=True),
    "prefix": masks.prefix(20) | causal,
    "tree": masks.tree(TREE),
    "shared-question": masks.shared_question(20, ANSWERS),
    "flashmask": masks.flashmask(ROWS.astype(numpy.int32)[None, None, :, None], causal=True),
    "ranges": masks.ranges(
        [[0, 20], [20, 44], [44, 64]], [[0, 20], [0, 40], [24, 64]], ["causal", "full", "bi_causal"], queries=SIZE
    ),
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
