"""The site is built without a warning and without the network, and says what the program has."""

import dataclasses
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import bridgerl
from bridgerl.actors import ACTORS
from bridgerl.cli.main import VERBS
from bridgerl.critics import CRITICS
from bridgerl.studies import STUDIES
from bridgerl.testing import learn, make_agent, make_batch
from conftest import environment, finished

DOCS = Path(__file__).parents[2] / "docs"
PARTS = {"critics": CRITICS, "actors": ACTORS}
OWN = [(kind, name) for kind, table in PARTS.items() for name in table]
ORDER = ["What it knows", "The equation", "Defaults", "What the log says"]
ORDER += ["What differs from the paper", "Results", "References"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages as HTML; a link that leads nowhere would be a warning, and a warning an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    ended = finished([*command, str(DOCS), str(out)], timeout=600, env=environment())
    assert (ended.returncode, ended.stderr) == (0, "")
    return out


def test_no_page_asks_the_network_for_anything(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe|source)[^>]*(?:src|href)=\"(?:https?:)?//")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [page.name for page in pages if loaded.search(page.read_text())] == []


class _Links(HTMLParser):
    """What a page links or loads, and the anchors it offers."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.targets |= {found[key] or "" for key in ("href", "src") if key in found}
        self.anchors |= {found[key] or "" for key in ("id", "name") if key in found}


def broken_links(site: Path) -> list[str]:
    """Links inside the site that reach no file, or no place on its page."""
    pages = {page.resolve(): _Links(page) for page in site.rglob("*.html")}
    broken = []
    for page, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchor = unquote(parts.fragment)
            known = pages[file].anchors if file in pages else set()
            if not file.is_file() or (anchor and file in pages and anchor not in known):
                broken.append(f"{page.relative_to(site.resolve())}: {target}")
    return sorted(broken)


def test_every_link_inside_the_site_reaches_its_page_and_place(site: Path) -> None:
    assert broken_links(site) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<p id="there">')
    links = ["b.html#there", "b.html#gone", "c.html", "#own", "https://example.org/x", "no.png"]
    text = "".join(f'<a href="{link}">' for link in links[:-1]) + '<img src="no.png"><b id="own">'
    (tmp_path / "a.html").write_text(text)
    assert broken_links(tmp_path) == ["a.html: b.html#gone", "a.html: c.html", "a.html: no.png"]


def test_no_line_of_a_page_is_a_comment_by_accident() -> None:
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]  # MyST drops lines that begin with %.
    lines = [(p.name, line) for p in pages for line in p.read_text().splitlines()]
    assert [found for found in lines if found[1].startswith("%")] == []


def test_formulas_have_what_draws_them(site: Path) -> None:
    page = (site / "critics" / "dbc.html").read_text()
    assert 'class="math' in page
    for name in re.findall(r"_static/((?:katex/|math\.)[\w./]+)", page):
        assert (site / "_static" / name).is_file()
    assert (site / "_static/katex/fonts").is_dir()


def test_defaults_stand_on_the_page_of_a_critic(site: Path) -> None:
    page = (site / "critics" / "dbc.html").read_text()
    for field in dataclasses.fields(CRITICS["dbc"]):
        assert f"--critic.{field.name.replace('_', '-')}" in page
    assert "On Hopper" in page


def test_every_command_and_study_is_described(site: Path) -> None:
    commands, studies = ((site / f"{name}.html").read_text() for name in ("commands", "studies"))
    assert [verb for verb in VERBS if f'<section id="{verb}">' not in commands] == []
    assert "--bridge-steps" in commands.replace("critic.", "")
    assert [name for name in STUDIES if f">{name}<" not in studies] == []


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    page = (site / "api.html").read_text()
    assert [name for name in bridgerl.__all__ if f'id="bridgerl.{name}"' not in page] == []


@pytest.mark.parametrize(("kind", "name"), OWN)
def test_a_critic_or_actor_has_a_page_in_the_usual_order(kind: str, name: str) -> None:
    page = DOCS / kind / f"{name}.md"
    assert page.is_file(), f"{name} is registered: write {page.relative_to(DOCS.parent)}"
    text = page.read_text()
    assert re.findall(r"^## (.*)$", text, re.M) == ORDER
    assert f"<!-- generated: settings {kind[:-1]} {name} -->" in text
    assert "$$" in text.partition("## Defaults")[0]
    index = (DOCS / kind / "index.md").read_text()
    assert re.search(rf"^{name}$", index, re.M), "and name it in the index"


@pytest.mark.parametrize(("kind", "name"), OWN)
def test_every_logged_number_is_explained(kind: str, name: str) -> None:
    pair = {"actor": "sac", "critic": "cdq"} | {kind[:-1]: name}
    agent = learn(make_agent(pair["actor"], pair["critic"]), range(2))
    logged = set(agent.diagnostics(make_batch(8))) | set(agent.update(make_batch(8)))
    logged |= set(agent.update(make_batch(8)))  # An actor may wait for its turn.
    texts = [(DOCS / kind / page).read_text() for page in (f"{name}.md", "index.md")]
    told = set(re.findall(r"`((?:critic|actor)/\w+)`", "".join(texts)))
    assert {key for key in logged if key.startswith(kind[:-1])} - told == set()
