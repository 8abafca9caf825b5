"""The pages on sweeps and comparisons: every command runs as it is printed, only shorter."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from inline import Inline

from bridgerl.cli.main import main

ROOT = Path(__file__).parents[2]
SHORT = "--steps 60 --eval.episodes 1 --train.batch-size 8 --log.no-tensorboard"


def commands(page: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/howto" / page).read_text(), re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [re.sub(r"--steps 2000", SHORT, line).replace("3000", "80") for line in lines]


@pytest.mark.parametrize(("page", "count"), [("sweeps.md", 6), ("compare.md", 3)])
def test_every_command_of_a_page_runs(
    page: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("campaign", "tune"):
        monkeypatch.setattr(f"bridgerl.cli.{place}.Pool", Inline)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    typed = commands(page)
    assert len(typed) == count
    for line in typed:
        program, *words = shlex.split(line)
        assert program == "bridgerl"
        assert main(words) == 0, line
