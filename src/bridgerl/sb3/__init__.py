"""bridgerl inside Stable-Baselines3: one off-policy algorithm, any actor with any critic."""

from bridgerl.errors import install

try:
    from stable_baselines3.common.buffers import NStepReplayBuffer as _  # noqa: F401
except ImportError:
    what = "bridgerl.sb3 needs Stable-Baselines3 2.7 or newer"
    raise ImportError(f"{what}: {install('sb3')}") from None

from bridgerl.sb3.algorithm import ActorCritic
from bridgerl.sb3.critics import CDQ, DBC, DSAC, IQN, TQC, VDRL, VF
from bridgerl.sb3.policy import AgentPolicy

__all__ = ["CDQ", "DBC", "DSAC", "IQN", "TQC", "VDRL", "VF", "ActorCritic", "AgentPolicy"]
