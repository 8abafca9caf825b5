"""The page of promises names tests and commands that there are."""

import re
from pathlib import Path

import pytest

from cli.bad_lines import TABLE
from envs.env_faults import FAULTS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/trust.md").read_text()
PROMISES = PAGE.split("## Try it yourself")[0]
ROWS = re.findall(r"^\| (?!promise|-)(.+?) \| (.+?) \| (.+?) \|$", PROMISES, re.M)


@pytest.mark.parametrize(("promise", "tests"), [row[:2] for row in ROWS])
def test_every_promise_has_its_test(promise: str, tests: str) -> None:
    names = re.findall(r"`(test_\w+)`", tests)
    assert names
    for name in names:
        assert list((ROOT / "tests").rglob(f"{name}.py")), f"{promise}: there is no {name}"


def test_every_command_of_the_page_is_a_target() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    named = set(re.findall(r"\bmake ([a-z]+)(?= [A-Z]+=|`)", PAGE))
    assert {"chaos", "lock", "audit", "demo", "test"} <= named <= set(targets)


def test_the_page_counts_what_is_tried() -> None:
    assert f"| {len(FAULTS)} faults |" in PAGE
    assert f"| {len(TABLE)} command lines |" in PAGE
