"""An agent of Stable-Baselines3 with nothing but its defaults, for a number of environment steps.

    python sb3_defaults.py dqn CartPole-v1 50000 1 DIRECTORY

Writes `experiment.yaml` and `metrics.jsonl` as a run of Callboard does, so that `callboard compare` reads both: the
mean return of the last 100 training episodes, and evaluations of 100 episodes at equal distances, the last one at the
end.  It saves itself from time to time and on SIGTERM, and continues in a directory where it was stopped.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import sys
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
_MODEL, _REPLAY, _STATE = "saved.zip", "saved-replay.pkl", "saved.json"
_PR_SET_PDEATHSIG = 1
_TERMINATED = 143


class Rows(BaseCallback):
    """Writes a row of metrics from time to time, and saves the run.

    Args:
      known: the arguments of the program.
      state: what a former process of the run has saved; empty at its beginning.
    """

    def __init__(self, known, state):
        super().__init__()
        self._known = known
        self._metrics = known.directory / "metrics.jsonl"
        self._seconds_before = state.get("seconds", 0.0)
        self._next_row, self._next_evaluation = state.get("next", (1, 1))
        self._begun = self._saved = time.monotonic()
        self.is_stopped = False
        # Rows after the last save are made again.
        kept = self._metrics.read_bytes()[: state["bytes"]] if state else b""
        self._metrics.write_bytes(kept)
        self._file = self._metrics.open("a")

    def _on_step(self):
        evaluates = self.num_timesteps >= self._next_evaluation * self._known.steps / self._known.evaluations
        if self._next_evaluation < self._known.evaluations and evaluates:
            self._next_evaluation += 1
            self.evaluate()
        if self.num_timesteps >= self._next_row * self._known.steps / _ROWS:
            self._next_row += 1
            self._write()
        return self.num_timesteps < self._known.steps and not self.is_stopped

    def _on_rollout_start(self):
        # Between two rollouts nothing but the environment's state is lost.
        if self.num_timesteps and time.monotonic() - self._saved > self._known.save_seconds:
            self.save()

    def evaluate(self):
        """Evaluates the policy, and writes a row with the result."""
        environment = Monitor(gymnasium.make(self._known.env, **self._known.env_options))
        environment.reset(seed=self._known.seed + 1000)
        returns, _ = evaluate_policy(self.model, environment, _EPISODES, return_episode_rewards=True)
        environment.close()
        self._write(
            {
                "evaluator/return": float(np.mean(returns)),
                "evaluator/return_std": float(np.std(returns)),
                "evaluator/environment_steps": self.num_timesteps,
            }
        )

    def save(self):
        """Saves the run; the file that is written last makes it valid."""
        directory = self._known.directory
        state = {
            "seconds": self._seconds(),
            "next": [self._next_row, self._next_evaluation],
            "bytes": self._metrics.stat().st_size,
            "steps": self.model.num_timesteps,
        }
        self.model.save(directory / f"new-{_MODEL}")
        if hasattr(self.model, "save_replay_buffer"):
            self.model.save_replay_buffer(directory / f"new-{_REPLAY}")
        (directory / f"new-{_STATE}").write_text(json.dumps(state))
        (directory / _STATE).unlink(missing_ok=True)
        for name in (_MODEL, _REPLAY, _STATE):
            if (directory / f"new-{name}").exists():
                (directory / f"new-{name}").rename(directory / name)
        self._saved = time.monotonic()

    def _seconds(self):
        return self._seconds_before + time.monotonic() - self._begun

    def _write(self, more=None):
        row = {
            "environment_steps": self.num_timesteps,
            "elapsed_seconds": self._seconds(),
            **(more or {}),
        }
        episodes = self.model.ep_info_buffer
        if episodes:
            row["actor/episode_return"] = float(np.mean([episode["r"] for episode in episodes]))
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


def end_with(parent):
    """Makes the kernel stop this process with SIGTERM when the one that has started it ends, and keeps its priority.

    Linux shares processors among sessions first: niceness alone does not count beyond this process's own.
    """
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/autogroup").write_text(str(os.nice(0)))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        sys.exit(_TERMINATED)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("agent", choices=AGENTS)
    parser.add_argument("env")
    parser.add_argument("steps", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--env-options", type=json.loads, default={})
    parser.add_argument("--evaluations", type=int, default=2)
    parser.add_argument("--save-seconds", type=float, default=300.0)
    parser.add_argument("--parent", type=int)
    known = parser.parse_args()
    if known.parent is not None:
        end_with(known.parent)
    torch.set_num_threads(1)
    # JSON is YAML.
    settings = {"agent": {"name": f"sb3-{known.agent}"}, "env": known.env, "seed": known.seed, "max_steps": known.steps}
    (known.directory / "experiment.yaml").write_text(json.dumps(settings) + "\n")
    saved = known.directory / _STATE
    state = json.loads(saved.read_text()) if saved.exists() else {}
    environment = gymnasium.make(known.env, **known.env_options)
    if state:
        model = AGENTS[known.agent].load(known.directory / _MODEL, env=environment, device="cpu")
        if (known.directory / _REPLAY).exists():
            model.load_replay_buffer(known.directory / _REPLAY)
    else:
        model = AGENTS[known.agent]("MlpPolicy", environment, seed=known.seed, device="cpu")
    rows = Rows(known, state)

    def stop(number, frame):
        rows.is_stopped = True

    signal.signal(signal.SIGTERM, stop)
    left = known.steps - state.get("steps", 0)
    if left > 0:
        model.learn(left, callback=rows, reset_num_timesteps=not state)
    if rows.is_stopped:
        rows.save()
        sys.exit(_TERMINATED)
    rows.evaluate()
    for name in (_MODEL, _REPLAY, _STATE):
        (known.directory / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
