"""DBC's sizes, one changed at a time: what a better fit costs."""

from bridgerl.studies.base import LeagueStudy, dbc
from bridgerl.truth.settings import PROBLEMS

STUDY = LeagueStudy(
    name="dbc-sizes",
    title="DBC's sizes against known distributions",
    settings=(
        dbc("lite"),
        *(dbc(f"particle {n}x{n}", particle=(n, n)) for n in (8, 32, 64)),
        dbc("particle 32, one layer", particle=(32,)),
        *(dbc(f"trunk 2x{n}", hidden=(n, n)) for n in (64, 256, 512)),
        *(dbc(f"target {n}", n_target=n) for n in (4, 16, 32)),
        *(dbc(f"online {n}", n_online=n) for n in (8, 32)),
        dbc("iid, shared", stratified=False),
        dbc("stratified, own", shared_levels=False),
        dbc("iid, own", stratified=False, shared_levels=False),
        *(dbc(f"{n} cosines", n_embed=n) for n in (16, 64)),
    ),
    tasks=PROBLEMS,
)
