"""Makes the dark versions of old pictures, whose runs are not kept, from their light ones.

python docs/darken.py ablation main-cpu point-mass rivals toy
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from bridgerl.plots import THEMES

HERE = Path(__file__).parent / "pictures"
HEX = 16


def darkened(picture: Image.Image) -> Image.Image:
    """Light and dark change places, hues stay; white becomes the paper of dark pages."""
    light = np.asarray(picture.convert("RGB"), float)
    turned = light + 255 - light.max(-1, keepdims=True) - light.min(-1, keepdims=True)
    paper, ink = (_color(color) for color in (THEMES["dark"].paper, THEMES["dark"].ink))
    return Image.fromarray(np.uint8(np.rint(paper + turned / 255 * (ink - paper))))


def _color(text: str) -> np.ndarray:
    return np.array([int(text[i : i + 2], HEX) for i in (1, 3, 5)], float)


def main(stems: list[str]) -> None:
    """Darken each of these pictures."""
    for stem in stems:
        with Image.open(HERE / f"{stem}-light.png") as picture:
            darkened(picture).save(HERE / f"{stem}-dark.png", optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
