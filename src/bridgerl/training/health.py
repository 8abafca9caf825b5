"""Whether a critic's values are possible at all, and advice on its settings."""

from collections.abc import Callable
from typing import Any

from bridgerl.config import TrainConfig
from bridgerl.training.state import RunState

Q_ALARM = 10.0
"""Times the largest possible return at which values are called diverging."""
SMALL = 10.0
"""Returns that cannot exceed this are smaller than what the presets' rates are made for."""
SETTLED = 5_000
"""Updates that a run must have made before its values are judged."""


class Health:
    """Judges the values of a run; each kind of warning is given once."""

    def __init__(self, state: RunState, train: TrainConfig) -> None:
        self._state, self._train, self._warned = state, train, set[str]()

    def judge(self, values: dict[str, Any], warn: Callable[[str], None]) -> None:
        """Compare Q with the largest return the rewards allow; pass on a critic's advice."""
        replay, train, agent = self._state.replay, self._train, self._state.agent
        # A row's reward is that of n steps, and a return adds up every n-th row.
        bound = replay.largest_reward() / (1 - train.discount**train.n_step)
        if bound == 0:
            return
        latest = replay.latest(train.batch_size, train.device)
        q = float(agent.q(latest.obs, latest.action).abs().max())
        values["critic/q_over_bound"] = q / bound
        found = {"scale": self._small_returns(bound)}
        if agent.updates >= SETTLED:
            text = f"values reach {q:.4g} where no return exceeds {bound:.4g}; lower --critic.lr"
            found["divergence"] = text if q > Q_ALARM * bound else None
            found["advice"] = agent.critic.advice(values)
        for kind, warning in found.items():
            if warning and kind not in self._warned:  # Numbers move, the advice does not.
                self._warned.add(kind)
                warn(warning)

    def _small_returns(self, bound: float) -> str | None:
        if bound >= SMALL or self._train.normalize_returns:
            return None
        how = "add --train.normalize-returns --train.return-unit 100"
        return f"no return exceeds {bound:.3g}, and presets are made for larger ones; {how}"
