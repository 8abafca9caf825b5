"""One class per critic; each differs from ActorCritic in nothing else."""

from bridgerl.sb3.algorithm import ActorCritic


class CDQ(ActorCritic, critic="cdq"):
    """With clipped double Q."""


class DBC(ActorCritic, critic="dbc"):
    """With the Diffusion Bridge Critic."""


class DSAC(ActorCritic, critic="dsac"):
    """With the Gaussian critic of distributional SAC."""


class IQN(ActorCritic, critic="iqn"):
    """With implicit quantiles."""


class TQC(ActorCritic, critic="tqc"):
    """With truncated quantiles."""


class VF(ActorCritic, critic="vf"):
    """With Value Flows."""


class VDRL(ActorCritic, critic="vdrl"):
    """With value diffusion."""
