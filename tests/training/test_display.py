"""The bar of a run on terminals of every width."""

import io

import pytest
from rich.console import Console

from bridgerl.training import display


@pytest.mark.parametrize("width", [40, 59, 60, 75, 76, 80, 100, 200])
def test_the_counter_is_whole_on_one_line_at_every_width(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"width": width, "force_terminal": True, "color_system": None}
    made = Console(file=io.StringIO(), **options)
    monkeypatch.setattr(display, "_Console", lambda **_: made)
    bar = display.Display(1_000_000)
    monkeypatch.setattr(display._Speed, "render", lambda *_: display.Text("12345 steps/s"))
    bar.update(bar.task_ids[0], completed=999_999, result="-12345.6")
    seen = Console(file=(out := io.StringIO()), **options)
    seen.print(bar.get_renderable())
    (line,) = out.getvalue().splitlines()
    assert " 999999/1000000 " in line
    assert "-12345.6" in line
    assert "…" not in line
