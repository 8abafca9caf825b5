"""The page that maps the paper to the code keeps up with the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = re.findall(
    r"^\| ((?:Eq|Alg)\. \d+) \|.*\| `(\w+)` \| (.*) \|$",
    (ROOT / "docs/method.md").read_text(),
    re.M,
)


def test_every_equation_in_the_code_is_on_the_page() -> None:
    text = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert set(re.findall(r"(?:Eq|Alg)\. \d+", text)) == {name for name, _, _ in ROWS}


@pytest.mark.parametrize(("name", "function", "files"), ROWS)
def test_an_equation_is_where_the_page_says(name: str, function: str, files: str) -> None:
    paths = [ROOT / "src/bridgerl" / file for file in re.findall(r"`([^`]+)`", files)]
    assert any(re.search(rf"{re.escape(name)}\b", path.read_text()) for path in paths)
    assert any(re.search(rf"(def|class) {function}\b", path.read_text()) for path in paths)
