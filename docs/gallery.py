"""Films a policy beside the return distribution it learned, light and dark, into docs/pictures.

    python docs/gallery.py runs/HalfCheetah-v5/sac-dbc-lite/seed0

The weights are those of the best evaluation; the last line says how long they had learned.
"""

import argparse
from pathlib import Path

from bridgerl import load_agent
from bridgerl.plots import THEMES, themed
from bridgerl.show.film import film

HERE = Path(__file__).parent / "pictures"
SECONDS = 4


def main() -> None:
    """A film and a filmstrip in both themes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a run on HalfCheetah-v5")
    run = parser.parse_args().run
    for name in THEMES:
        with themed(name):
            for stem, ending in (("cheetah", "webp"), ("cheetah-strip", "png")):
                film(run, HERE / f"{stem}-{name}.{ending}", seconds=SECONDS)
    print(f"the weights are those of step {load_agent(run, 'best')[1]:,}")


if __name__ == "__main__":
    main()
