"""Critics as tables name them: a label, a critic and its flags, in one line of text."""

from dataclasses import dataclass

from bridgerl.actors import ACTORS, ActorConfig
from bridgerl.cli.flags import HELP, flags_of, parse, refuse_odd_words
from bridgerl.critics import CRITICS, CriticConfig
from bridgerl.errors import UserError, choose, require
from bridgerl.presets import resolve


@dataclass(frozen=True)
class Entrant:
    """A critic with its settings, under the name that tables show."""

    label: str
    critic: str
    config: CriticConfig


@dataclass(frozen=True)
class Pair:
    """An actor and a critic with their settings, under the name that tables show."""

    label: str
    actor: str
    critic: str
    actor_config: ActorConfig
    critic_config: CriticConfig


def read_entrant(text: str) -> Entrant:
    """`[LABEL = ]dbc --bridge-input self --preset paper`: a critic, then its flags."""
    label, entry = _labelled(text, "critics")
    name, preset, words = _split(entry, text, "critics")
    return Entrant(label, name, _critic(name, preset, words, env="league", actor="sac"))


def read_pair(text: str, env: str) -> Pair:
    """`[LABEL = ]sac+dbc --preset paper`: an actor and a critic, then the critic's flags."""
    label, entry = _labelled(text, "pairs")
    actor, plus, rest = entry.partition("+")
    require(bool(plus), "pairs", text, "needs an actor and a critic, e.g. sac+dbc")
    choose("actor", actor, ACTORS)
    name, preset, words = _split(rest, text, "pairs")
    critic = _critic(name, preset, words, env=env, actor=actor)
    return Pair(label, actor, name, resolve(env, actor, name, preset).actor, critic)


def _labelled(text: str, flag: str) -> tuple[str, str]:
    label, equals, entry = text.rpartition(" = ")
    label, entry = label.strip() if equals else entry.strip(), entry.strip()
    fit = label and not label.startswith("_") and not set(label) & set("$|\\\n")
    require(bool(fit), flag, text, "needs labels without $, |, \\ and a leading _")
    return label, entry


def _split(entry: str, text: str, flag: str) -> tuple[str, str, list[str]]:
    """A critic's name, its preset and the other words."""
    name, *words = entry.replace("--critic.", "--").replace("--preset=", "--preset ").split() or [
        ""
    ]
    choose("critic", name, CRITICS)
    refuse_odd_words(words)
    has_help = bool(HELP & set(words))
    require(not has_help, flag, text, f"has no help; see train --critic {name} --help")
    preset = "lite"
    if "--preset" in words:
        at = words.index("--preset")
        if at + 1 == len(words):
            raise UserError(f"--preset needs a value in {text!r}")
        preset = words[at + 1]
        del words[at : at + 2]
    return name, preset, words


def _critic(name: str, preset: str, words: list[str], *, env: str, actor: str) -> CriticConfig:
    default = resolve(env, actor, name, preset).critic
    verb = f"train --critic {name}"
    return parse(type(default), words, verb, known=flags_of(default), default=default)
