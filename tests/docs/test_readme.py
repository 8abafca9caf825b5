"""What a visitor sees first: a short README, and one version everywhere."""

import re
import tomllib
from pathlib import Path

import bridgerl

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_readme_is_two_minutes_long() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 100] == []


def test_what_the_readme_links_exists() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)|(?:src|srcset)=\"([^\"]+)\"", README)
    assert len(links) > 15
    # A folder of pages counts as well as a page.
    assert [a or b for a, b in links if not (ROOT / (a or b)).exists()] == []


def test_links_into_pages_reach_a_heading() -> None:
    for page, anchor in re.findall(r"\]\(([\w/.]+\.md)#([\w-]+)\)", README):
        heads = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.M)
        slugs = [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]
        assert anchor in slugs


def test_one_version_stands_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited
    assert {project["version"], cited[1]} == {bridgerl.__version__}


def test_paper_and_authors_are_cited_alike() -> None:
    cff = (ROOT / "CITATION.cff").read_text()
    title = re.search(r"title  = \{(.*)\}", README)
    assert title
    assert f"title: {title[1]}" in cff
    families = re.findall(r"family-names: (\w+)", cff)
    entry = " ".join(README.partition("author = {")[2].partition("}")[0].split())
    assert [name.split(",")[0] for name in entry.split(" and ")] == families


def test_types_are_shipped() -> None:
    assert (ROOT / "src/bridgerl/py.typed").exists()
