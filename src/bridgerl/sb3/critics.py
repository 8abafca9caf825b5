"""One class per critic; each differs from ActorCritic in nothing else."""

from bridgerl.sb3.algorithm import ActorCritic


class CDQ(ActorCritic):
    """With clipped double Q."""

    critic_name = "cdq"


class DBC(ActorCritic):
    """With the Diffusion Bridge Critic."""

    critic_name = "dbc"


class DSAC(ActorCritic):
    """With the Gaussian critic of distributional SAC."""

    critic_name = "dsac"


class IQN(ActorCritic):
    """With implicit quantiles."""

    critic_name = "iqn"


class TQC(ActorCritic):
    """With truncated quantiles."""

    critic_name = "tqc"


class VF(ActorCritic):
    """With Value Flows."""

    critic_name = "vf"


class VDRL(ActorCritic):
    """With value diffusion."""

    critic_name = "vdrl"
