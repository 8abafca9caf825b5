"""Every installed package has a licence that MIT software may build on; needs no network."""

import re
from email.message import Message
from importlib import metadata
from typing import Any

import pytest

SPDX = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "MIT"}
SPDX |= {"LLVM-exception", "MIT-CMU", "MPL-2.0", "NCSA", "PSF-2.0", "Unlicense", "Zlib", "ISC"}
"""Permissive, or, like the Mozilla licence, with duties for changes to the package alone."""

PLAIN = {
    "Apache": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "ISC": "ISC",
    "MIT": "MIT",
    "Mozilla Public License 2.0": "MPL-2.0",
    "Public Domain": "CC0-1.0",
    "Python Software Foundation License": "PSF-2.0",
    "University of Illinois/NCSA": "NCSA",
}
"""Words of older metadata, and what they stand for."""

EXCEPTIONS = {"docutils": "the part under the GPL is a mode of an editor that is not installed"}


def licences(about: Any) -> set[str]:
    """SPDX names of all that a package names, or its own words where they are not known."""
    expression = about.get("License-Expression") or ""
    classifiers = [c for c in about.get_all("Classifier", []) if c.startswith("License :: ")]
    if not expression and not classifiers:
        expression = (about.get("License") or "none").splitlines()[0]
    words = set(re.split(r" AND | OR | WITH |[()]", expression)) - {""}
    texts = words | {c.rpartition(" :: ")[2] for c in classifiers}
    return {_spdx(text.strip()) for text in texts if text.strip()}


def _spdx(text: str) -> str:
    found = [name for word, name in PLAIN.items() if re.search(rf"\b{re.escape(word)}\b", text)]
    return text if text in SPDX or "GPL" in text or not found else found[0]


def test_every_installed_package_may_be_built_on() -> None:
    found = {d.name: licences(d.metadata) for d in metadata.distributions()}
    odd = {name: said - SPDX for name, said in found.items() if not said or said - SPDX}
    assert {name: said for name, said in odd.items() if name not in EXCEPTIONS} == {}
    assert len(found) > 20


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        ("License-Expression", "MIT OR (GPL-3.0-only AND Zlib)", {"MIT", "GPL-3.0-only", "Zlib"}),
        ("License", "BSD 3-Clause License\n\nlong text", {"BSD-3-Clause"}),
        ("License", "MPL-2.0 AND MIT", {"MPL-2.0", "MIT"}),
        ("License", "Proprietary", {"Proprietary"}),
        ("Classifier", "License :: OSI Approved :: MIT License", {"MIT"}),
        (
            "Classifier",
            "License :: OSI Approved :: GNU General Public License (GPL)",
            {"GNU General Public License (GPL)"},
        ),
        ("Name", "without a licence", {"none"}),
    ],
)
def test_what_a_package_says_of_its_licence_is_read(
    field: str, text: str, expected: set[str]
) -> None:
    about = Message()
    about[field] = text
    assert licences(about) == expected
