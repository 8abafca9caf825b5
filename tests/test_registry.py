"""Critics and actors of other packages, found through their entry points."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridgerl.critics import CRITICS, CriticConfig
from bridgerl.critics.cdq import CDQ, CDQConfig
from bridgerl.critics.dsac import DSACConfig
from bridgerl.errors import UserError
from bridgerl.registry import Registry
from conftest import finished

EXAMPLE = Path(__file__).parent.parent / "examples" / "add_a_critic.py"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder as pip leaves it: a module, and the metadata of an installed package."""
    (tmp_path / "their_critics.py").write_text(
        "import bridgerl\n" + EXAMPLE.read_text()  # It may import all of bridgerl.
    )
    info = tmp_path / "their_critics-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-critics\nVersion: 1.0\n")
    return tmp_path


def _announce(site: Path, *lines: str) -> None:
    text = "\n".join(["[bridgerl.critics]", *lines, ""])
    (site / "their_critics-1.0.dist-info" / "entry_points.txt").write_text(text)


def _python(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return finished([sys.executable, "-c", code], env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize("first", ["bridgerl", "their_critics"])
def test_an_installed_package_adds_its_critic_whoever_is_imported_first(
    site: Path, first: str
) -> None:
    _announce(site, "average = their_critics:AverageConfig")
    code = (
        f"import {first}\nfrom bridgerl import CRITICS, resolve\nimport their_critics\n"
        "assert CRITICS['average'] is their_critics.AverageConfig\n"
        "print(list(CRITICS)[-1], resolve('Hopper-v5', critic='average').critic_name)"
    )
    ended = _python(site, code)
    assert (ended.stdout, ended.stderr) == ("average average\n", "")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("mine = no_such_module:Config", "cannot be loaded (ModuleNotFoundError"),
        ("mine = their_critics:NoSuchConfig", "cannot be loaded (AttributeError"),
        ("mine = their_critics:Average", "is no CriticConfig"),
        ("dbc = their_critics:AverageConfig", "has a name that is taken"),
    ],
)
def test_a_broken_plugin_costs_a_warning_and_nothing_else(
    site: Path, line: str, reason: str
) -> None:
    _announce(site, line)
    code = (
        "from bridgerl import CRITICS\nfrom bridgerl.critics.dbc import DBCConfig\n"
        "assert 'mine' not in CRITICS and CRITICS['dbc'] is DBCConfig"
    )
    ended = _python(site, code)
    assert ended.returncode == 0, ended.stderr
    assert reason in ended.stderr
    assert "left out" in ended.stderr


def test_a_registry_is_a_dictionary_that_loads_late() -> None:
    table = Registry(CriticConfig, "no.such.group", {"later": "no_such_module:Config"})
    assert list(table) == ["later"]
    table["cdq"] = CDQConfig
    assert len(table) == 2
    assert table["cdq"] is CDQConfig
    with pytest.raises(ModuleNotFoundError):
        table["later"]
    del table["later"]
    assert dict(table) == {"cdq": CDQConfig}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("mine", CDQ, "is no CriticConfig: name the class of the settings"),
        ("mine", CDQConfig(), "is no CriticConfig"),
        ("../mine", CDQConfig, "needs a name of at most 32 small letters"),
        ("Mine", CDQConfig, "needs a name"),
    ],
)
def test_what_could_not_be_used_is_refused_when_it_is_named(
    name: str, value: Any, reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        CRITICS[name] = value
    assert name not in CRITICS


def test_a_config_knows_its_name_if_its_class_has_one() -> None:
    table = Registry(CriticConfig, "no.such.group", {"mine": "bridgerl.critics.cdq:CDQConfig"})
    assert table.name_of(CDQConfig()) == "mine"
    assert table.name_of(DSACConfig()) is None


def test_every_critic_of_ours_is_a_config_with_a_line_about_itself() -> None:
    for config in CRITICS.values():
        assert issubclass(config, CriticConfig)
        assert len((config.__doc__ or "").splitlines()[0]) > 20
