"""DBC's own choices, one changed at a time, where the truth is known."""

from bridgerl.studies.base import LeagueStudy, Setting, dbc
from bridgerl.studies.claims import beats
from bridgerl.truth.settings import PROBLEMS

# The paper's sizes are cut to what a CPU can pay.
SMALL = {"hidden": (64, 64, 64), "n_target": 64, "n_online": 32}

STUDY = LeagueStudy(
    name="dbc-ablation",
    title="DBC's choices against known distributions",
    settings=(
        dbc("lite"),
        *(dbc(name, bridge_input=name) for name in ("label", "path")),
        *(dbc(f"M = {n}", bridge_steps=n) for n in (1, 2, 10)),
        dbc("label, M = 1", bridge_input="label", bridge_steps=1),
        *(dbc(f"w = {w}", anchor_weight=w) for w in (0.01, 0.1)),
        dbc("anchor only", quantile_weight=0.0, anchor_weight=1.0),
        *(dbc(f"z / {n}", z_scale=float(n)) for n in (1, 100)),
        dbc("label, z / 100", bridge_input="label", z_scale=100.0),
        dbc("kappa 0.1", kappa=0.1),
        dbc("kappa 10", kappa=10.0),
        dbc("iid levels", stratified=False, shared_levels=False),
        Setting("paper", "sac", "dbc", SMALL, "paper"),
        Setting("paper, self", "sac", "dbc", SMALL | {"bridge_input": "self"}, "paper"),
    ),
    tasks=PROBLEMS,
    # The label's bias: where rewards are random, the printed input misses by more.
    claims=beats("label", ("lite", "label, M = 1"), ("bernoulli-loop",)),
)
