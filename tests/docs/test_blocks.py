"""Every code block of every page: Python is run, commands are parsed, data are read.

A page whose blocks name `RUN` finds it there, after a short training. If it says
`<!-- tests: run the commands -->`, its commands are run too, in their turn. A block below
`<!-- tests: not run, WHY -->` is left alone.
"""

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gymnasium import registry
from markdown_it import MarkdownIt

from bridgerl import resolve, train
from bridgerl.actors import ACTORS
from bridgerl.cli.main import _read, main
from bridgerl.critics import CRITICS
from bridgerl.presets import PRESETS
from bridgerl.settings import measures

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SHELL = ("bash", "sh", "shell", "console")
RUN = "runs/InvertedPendulum-v5/sac-dbc-lite/seed0"
STEPS, WARMUP, EPISODES = "120", 50, 1
"""What a long training of a page gets here."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of a page's blocks; indented ones have no language."""
    tokens = MarkdownIt().parse(page.read_text())
    found, note = [], ""
    for token in tokens:
        if token.type in ("fence", "code_block") and "tests: not run, " not in note:
            found.append((token.info.strip(), token.content))
        note = token.content if token.type == "html_block" else ""
    return found


def commands_in(language: str, text: str) -> Iterator[list[str]]:
    """The words of every line that calls us, in a block for a shell or an indented one."""
    if language in ("", *SHELL):
        for line in text.replace("\\\n", " ").splitlines():
            if re.match(r"\s*(\$ )?bridgerl ", line):
                yield shlex.split(line.replace("$ ", "", 1), comments=True)[1:]


def commands_of(page: Path) -> list[list[str]]:
    return [words for block in blocks(page) for words in commands_in(*block)]


def shortened(code: str) -> str:
    """The code with few steps, in place of every number that is written in thousands."""
    return re.sub(r"\b\d{1,3}(_\d{3})+\b", STEPS, code)


def run_short(words: list[str]) -> None:
    """Run a command, a training with few steps."""
    if "--steps" in words:
        words[words.index("--steps") + 1] = STEPS
    elif words[0] == "train":
        words += ["--steps", STEPS]
    assert main(words) == 0, words


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder to work in; what a page registers is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(measures, "OWN", dict(measures.OWN))
    for key, task in PRESETS["lite"].items():
        if key.startswith("env.") and "train" in task:
            monkeypatch.setitem(task["train"], "warmup", WARMUP)
    monkeypatch.setitem(PRESETS["lite"], "eval", {"episodes": EPISODES})
    threads, modules, tasks = torch.get_num_threads(), set(sys.modules), dict(registry)
    names = {id(table): set(table) for table in (ACTORS, CRITICS)}
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    registry.clear()
    registry.update(tasks)
    for table in (ACTORS, CRITICS):
        for name in set(table) - names[id(table)]:
            del table[name]
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


WITH_PYTHON = [page for page in PAGES if "python" in dict(blocks(page))]
WITH_COMMANDS = [page for page in PAGES if commands_of(page)]


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_python_of_a_page_runs_from_top_to_bottom(page: Path) -> None:
    space, whole = {"__name__": "__main__"}, "<!-- tests: run the commands -->" in page.read_text()
    if any(RUN in text for _, text in blocks(page)):
        train(replace(resolve("InvertedPendulum-v5"), steps=int(STEPS)), quiet=True)
    for number, (language, text) in enumerate(blocks(page), start=1):
        if language == "python":
            exec(compile(shortened(text), f"{name_of(page)}, block {number}", "exec"), space)
        elif whole:
            for words in commands_in(language, text):
                run_short(words)


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_commands_of_a_page_are_understood(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CRITICS, "mine", CRITICS["dbc"])  # As pages call the reader's own.
    for words in commands_of(page):
        with pytest.raises(SystemExit) if "--help" in words else nullcontext():
            _read(words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_data_in_a_page_can_be_read(page: Path) -> None:
    readers = {"json": json.loads, "toml": tomllib.loads}
    for language, text in blocks(page):
        if language in readers:
            readers[language](text)


def test_make_targets_and_extras_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for page in PAGES:
        # It is installed from its repository: no package index has it.
        assert not re.search(r"pip install ['\"]?bridgerl", page.read_text()), page
        text = "\n".join(text for language, text in blocks(page) if language in ("", *SHELL))
        assert set(re.findall(r"^ *make (\w+)", text, re.M)) <= targets, page
        named = re.findall(r"pip install ['\"]\.\[([\w,]+)\]", text)
        assert {extra for group in named for extra in group.split(",")} <= extras, page


def test_blocks_are_found_and_shortened(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nlearn(100_000, 16)\n```\n\n    bridgerl list  # all\n\n"
        "```bash\nbridgerl train \\\n  --env A-v0\nls\n```\n\n"
        "<!-- tests: not run, no GPU -->\n\n```python\n1 / 0\n```\n"
    )
    python = [text for language, text in blocks(page) if language == "python"]
    assert [shortened(code) for code in python] == ["learn(120, 16)\n"]
    assert commands_of(page) == [["list"], ["train", "--env", "A-v0"]]
