"""Callbacks: the settings that they are saved as, and what they see of a run and an episode."""

import dataclasses
import pathlib
import pickle

import numpy as np
import pytest
from own_callbacks import Recorder

from callboard.callbacks import CallbackRun, Callbacks, EpisodeView, plain_task
from callboard.data import Timestep
from callboard.errors import CallboardError


def test_an_object_is_saved_with_the_arguments_of_its_constructor():
    assert Recorder().setting() == "own_callbacks:Recorder"
    assert Recorder(4.0).setting() == {"name": "own_callbacks:Recorder", "factor": 4.0}
    given = Recorder(factor=4.0, name_of_metric="x")
    assert given.setting() == {"name": "own_callbacks:Recorder", "factor": 4.0, "name_of_metric": "x"}
    assert pickle.loads(pickle.dumps(given)).setting() == given.setting()


@dataclasses.dataclass(frozen=True)
class Frozen(Callbacks):
    rate: float = 1.0


def test_a_frozen_dataclass_can_be_callbacks():
    assert Frozen(2.0).setting() == {"name": f"{__name__}:Frozen", "rate": 2.0}


def test_a_task_is_plain_data():
    task = {"size": np.int64(3), "places": np.array([1.0, 2.0]), "pair": (1, 2)}
    assert plain_task(task) == {"size": 3, "places": [1.0, 2.0], "pair": [1, 2]}
    assert type(plain_task(task)["size"]) is int
    assert plain_task([2**63 - 1, -(2**63)]) == [2**63 - 1, -(2**63)]
    for wrong in ({1, 2}, {"a": object()}, 2**63, [-(2**63) - 1], np.uint64(2**63), "\ud800", {"\udfff": 1}):
        with pytest.raises(CallboardError, match="a task must be plain data"):
            plain_task(wrong)


def test_requests_of_callbacks():
    requests = []
    run = CallbackRun(
        "actor/0", None, pathlib.Path(), lambda: 7, lambda: "task", lambda *request: requests.append(request)
    )
    assert (run.environment_steps, run.task) == (7, "task")
    run.set_task({"size": np.float32(0.5)})
    run.stop("enough")
    assert requests == [("task", {"size": 0.5}), ("stop", "enough")]


def batch(reward, discount, first, last):
    return Timestep(
        {"place": np.array([[1.0, 2.0], [3.0, 4.0]])},
        np.array(reward, np.float32),
        np.array(discount, np.float32),
        np.array(first),
        np.array(last),
    )


def test_an_episode_seen_by_callbacks():
    start = batch([0, 0], [1, 1], [True, True], [False, False])
    view = EpisodeView(7, {"size": 1}, 1, start, {"begun": True})
    assert view.action is None and view.info == {"begun": True} and (view.length, view.episode_return) == (0, 0.0)
    np.testing.assert_array_equal(view.timestep.observation["place"], [3.0, 4.0])
    view.advance(np.array([0, 5]), batch([0, 2], [1, 1], [False, False], [False, False]), {})
    assert (view.action, view.length, view.episode_return, view.over) == (5, 1, 2.0, False)
    view.advance(np.array([0, 5]), batch([0, 2], [0, 1], [False, False], [False, True]), {})
    assert view.over and not view.terminated and view.episode_return == 4.0
    assert view.timestep.observation is not None and view.timestep.last


def test_the_lost_observation_of_an_episode_that_was_reset_in_the_same_step():
    view = EpisodeView(0, None, 0, batch([0, 0], [1, 1], [True, True], [False, False]), {})
    view.advance(np.array([0, 0]), batch([1, 0], [0, 1], [True, False], [False, False]), {})
    assert view.over and view.terminated and view.timestep.observation is None and view.timestep.reward == 1.0
