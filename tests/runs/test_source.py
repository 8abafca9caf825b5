"""The mark of our own code: what computes is in it, what only tells is not."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bridgerl.critics.cdq import CDQ
from bridgerl.runs.source import COMPUTING, PACKAGE, checksum_of, code_of, statements


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of our own code, to be changed."""
    ignore = shutil.ignore_patterns("__pycache__", "assets")
    return Path(shutil.copytree(PACKAGE, tmp_path / "bridgerl", ignore=ignore))


def _edited(old: str, new: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return edit


TOLD = {
    "docstring": ("nn/mlp.py", _edited('"""', '"""Other words. ')),
    "field help": ("config.py", _edited("Transitions per update.", "How many at once.")),
    "comment": ("ops/risk.py", lambda path: path.write_text(f"# Why.\n{path.read_text()}")),
    "layout": (
        "agent.py",
        lambda path: path.write_text(path.read_text().replace("\n\n", "\n\n\n")),
    ),
    "report": ("report/page.py", lambda path: path.write_text("raise SystemExit")),
    "new file of the command line": ("cli/other.py", lambda path: path.write_text("x = 1")),
}


@pytest.mark.parametrize("what", TOLD)
def test_what_computes_nothing_leaves_the_mark(what: str, package: Path) -> None:
    where, edit = TOLD[what]
    edit(package / where)
    assert checksum_of(COMPUTING, package) == checksum_of(COMPUTING)


COMPUTED = {
    "statement": ("nn/squash.py", _edited("import", "import os\nimport")),
    "number": ("config.py", _edited("discount: float = 0.99", "discount: float = 0.98")),
    "new file": ("critics/other.py", lambda path: path.write_text("x = 1")),
    "lost file": ("envs/noisy.py", lambda path: path.unlink()),
    "name": ("bridge/walk.py", lambda path: path.rename(path.with_name("path.py"))),
}


@pytest.mark.parametrize("what", COMPUTED)
def test_what_computes_is_in_the_mark(what: str, package: Path) -> None:
    where, edit = COMPUTED[what]
    edit(package / where)
    assert checksum_of(COMPUTING, package) != checksum_of(COMPUTING)


def test_rooms_can_be_added_to_the_mark(package: Path) -> None:
    league, before = (*COMPUTING, "truth"), checksum_of((*COMPUTING, "truth"))
    (package / "truth/problems.py").write_text("")
    assert checksum_of(COMPUTING, package) == checksum_of(COMPUTING)
    assert checksum_of(league, package) != before


def test_a_text_that_is_used_is_a_statement() -> None:
    assert statements(b'def f():\n    """Say."""\n') == statements(b"def f():\n    'Other.'\n")
    assert statements(b"x = 'a'") != statements(b"x = 'b'")
    assert statements(b"f('a')") != statements(b"f('b')")


def test_the_code_of_others_is_told_by_module_and_that_of_releases_is_not() -> None:
    own = type("Own", (CDQ,), {"__module__": __name__})
    found = code_of((CDQ, own))
    assert list(found) == [f"code in {__name__}"]
    assert found == code_of((own,))
    lost = type("Lost", (), {"__module__": "no_such_module"})
    assert code_of((lost,)) == {"code in no_such_module": None}


def test_what_a_module_does_as_a_script_is_no_part_of_it() -> None:
    script = b"x = 1\nif __name__ == '__main__':\n    print(x)\n"
    assert statements(script) == statements(b"x = 1\n")
    assert statements(b"x = 1\nif x:\n    print(x)\n") != statements(b"x = 1\n")
