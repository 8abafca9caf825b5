"""What pages say about the program is asked of the program, when the site is built.

A line `<!-- generated: KIND ARGUMENTS -->` of a page becomes what the function of that kind writes.
"""

import dataclasses
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sphinx.application import Sphinx

from bridgerl.actors import ACTORS
from bridgerl.cli.main import VERBS, load
from bridgerl.cli.train import _description
from bridgerl.critics import CRITICS
from bridgerl.presets import PRESETS, TASKS, resolve
from bridgerl.report.load import load as load_source
from bridgerl.report.results import summarise_source
from bridgerl.report.stats import NOT_RUN, UNDECIDED
from bridgerl.report.tables import contrast_text
from bridgerl.runs.archive import unpack
from bridgerl.studies import SCALES, STUDIES

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"^<!-- generated: ([\w -]+) -->$", re.M)
NEUTRAL = "Any-v0"
"""A task that no preset names."""
OUTSIDE = re.compile(r"\]\((?:\.\./)+(DECISIONS|CHANGELOG|CONTRIBUTING|SECURITY)\.md")
"""Links of pages to files above docs/, as they work on a code host; the site has copies."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", lambda _app, _name, source: source.__setitem__(0, expand(source[0])))
    return {"parallel_read_safe": True}


def expand(text: str) -> str:
    """A page with its generated parts, and links that stay on the site."""
    text = OUTSIDE.sub(lambda found: f"](/{found[1].lower()}.md", text)
    return MARK.sub(lambda found: _generate(*found[1].split()), text)


def _generate(kind: str, *arguments: str) -> str:
    return KINDS[kind](*arguments)


def settings(section: str, name: str) -> str:
    """Every setting of an actor or critic: what each preset sets, and what it means."""
    table = {"actor": ACTORS, "critic": CRITICS}[section]
    configs = [getattr(resolve(NEUTRAL, preset=p, **{section: name}), section) for p in PRESETS]
    rows = [f"| setting | {' | '.join(f'`{p}`' for p in PRESETS)} | meaning |"]
    rows.append("|---" * (len(PRESETS) + 2) + "|")
    meanings = field_texts(table[name])
    for field in dataclasses.fields(table[name]):
        values = [show(getattr(config, field.name)) for config in configs]
        bold = len(set(values)) > 1
        shown = [f"**{value}**" if bold else value for value in values]
        flag = f"`--{section}.{field.name.replace('_', '-')}`"
        rows.append(f"| {flag} | {' | '.join(shown)} | {meanings[field.name]} |")
    framed = [":::{container} settings", *rows, ":::"]  # So that narrow screens can fold it.
    return "\n".join([*framed, *_by_task(f"{section}.{name}")])


def _by_task(key: str) -> Iterator[str]:
    """What single tasks set: alike under every preset, or in one of them."""
    for family, values in TASKS.items():
        for name, value in values.get(key, {}).items():
            flag = f"`--{key.partition('.')[0]}.{name.replace('_', '-')}`"
            what = "In the league" if family == "league" else f"On {family}"
            own = {
                p: o[f"family.{family}"][key] for p, o in PRESETS.items() if _has(o, family, key)
            }
            but = "".join(f", under `{p}` {show(o[name])}" for p, o in own.items() if name in o)
            yield f"\n{what} {flag} is {show(value)}{but}."


def _has(preset: dict[str, Any], family: str, key: str) -> bool:
    return key in preset.get(f"family.{family}", {})


def show(value: Any) -> str:
    """A default as a reader would type it."""
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def field_texts(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, its bases' included, each on one line."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        source = inspect.getsource(base) if base.__module__.startswith("bridgerl") else ""
        for name, text in re.findall(r'^    (\w+):[^\n]*\n    """(.*?)"""', source, re.M | re.S):
            texts[name] = " ".join(text.split())
    return texts


def commands() -> str:
    """Every verb with its flags, read from its parser."""
    return "\n\n".join(_command(verb) for verb in VERBS)


def _command(verb: str) -> str:
    kind = load(verb)
    lines = inspect.cleandoc(kind.__doc__ or "")
    lines = re.sub(r"Example: (.*)", r"\n```bash\n\1\n```", lines, flags=re.S)
    rows = [f"## {verb}", "", lines, "", "| flag | meaning |", "|---|---|"]
    rows += [f"| `{_cell(flag)}` | {_cell(text)} |" for flag, text in _flags(verb, kind)]
    return "\n".join(rows)


def _flags(verb: str, kind: Any) -> Iterator[tuple[str, str]]:
    """What may be typed after a verb, and what it means."""
    if verb == "train":  # Read before the others, as they decide which others there are.
        yield "--env STR", "Gymnasium id, e.g. Hopper-v5 or my_module:MyEnv-v0. Needed."
        yield from re.findall(r"^(--\w+[^:]*): (.*)$", _description(), re.M)
    for action in _parser(verb, kind)._actions:
        names = action.option_strings or [str(action.metavar)]
        if not {"--help", "--env", "--preset"} & set(names):
            takes = f" {action.metavar}" if action.option_strings and action.metavar else ""
            yield ", ".join(names) + takes, action.help or ""


def _parser(verb: str, kind: Any) -> Any:
    """The parser behind a verb; tyro is pinned, so that what it calls deprecated stays."""
    import tyro

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if verb == "train":  # Its flags are those of a whole config.
            default = resolve(NEUTRAL)
            return tyro.extras.get_parser(type(default), default=default)
        return tyro.extras.get_parser(kind)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def studies() -> str:
    """Studies, the tables of the paper that they repeat, and how many runs they are."""
    rows = [f"| study | what it asks | in the paper | runs at {' | '.join(SCALES)} |"]
    rows.append("|---" * (3 + len(SCALES)) + "|")
    for name, study in STUDIES.items():
        tables = ", ".join(f"`{label}`" for label in study.tables) or "ours"
        runs = " | ".join(str(len(study.jobs(scale, Path()))) for scale in SCALES)
        rows.append(f"| `{name}` | {study.title} | {tables} | {runs} |")
    return "\n".join(rows)


def verdicts(archive: str, measure: str) -> str:
    """What stored scores say of a study's claims: a row each, and how many were not run."""
    with TemporaryDirectory() as place:
        unpack(ROOT / "evidence" / f"{archive}.zip", Path(place))
        source = load_source(Path(place))
    judged = {c["text"]: c["verdicts"][measure] for c in summarise_source(source)["claims"]}
    lines = ["| claim | task | verdict | difference, 95 % | seeds to decide |", "|---" * 5 + "|"]
    before, idle = "", 0
    for claim in source.study.claims:
        verdict = judged[claim.text]
        if verdict["word"] == NOT_RUN:
            idle += 1
            continue
        name = claim.text.removesuffix(f" on {claim.task}").partition(" over ")[0]
        word = verdict["word"] if verdict["word"] == UNDECIDED else f"**{verdict['word']}**"
        more = str(verdict["seeds"] or "") if verdict["word"] == UNDECIDED else ""
        number = contrast_text(verdict | {"seeds": None})
        shown = "" if name == before else f"`{name}`"
        lines.append(f"| {shown} | {claim.task} | {word} | {number} | {more} |")
        before = name
    finished = sum(run.finished for run in source.runs)
    lines += [
        "",
        f"{finished} of {len(source.runs)} runs are done; {idle} claims wait for one.",
    ]
    return "\n".join(lines)


def page(name: str) -> str:
    """A page of the repository's root, its links made for the site."""
    text = (ROOT / f"{name}.md").read_text()
    text = re.sub(r"\]\(docs/", "](/", text)
    return re.sub(r"\]\((?=(examples|evidence)/)", "](../", text)


KINDS: dict[str, Callable[..., str]] = {
    "settings": settings,
    "commands": commands,
    "studies": studies,
    "verdicts": verdicts,
    "page": page,
}
