"""The locks hold every package that is needed, at the tested version and with checksums."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from audit import judge

ROOT = Path(__file__).parents[1]
LOCKS = ["torch", "demo", "dev"]


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and checksums by package."""
    text = (ROOT / f"locks/{name}.txt").read_text()
    rows = re.findall(r"^([^#=;\n]+)==([^\s\\]+)((?: \\\n    --hash=\S+)*)$", text, re.M)
    found: dict[str, tuple[str, list[str]]] = {
        canonicalize_name(package.partition("[")[0]): (version, hashes.split("--hash=")[1:])
        for package, version, hashes in rows
    }
    assert len(found) == len(re.findall(r"^[^\s#]", text, re.M)), "a line that is no pin"
    return found


def requirements(extras: set[str]) -> list[Requirement]:
    """What pyproject.toml asks for, extras of our own resolved."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [Requirement(line) for line in project["dependencies"]]
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            one = Requirement(line)
            asked += requirements(one.extras) if one.name == "bridgerl" else [one]
    return asked


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_checksums_and_the_tested_version(name: str) -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    tested: dict[str, str] = {
        canonicalize_name(package): version for package, version in pins.items()
    }
    for package, (version, hashes) in locked(name).items():
        assert hashes, package
        assert all(re.match(r"sha256:[0-9a-f]{64}\b", digest) for digest in hashes), package
        assert version == tested.get(package, version), package


@pytest.mark.parametrize(("name", "extras"), [("demo", {"tb", "plot", "report"}), ("dev", {"dev"})])
def test_a_lock_holds_what_pyproject_asks_for_within_its_bounds(
    name: str, extras: set[str]
) -> None:
    held = locked("torch") | locked(name)
    for one in requirements(extras):
        version, _ = held[canonicalize_name(one.name)]
        assert one.specifier.contains(version), f"{one} is locked at {version}: run make lock"


def test_torch_is_apart_so_that_another_build_can_take_its_place() -> None:
    for name in ("demo", "dev"):
        held = locked(name)
        assert [p for p in held if p == "torch" or p.startswith(("nvidia-", "cuda-"))] == []


def test_locks_name_no_host() -> None:
    texts = [path.read_text() for path in (ROOT / "locks").iterdir()]
    assert not any("://" in text or "--index" in text for text in texts)


CLEAN = {"name": "a", "version": "1", "vulns": []}
HOLE = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "code", "says"),
    [
        ([CLEAN], 0, "lock: 1 packages, no known holes"),
        ([CLEAN, HOLE, SKIPPED], 1, "lock: b 2: CVE-1, fixed in 3"),
        ([CLEAN, SKIPPED], 2, "NOT AUDITED, 1 of 2 packages were not found"),
        (None, 2, "NOT AUDITED, is there a network? refused"),
    ],
)
def test_an_audit_that_nobody_answered_is_no_clean_one(
    packages: list[object] | None, code: int, says: str
) -> None:
    out = "" if packages is None else json.dumps({"dependencies": packages})
    found, text = judge("lock", 0, out, "Traceback\nrefused")
    assert found == code
    assert says in text
