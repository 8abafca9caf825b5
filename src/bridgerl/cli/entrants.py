"""Critics as tables name them: a label, a critic and its flags, in one line of text."""

from dataclasses import replace
from typing import NamedTuple

from bridgerl.actors import ACTORS
from bridgerl.cli.flags import HELP, flags_of, parse, refuse_odd_words, take
from bridgerl.config import RunConfig
from bridgerl.critics import CRITICS, CriticConfig
from bridgerl.errors import choose, require
from bridgerl.presets import resolve
from bridgerl.truth.settings import LEAGUE


class Entrant(NamedTuple):
    """A critic with its settings, under the name that tables show."""

    label: str
    critic: str
    config: CriticConfig


def read_entrant(text: str) -> Entrant:
    """`[LABEL = ]dbc --bridge-input self --preset paper`: a critic, then its flags."""
    label, config = _read(text, "critics", LEAGUE, "sac+")
    return Entrant(label, config.critic_name, config.critic)


def read_pair(text: str, env: str) -> tuple[str, RunConfig]:
    """`[LABEL = ]sac+dbc --preset paper`: an actor and a critic, then the critic's flags."""
    return _read(text, "pairs", env)


def split_label(text: str, flag: str) -> tuple[str, str]:
    """`[LABEL = ]ENTRY` in its two parts; without a label the entry is its own."""
    label, equals, entry = text.rpartition(" = ")
    label = (label if equals else entry).strip()
    fit = label and not label.startswith("_") and not set(label) & set("$|\\\n")
    require(bool(fit), flag, text, "needs labels without $, |, \\ and a leading _")
    return label, entry


def _read(text: str, flag: str, env: str, actor: str = "") -> tuple[str, RunConfig]:
    label, entry = split_label(text, flag)
    pair, *words = (actor + entry.strip()).replace("--critic.", "--").split() or [""]
    actor, plus, critic = pair.partition("+")
    require(bool(plus), flag, text, "needs an actor and a critic, e.g. sac+dbc")
    choose("actor", actor, ACTORS)
    choose("critic", critic, CRITICS)
    refuse_odd_words(words)
    has_help, verb = bool(HELP & set(words)), f"train --critic {critic}"
    require(not has_help, flag, text, f"has no help; see {verb} --help")
    picks = {"--preset": "lite"}
    words = take(words, picks)
    config = resolve(env, actor, critic, picks["--preset"])
    default, known = config.critic, flags_of(config.critic)
    return label, replace(config, critic=parse(type(default), words, verb, known, default=default))
