"""DBC in place of Stable-Baselines3's SAC: train, keep the best, save, load, evaluate."""

import argparse
import tempfile
from pathlib import Path

import gymnasium as gym
import torch
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from bridgerl.sb3 import DBC


def main() -> None:
    """Swing up a pendulum; a good policy scores about -150, a random one -1,200."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=6_000)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "sb3_dropin")
    args = parser.parse_args()

    torch.set_num_threads(1)  # Small networks are fastest so on a CPU.
    model = DBC("MlpPolicy", "Pendulum-v1", learning_rate=1e-3, seed=0, device="cpu")
    every = max(args.timesteps // 4, 1)
    evaluate = EvalCallback(
        Monitor(gym.make("Pendulum-v1")), eval_freq=every, best_model_save_path=str(args.out)
    )
    model.learn(args.timesteps, callback=evaluate)
    model.save(args.out / "last")

    env = Monitor(gym.make("Pendulum-v1"))
    for name in ("best_model", "last"):
        model = DBC.load(args.out / name, device="cpu")
        mean, std = evaluate_policy(model, env, n_eval_episodes=5)
        print(f"{args.out / name}.zip: {mean:.0f} +- {std:.0f}")


if __name__ == "__main__":
    main()
