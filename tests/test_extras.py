"""What the documentation says to install is enough for what it then shows."""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from conftest import environment, finished

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Makes programs believe that packages are not installed.
BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def requirements(name: str, extras: set[str]) -> list[Requirement]:
    """What a distribution asks for on this machine; of our own, what stands in the sources."""
    if name == "bridgerl":
        groups = [PROJECT["optional-dependencies"][extra] for extra in sorted(extras)]
        lines = [*PROJECT["dependencies"], *(line for group in groups for line in group)]
    else:
        lines = importlib.metadata.requires(name) or []
    found = [Requirement(line) for line in lines]
    wanted = [{"extra": extra} for extra in extras] or [{"extra": ""}]
    return [
        r for r in found if r.marker is None or any(r.marker.evaluate(extra) for extra in wanted)
    ]


def installed_by(extra: str) -> set[str]:
    """Names of all distributions that `pip install ".[extra]"` brings."""
    known = set[tuple[str, frozenset[str]]]()
    left: list[tuple[str, frozenset[str]]] = [("bridgerl", frozenset([extra] if extra else []))]
    while left:
        name, extras = left.pop()
        if (name, extras) in known:
            continue
        known.add((name, extras))
        asked = requirements(name, set(extras))
        left += [(canonicalize_name(r.name), frozenset(r.extras)) for r in asked]
    return {name for name, _ in known}


def block_others(extra: str) -> str:
    """Code that hides every module which the extra does not bring."""
    mine = installed_by(extra)
    homes = importlib.metadata.packages_distributions()
    hidden = {m for m, names in homes.items() if not {canonicalize_name(n) for n in names} & mine}
    return BLOCK.format(
        names=hidden - {"bridgerl", "setuptools", "pkg_resources", "_distutils_hack"}
    )


def test_the_blocker_knows_what_an_extra_brings() -> None:
    assert {"torch", "gymnasium", "mujoco"} <= installed_by("")
    assert "stable-baselines3" not in installed_by("")
    assert {"stable-baselines3", "tqdm"} <= installed_by("sb3")
    assert "matplotlib" in installed_by("video")  # By way of another extra.
    code = block_others("") + "import numpy\nimport stable_baselines3"
    ended = finished([sys.executable, "-c", code], env=environment())
    assert "ModuleNotFoundError: No module named 'stable_baselines3'" in ended.stderr


def test_hints_of_the_code_name_extras_that_exist() -> None:
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    named = {extra for text in sources for extra in re.findall(r"install\('(\w+)'\)", text)}
    assert {"plot", "report", "tb", "sb3"} <= named <= set(PROJECT["optional-dependencies"])
    assert not any(re.search(r"pip install ['\"]?bridgerl", text) for text in sources)


def test_the_first_block_on_stable_baselines3_runs_with_its_extra_alone(tmp_path: Path) -> None:
    text = (ROOT / "docs/sb3.md").read_text()
    assert 'pip install -c constraints.txt -e ".[sb3]"' in text.partition("```python")[0]
    (block, *_) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert block.count("100_000") == 2
    short = block.replace("100_000", "120")  # Beyond the 100 random steps.
    code = block_others("sb3") + short
    ended = finished([sys.executable, "-c", code], cwd=tmp_path, env=environment())
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "tensor(" in ended.stdout


@pytest.mark.parametrize("asked", [False, True])
def test_a_run_that_should_write_for_tensorboard_says_what_to_install(
    asked: bool, tmp_path: Path
) -> None:
    flags = "--steps 3 --train.warmup 1 --eval.episodes 1 --eval.max-steps 5 --quiet".split()
    flags += ["--train.batch-size", "1", "--critic", "cdq", "--env", "InvertedPendulum-v5"]
    flags += ["--log.tensorboard"] if asked else []
    code = (
        block_others("report") + "from bridgerl.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "train", *flags, "--out", str(tmp_path)]
    ended = finished(command, env=environment())
    assert ended.returncode == 0, ended.stderr
    line = "bridgerl: warning: no TensorBoard events: No module named 'tensorboard'; pip install"
    assert ended.stderr.startswith(line if asked else "")
    assert ended.stderr.count("\n") == asked
