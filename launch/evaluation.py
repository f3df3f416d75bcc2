"""Evaluating the policy of a run that was trained before."""

import dataclasses
import os
import pathlib
from typing import Any, NamedTuple

import imageio.v3 as imageio
import numpy as np

from ..agents.acting import CompiledPolicy, Episode, evaluate
from ..data import CallboardError, EnvironmentOutput, Nest
from ..environments import BatchedEnvironment
from .actor import compile_policy, make_environments
from .best_policy import BestPolicy
from .checkpoints import Checkpoints, load_policy
from .experiment import Experiment
from .run_directory import RunDirectory

_FRAMES_PER_SECOND = 30


class Evaluation(NamedTuple):
    """What an evaluation gave."""

    policy: pathlib.Path
    """The file that the weights came from."""
    episodes: list[Episode]
    video: pathlib.Path | None


def policy_file(run_directory: RunDirectory, checkpoint: str) -> pathlib.Path:
    """The weights to evaluate: `best` by evaluation, or `latest`.

    Raises:
      CallboardError: the run has none.
    """
    finders = {"best": BestPolicy(run_directory).path, "latest": lambda: _latest_policy(run_directory)}
    wanted = finders.pop(checkpoint)()
    if wanted is None:
        ((other, find_other),) = finders.items()
        hint = f"there is --checkpoint {other}" if find_other() is not None else "train it for longer"
        raise CallboardError(f"{run_directory.path} has no {checkpoint} checkpoint yet: {hint}")
    return wanted


def _latest_policy(run_directory: RunDirectory) -> pathlib.Path | None:
    latest = Checkpoints(run_directory).latest()
    return None if latest is None else latest / "policy.npz"


def evaluate_run(
    experiment: Experiment, run_directory: RunDirectory, episodes: int, checkpoint: str, video: bool
) -> Evaluation:
    """Plays `episodes` episodes with the policy of a run; with `video`, records the first one as MP4.

    Raises:
      CallboardError: there is no such checkpoint, or the environment cannot draw itself.
    """
    weights = policy_file(run_directory, checkpoint)
    layout = experiment.acting_layout()
    networks = experiment.agent.make_networks(layout)

    def load(policy: CompiledPolicy) -> CompiledPolicy:
        load_policy(weights, policy.policy.variables)
        return policy

    envs = max(count for count in range(1, min(episodes, experiment.evaluation_envs) + 1) if episodes % count == 0)
    environment = make_environments(experiment, "evaluator", 0, envs)
    policy = load(compile_policy(experiment, layout, networks, "evaluate", 0, envs))
    played = evaluate(environment, policy, episodes, stopped=lambda: False)
    environment.close()
    path = None
    if video:
        path = run_directory.videos / f"{checkpoint}.mp4"
        record_video(experiment, load(compile_policy(experiment, layout, networks, "evaluate", 0, 1)), path)
    return Evaluation(weights, played, path)


def record_video(experiment: Experiment, policy: CompiledPolicy, path: pathlib.Path) -> None:
    """Plays one episode with a policy compiled for one environment, and writes what it looks like to an MP4 file."""
    # SDL, which draws for Gymnasium, looks for a screen otherwise.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    environment = _Recorded(_make_drawing_environment(experiment))
    evaluate(environment, policy, episodes=1, stopped=lambda: False)
    environment.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = np.stack([_even(frame) for frame in environment.frames])
    imageio.imwrite(path, frames, plugin="pyav", codec="libx264", fps=_FRAMES_PER_SECOND)


class _Recorded(BatchedEnvironment):
    """Draws another environment after every step."""

    def __init__(self, environment: BatchedEnvironment):
        self._environment = environment
        self.frames: list[np.ndarray] = []

    @property
    def spec(self) -> Any:
        return self._environment.spec

    @property
    def batch_size(self) -> int:
        return self._environment.batch_size

    def reset(self) -> EnvironmentOutput:
        tick = self._environment.reset()
        self.frames.append(self.render())
        return tick

    def step(self, actions: Nest) -> EnvironmentOutput:
        tick = self._environment.step(actions)
        self.frames.append(self.render())
        return tick

    def render(self) -> np.ndarray:
        return self._environment.render()

    def close(self) -> None:
        self._environment.close()


def _even(frame: np.ndarray) -> np.ndarray:
    """H.264 wants even widths and heights."""
    return frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]


def _make_drawing_environment(experiment: Experiment) -> BatchedEnvironment:
    # Gymnasium ids take both options, factories that make a Gymnasium environment perhaps the first, others none.
    tries: list[dict[str, Any]] = [{"render_mode": "rgb_array", "vectorized": False}, {"render_mode": "rgb_array"}]
    for options in tries:
        drawing = dataclasses.replace(experiment, env_options={**experiment.env_options, **options})
        try:
            return make_environments(drawing, "evaluator", 0, 1)
        except CallboardError:
            continue
    return make_environments(experiment, "evaluator", 0, 1)
