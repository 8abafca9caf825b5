"""The house: few words at the root, no long file, one owner of a run's files, no idle torch."""

import ast
import pkgutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

import bridgerl.report
from conftest import environment, finished, started

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "bridgerl"

ROOT_MODULES = set(
    "__init__ __main__ agent config errors plots presets registry streams testing types".split()
)
"""The words that a newcomer sees first; what is new goes into a room."""

MOST_LINES = 300
LONG = {
    "src/bridgerl/testing.py": "the contract is one import for authors of critics and actors",
    "tests/actors/test_qvpo.py": "one actor against its reference, part by part",
    "tests/critics/test_rivals.py": "six critics against their references",
    "tests/report/test_report.py": "one page, part by part",
    "tests/runs/test_damage.py": "one table of cases",
    "tests/runs/test_resume.py": "one table of kills",
    "tests/runs/test_store.py": "every file of a run, written under faults",
    "tests/sb3/test_sb3.py": "one algorithm under everything that its library offers",
    "tests/studies/test_reproduce.py": "one study, killed in every way",
    "tests/studies/test_studies.py": "every study, its settings, jobs and files",
    "tests/training/test_trainer.py": "one loop, part by part",
    "tests/training/test_lanes.py": "many environments, part by part",
    "tests/truth/test_league.py": "one league, from problem to picture",
}
"""Files that may be longer, and why."""

RUN_FILES = {"config.json", "metrics.jsonl", "timing.jsonl", "evaluations.npz", "values.json"}
RUN_FILES |= {"DONE", "run.log", "run.lock"}
MAY_NAME_RUN_FILES = {
    "runs/folder.py": RUN_FILES,  # The owner.
    "sb3/files.py": {"config.json"},  # A member of its zip, not a file of a run.
}


def root_modules(package: Path) -> set[str]:
    return {path.stem for path in package.glob("*.py")}


def long_files(root: Path) -> dict[str, int]:
    """Files with too many lines; pictures and styles of the report's page are no code."""
    paths = [p for folder in ("src", "tests") for p in (root / folder).rglob("*") if p.is_file()]
    texts = [p for p in paths if not {"__pycache__", "assets"} & set(p.parts)]
    counts = {str(p.relative_to(root)): len(p.read_bytes().splitlines()) for p in texts}
    return {name: count for name, count in counts.items() if count > MOST_LINES}


def named_run_files(package: Path, allowed: Mapping[str, set[str]]) -> list[str]:
    """Where a run file's name stands as a string, alone or at the end of a path."""
    found = []
    for path in sorted(package.rglob("*.py")):
        where = str(path.relative_to(package))
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value.rpartition("/")[2]
                if name in RUN_FILES - allowed.get(where, set()):
                    found.append(f"{where}:{node.lineno} {name}")
    return found


def silent_rooms(package: Path) -> list[str]:
    """Packages whose docstring does not begin with one sentence on one line."""
    silent = []
    for folder in sorted({path.parent for path in package.rglob("*.py")}):
        init = folder / "__init__.py"
        text = ast.get_docstring(ast.parse(init.read_bytes())) if init.exists() else None
        line = (text or "").partition("\n")[0]
        if not line.endswith(".") or ". " in line:
            silent.append(str(folder.relative_to(package)))
    return silent


def test_the_root_has_the_words_that_are_listed_and_no_more() -> None:
    assert root_modules(SRC) == ROOT_MODULES
    assert len(ROOT_MODULES) <= 11


def test_no_file_is_longer_than_a_few_screens_without_a_reason() -> None:
    found = long_files(ROOT)
    assert {name: found[name] for name in found.keys() - LONG.keys()} == {}
    assert LONG.keys() - found.keys() == set(), "these are short now: take them off the list"


def test_names_of_run_files_are_written_by_their_owner_alone() -> None:
    assert named_run_files(SRC, MAY_NAME_RUN_FILES) == []


def test_every_room_says_in_a_sentence_what_lives_there() -> None:
    assert silent_rooms(SRC) == []


REPORT = [f"bridgerl.report.{m.name}" for m in pkgutil.iter_modules(bridgerl.report.__path__)]


@pytest.mark.parametrize(
    "modules", [["bridgerl"], [*REPORT, "bridgerl.cli.report"]], ids=["package", "report"]
)
def test_torch_is_not_imported_by(modules: list[str]) -> None:
    code = f"import sys, {', '.join(modules)}; print([m for m in ('torch',) if m in sys.modules])"
    ended = finished([sys.executable, "-c", code], env=environment())
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


# That each of these can fail.


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """A small house in which everything is as it should be."""
    for name in ("src/pkg/room/deep", "src/pkg/room/assets", "tests"):
        (tmp_path / name).mkdir(parents=True)
    for folder in ("pkg", "pkg/room", "pkg/room/deep"):
        (tmp_path / "src" / folder / "__init__.py").write_text('"""What lives here."""\n')
    (tmp_path / "src/pkg/room/assets/page.css").write_text("\n" * 900)
    (tmp_path / "src/pkg/room/folder.py").write_text(
        '"""Owns config.json."""\nNAME = "config.json"\n'
    )
    (tmp_path / "tests/test_it.py").write_text("\n" * MOST_LINES)
    return tmp_path


def test_a_module_too_many_is_seen(made_up: Path) -> None:
    assert root_modules(made_up / "src/pkg") == {"__init__"}
    (made_up / "src/pkg/helpers.py").touch()
    assert root_modules(made_up / "src/pkg") == {"__init__", "helpers"}


@pytest.mark.parametrize("name", ["src/pkg/room/long.py", "tests/test_it.py", "src/pkg/page.js"])
def test_a_line_too_many_is_seen(made_up: Path, name: str) -> None:
    assert long_files(made_up) == {}
    (made_up / name).write_text("\n" * (MOST_LINES + 1))
    assert long_files(made_up) == {name: MOST_LINES + 1}


@pytest.mark.parametrize("code", ['"config.json"', 'f"{folder}/config.json"', '"runs/config.json"'])
def test_a_run_file_named_by_another_is_seen(made_up: Path, code: str) -> None:
    allowed = {"room/folder.py": {"config.json"}}
    assert named_run_files(made_up / "src/pkg", allowed) == []
    assert named_run_files(made_up / "src/pkg", {}) == ["room/folder.py:2 config.json"]
    (made_up / "src/pkg/room/other.py").write_text(f"# config.json\nprint({code})\n")
    assert named_run_files(made_up / "src/pkg", allowed) == ["room/other.py:2 config.json"]


@pytest.mark.parametrize("text", ["", '"""A word"""', '"""Two. Sentences."""', "# None.", None])
def test_a_room_without_its_sentence_is_seen(made_up: Path, text: str | None) -> None:
    assert silent_rooms(made_up / "src/pkg") == []
    init = made_up / "src/pkg/room/deep/__init__.py"
    if text is None:
        init.rename(init.with_name("module.py"))
    else:
        init.write_text(text)
    assert silent_rooms(made_up / "src/pkg") == ["room/deep"]


# Processes that tests start.


def _fail_beside(process: psutil.Process, seen: list[psutil.Process]) -> None:
    while not process.children():
        time.sleep(0.01)
    seen += [process, *process.children()]
    raise ZeroDivisionError


def test_what_a_failing_test_started_is_ended_with_its_children() -> None:
    seen: list[psutil.Process] = []
    sleeping = started(["bash", "-c", "sleep 100 & wait"])
    with pytest.raises(ZeroDivisionError), sleeping as process:
        _fail_beside(psutil.Process(process.pid), seen)
    _, alive = psutil.wait_procs(seen, timeout=10)
    assert len(seen) == 2
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_programs_begin_with_default_signals_though_ours_are_ignored() -> None:
    both = "(signal.SIGINT, signal.SIGHUP)"
    show = f"import signal; print(*[signal.getsignal(n) != signal.SIG_IGN for n in {both}])"
    code = (
        "import os, signal, sys\n"
        f"for n in {both}: signal.signal(n, signal.SIG_IGN)\n"
        "from conftest import finished\n"
        f"for n in {both}: os.kill(os.getpid(), n)\n"  # Ignored as before.
        f"print(finished([sys.executable, '-c', {show!r}]).stdout)"
    )
    ended = finished([sys.executable, "-c", code], env=environment())
    assert ended.stdout.split() == ["True", "True"], ended.stderr
