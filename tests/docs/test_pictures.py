"""Pictures of pages: each is used, light and dark, small, and drawn by a script that is kept."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bridgerl.plots import THEMES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURES = {file.name: file for file in (DOCS / "pictures").iterdir()}
PAGES = {file: file.read_text() for file in [ROOT / "README.md", *DOCS.rglob("*.md")]}
BY_THEME = {
    name for text in PAGES.values() for name in re.findall(r"^```\{picture\} ([\w-]+)$", text, re.M)
}
MOST_BYTES = 1_500_000


def test_all_pictures_of_pages_are_in_one_folder_and_every_one_is_used() -> None:
    endings = (".png", ".gif", ".webp", ".jpg", ".svg")
    drawn = [
        file for file in DOCS.rglob("*") if file.suffix in endings and "_build" not in str(file)
    ]
    assert {file.parent for file in drawn} == {DOCS / "pictures"}
    assert {name for name in PICTURES if name.rpartition("-")[0] not in BY_THEME} == set()


def test_no_page_has_a_picture_for_white_paper_alone() -> None:
    assert [file.name for file, text in PAGES.items() if re.search(r"!\[.*\]\(", text)] == []


def test_dark_versions_of_old_pictures_are_made_from_the_light_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    darken = importlib.import_module("darken")
    for stem in re.findall(r"[\w-]+", str(darken.__doc__).partition("darken.py ")[2]):
        with Image.open(PICTURES[f"{stem}-light.png"]) as light:
            made = np.asarray(darken.darkened(light), float)
        with Image.open(PICTURES[f"{stem}-dark.png"]) as dark:
            assert np.abs(made - np.asarray(dark.convert("RGB"), float)).max() < 1, stem


@pytest.mark.parametrize("name", sorted(BY_THEME))
def test_a_picture_has_a_light_and_a_dark_version_that_differ_in_paper(name: str) -> None:
    corners = {}
    for theme in THEMES:
        (file,) = [f for n, f in PICTURES.items() if re.fullmatch(rf"{name}-{theme}\.\w+", n)]
        assert file.stat().st_size < MOST_BYTES
        with Image.open(file) as picture:
            # The lower right corner is paper, also of a film.
            corners[theme] = np.asarray(picture.convert("RGB"))[-1, -1].mean()
            assert picture.width <= 1_400  # Or its letters cannot be read at 400 px.
    assert corners["light"] > 240 > 40 > corners["dark"]


def test_pictures_that_follow_from_formulas_are_those_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    formulas = importlib.import_module("formulas")

    monkeypatch.setattr(formulas, "HERE", tmp_path)
    formulas.main()
    for drawn in tmp_path.iterdir():
        new, old = (
            np.asarray(Image.open(file).convert("RGB"), float)
            for file in (drawn, PICTURES[drawn.name])
        )
        assert new.shape == old.shape, drawn.name
        assert np.abs(new - old).mean() < 2, drawn.name
    assert len(list(tmp_path.iterdir())) == 2 * len(formulas.DRAWN)
    del sys.modules["formulas"]


def test_stored_cells_give_the_means_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    cells = importlib.import_module("formulas").stored_distances()
    means = {name: f"{np.mean(values):.2f}" for name, values in cells.items()}
    page = (DOCS / "results.md").read_text()
    row = dict(re.findall(r"^\| (\**(?:DBC|TQC|IQN)\**) \| (\d\.\d\d) \|", page, re.M))
    assert row == {"**DBC**": means["dbc"], "IQN": means["iqn"], "TQC": means["tqc"]}


def test_stored_races_give_the_returns_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    formulas, returns = importlib.import_module("formulas"), {}
    for cell in formulas.stored_race():
        returns.setdefault((cell["env"], cell["label"]), []).append(cell["curve"]["returns"])
    stored = {key: (np.mean(r, 0)[-1], np.mean(r), len(r)) for key, r in returns.items()}
    page = (DOCS / "results.md").read_text().partition("### A race at equal time")[2]
    page = page.partition("\n### ")[0]
    rows = r"^\|(?: ([\w-]+-v5))? ?\| ([\w+ -]+) \| (\d+) \| (\d+) \| [\d,]+ \| (\d) \|"
    printed, env = {}, ""
    for task, name, last, mean, seeds in re.findall(rows, page, re.M):
        env = task or env
        printed[env, name] = (int(last), int(mean), int(seeds))
    assert {key: tuple(map(round, map(float, row))) for key, row in stored.items()} == printed


def test_stored_evaluations_give_the_distances_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    formulas = importlib.import_module("formulas")
    scores, page = formulas.stored_evaluations(), (DOCS / "results.md").read_text()
    page = page.partition("### Policy evaluation on real tasks")[2]
    for critic, name in formulas.EVALUATED.items():
        tasks = [by_seed for (setting, _), by_seed in scores.items() if setting == critic]
        mean = np.mean([100 * s["w1"] for by_seed in tasks for s in by_seed.values()])
        assert re.search(rf"^\| \**{name}\** \| {mean:.1f} \|", page, re.M), (name, mean)
