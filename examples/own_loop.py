"""A plain SAC loop of your own, with the Diffusion Bridge Critic in place of its Q networks.

The loop owns the policy, the buffer and the temperature. The critic needs four calls:
`build_critic`, `update`, `update_target` and `q`.
"""

import argparse

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgerl import Batch, Bootstrap, EnvSpec, Streams, build_critic

GAMMA, BATCH = 0.99, 128


class Policy(nn.Module):
    """A tanh-Gaussian policy, actions in [-1, 1]."""

    def __init__(self, n_obs: int, n_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.head = nn.Linear(128, 2 * n_actions)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """A sample and its log probability."""
        mean, log_std = self.head(self.body(obs)).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        u = normal.rsample()
        log_prob = normal.log_prob(u) - 2 * (0.6931 - u - F.softplus(-2 * u))
        return torch.tanh(u), log_prob.sum(-1)


def train(env_id: str, steps: int, warmup: int = 500, seed: int = 0) -> list[float]:
    """Train; returns the return of every episode."""
    torch.manual_seed(seed)
    env = gym.make(env_id)
    assert isinstance(env.action_space, gym.spaces.Box)
    assert env.observation_space.shape is not None
    n_obs, n_actions = env.observation_space.shape[0], env.action_space.shape[0]
    low, high = torch.tensor(env.action_space.low), torch.tensor(env.action_space.high)

    policy = Policy(n_obs, n_actions)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    log_alpha = torch.zeros((), requires_grad=True)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)
    critic = build_critic("dbc", EnvSpec(env_id, n_obs, n_actions), Streams(seed))

    rows: list[tuple[Tensor, ...]] = []
    returns, total = [], 0.0
    obs = torch.tensor(env.reset(seed=seed)[0], dtype=torch.float32)
    for step in range(steps):
        with torch.no_grad():
            action = policy(obs)[0] if step >= warmup else torch.rand(n_actions) * 2 - 1
        scaled = low + (action + 1) / 2 * (high - low)
        new, reward, terminated, truncated, _ = env.step(scaled.numpy())
        new = torch.tensor(new, dtype=torch.float32)
        discount = torch.tensor(0.0 if terminated else GAMMA)
        rows.append((obs, action, torch.tensor(float(reward)), discount, new))
        obs, total = new, total + float(reward)
        if terminated or truncated:
            returns.append(total)
            obs, total = torch.tensor(env.reset()[0], dtype=torch.float32), 0.0
        if step < warmup:
            continue

        index = torch.randint(len(rows), (BATCH,)).tolist()
        columns = zip(*(rows[i] for i in index), strict=True)
        batch = Batch(*(torch.stack(column) for column in columns))
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            next_action, next_log_prob = policy(batch.next_obs)
        critic.update(batch, Bootstrap(next_action, alpha * next_log_prob))
        critic.update_target()

        sample, log_prob = policy(batch.obs)
        loss = (alpha * log_prob - critic.q(batch.obs, sample)).mean()
        optimizer.zero_grad()
        loss.backward(inputs=list(policy.parameters()))  # The critic learns by its own rule.
        optimizer.step()
        alpha_loss = -(log_alpha * (log_prob.detach().mean() - n_actions))
        alpha_optimizer.zero_grad()
        alpha_loss.backward()
        alpha_optimizer.step()
    env.close()
    return returns


def main() -> None:
    """Balance a pole; a random policy keeps it up for about 6 steps, 1,000 are the most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="InvertedPendulum-v5")
    parser.add_argument("--steps", type=int, default=5_000)
    args = parser.parse_args()
    torch.set_num_threads(1)  # Small networks are fastest so on a CPU.
    returns = train(args.env, args.steps)
    last = " ".join(f"{r:.0f}" for r in returns[-10:])
    print(f"episodes {len(returns)}, first {sum(returns[:1]):.0f}, last ten {last}")


if __name__ == "__main__":
    main()
