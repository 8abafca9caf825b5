"""One class per critic; each differs from ActorCritic in nothing else."""

from bridgerl.sb3.algorithm import ActorCritic


class CDQ(ActorCritic, critic="cdq"):
    """ActorCritic with clipped double Q-learning."""


class DBC(ActorCritic, critic="dbc"):
    """ActorCritic with the Diffusion Bridge Critic."""


class DSAC(ActorCritic, critic="dsac"):
    """ActorCritic with the Gaussian critic of distributional SAC."""


class IQN(ActorCritic, critic="iqn"):
    """ActorCritic with implicit quantiles."""


class TQC(ActorCritic, critic="tqc"):
    """ActorCritic with truncated quantiles."""


class VF(ActorCritic, critic="vf"):
    """ActorCritic with Value Flows."""


class VDRL(ActorCritic, critic="vdrl"):
    """ActorCritic with value diffusion."""
