"""The code on two pages for users runs as it is pasted, block after block."""

import re
import shlex
from pathlib import Path

import pytest

from bridgerl.cli.main import main

PAGES = Path(__file__).parents[1] / "docs" / "howto"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["environments", "policy"])
def test_every_block_of_the_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "howto"}
    blocks = BLOCK.findall((PAGES / f"{page}.md").read_text())
    assert blocks
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, f"{page}.md", "exec"), names)
            continue
        for line in text.splitlines():
            program, *words = shlex.split(line, comments=True)
            assert program == "pip" or main(words) == 0, line
    assert capsys.readouterr().err == ""
