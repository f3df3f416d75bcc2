"""Callbacks and an environment for tests; their classes are imported by name."""

import dataclasses

import gymnasium
import numpy as np

from callboard.callbacks import Callbacks


class Walk(gymnasium.Env):
    """Walks to the right end of a line, within 20 steps."""

    observation_space = gymnasium.spaces.Box(-20.0, 20.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 3):
        self._own_length = self._length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._length = (options or {}).get("length", self._own_length)
        self._place = self._time = 0
        return np.zeros(1, np.float32), {"length": self._length}

    def step(self, action):
        self._place += 1 if action else -1
        self._time += 1
        arrived = self._place >= self._length
        info = {"success": float(arrived), "place": self._place, "length": self._length}
        return np.array([self._place], np.float32), float(arrived), arrived, self._time >= 20, info


class Recorder(Callbacks):
    """Records all calls."""

    def __init__(self, factor=2.0, *, name_of_metric="twice"):
        self.factor = factor
        self.name_of_metric = name_of_metric
        self.calls = []

    def on_run_start(self, run):
        self.calls.append(("run_start", run.node))

    def on_run_end(self, run):
        self.calls.append(("run_end", run.environment_steps))

    def on_episode_start(self, run, episode):
        episode.data["steps"] = 0
        self.calls.append(("start", episode.slot, episode.task, dict(episode.info), episode.timestep))

    def on_episode_step(self, run, episode):
        episode.data["steps"] += 1
        self.calls.append(("step", episode.slot, episode.action, dict(episode.info), episode.timestep))

    def on_episode_end(self, run, episode):
        assert episode.data["steps"] == episode.length
        self.calls.append(("end", episode.slot, episode.length, episode.episode_return, episode.terminated))
        return {self.name_of_metric: self.factor * episode.length}

    def on_evaluation(self, run, evaluation):
        self.calls.append(("evaluation", run.node, len(evaluation.returns), evaluation.task))
        return {"episodes": len(evaluation.lengths)}

    def on_result(self, run, result):
        self.calls.append(("result", run.node))
        return {"half": result.environment_steps / 2}


class Raising(Callbacks):
    def on_episode_end(self, run, episode):
        raise ValueError("broken on purpose")


class Silent(Callbacks):
    """Overrides nothing."""


class Commanding(Callbacks):
    """Sets the task after the first episodes, and ends the run after more steps."""

    def on_episode_end(self, run, episode):
        if run.environment_steps >= 2000:
            run.stop("enough")
        elif run.task is None:
            run.set_task({"length": np.int64(4)})


class WithPositional(Callbacks):
    def __init__(self, *numbers):
        self.numbers = numbers


NOT_CALLBACKS = 5


class RefusesItsFile(Callbacks):
    def __init__(self, file="log"):
        if file == "log":
            raise OSError("no room")
        if file == "exit":
            raise SystemExit(3)


@dataclasses.dataclass
class Goals(Callbacks):
    goals: list[float]
    weight: float = 1.0

    def __post_init__(self):
        self.goals.append(0.0)


class TakesName(Callbacks):
    def __init__(self, name="a", **others):
        self.name = name
        self.others = others
