"""An agent of Stable-Baselines3 with nothing but its defaults, for a number of environment steps.

    python sb3_defaults.py dqn CartPole-v1 50000 1 DIRECTORY

Writes `experiment.yaml` and `metrics.jsonl` as a run of Callboard does, so that `callboard compare` reads both: the
mean return of the last 100 training episodes, and an evaluation of 100 episodes at half the steps and at the end.
"""

import argparse
import json
import pathlib
import time

import gymnasium
import numpy as np
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

AGENTS = {"ppo": PPO, "a2c": A2C, "dqn": DQN, "sac": SAC, "td3": TD3}
_EPISODES = 100
_ROWS = 50
_EVALUATIONS = 2


class Rows(BaseCallback):
    """Writes a row of metrics from time to time.

    Args:
      path: the file.
      env: name of the environment, which evaluations make once more.
      steps: environment steps of the run.
      seed: seed of the evaluations.
    """

    def __init__(self, path, env, steps, seed):
        super().__init__()
        self._file = path.open("w")
        self._env = env
        self._steps = steps
        self._seed = seed
        self._begun = time.monotonic()
        self._next_row, self._next_evaluation = 1, 1

    def _on_step(self):
        evaluates = self.num_timesteps >= self._next_evaluation * self._steps / _EVALUATIONS
        if self._next_evaluation < _EVALUATIONS and evaluates:
            self._next_evaluation += 1
            self.evaluate()
        if self.num_timesteps >= self._next_row * self._steps / _ROWS:
            self._next_row += 1
            self._write()
        return self.num_timesteps < self._steps

    def evaluate(self):
        """Evaluates the policy, and writes a row with the result."""
        environment = Monitor(gymnasium.make(self._env))
        environment.reset(seed=self._seed + 1000)
        returns, _ = evaluate_policy(self.model, environment, _EPISODES, return_episode_rewards=True)
        environment.close()
        self._write(
            {
                "evaluator/return": float(np.mean(returns)),
                "evaluator/return_std": float(np.std(returns)),
                "evaluator/environment_steps": self.num_timesteps,
            }
        )

    def _write(self, more=None):
        row = {
            "environment_steps": self.num_timesteps,
            "elapsed_seconds": time.monotonic() - self._begun,
            **(more or {}),
        }
        episodes = self.model.ep_info_buffer
        if episodes:
            row["actor/episode_return"] = float(np.mean([episode["r"] for episode in episodes]))
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("agent", choices=AGENTS)
    parser.add_argument("env")
    parser.add_argument("steps", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("directory", type=pathlib.Path)
    known = parser.parse_args()
    torch.set_num_threads(1)
    # JSON is YAML.
    settings = {"agent": {"name": f"sb3-{known.agent}"}, "env": known.env, "seed": known.seed, "max_steps": known.steps}
    (known.directory / "experiment.yaml").write_text(json.dumps(settings) + "\n")
    model = AGENTS[known.agent]("MlpPolicy", known.env, seed=known.seed, device="cpu")
    rows = Rows(known.directory / "metrics.jsonl", known.env, known.steps, known.seed)
    model.learn(known.steps, callback=rows)
    rows.evaluate()


if __name__ == "__main__":
    main()
