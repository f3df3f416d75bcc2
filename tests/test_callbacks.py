"""Callbacks as settings: names, arguments and objects, what is refused, and what they see of an episode."""

import dataclasses
import pathlib
import pickle

import numpy as np
import pytest
from own_callbacks import Raising, Recorder, Silent, WithPositional

from callboard.callbacks import (
    CallbackRun,
    Callbacks,
    EpisodeView,
    callback_settings,
    check_callbacks,
    make_callbacks,
    overridden,
    plain_task,
)
from callboard.data import Timestep
from callboard.errors import CallboardError

NAMED = {"name": "own_callbacks:Recorder", "factor": 3.0}


def error_of(call):
    with pytest.raises(CallboardError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        "own_callbacks:Recorder, own_callbacks:Silent",
        ["own_callbacks:Recorder", Silent()],
        (NAMED, "own_callbacks:Silent"),
        [Recorder(), Silent()],
    ],
)
def test_names_arguments_and_objects(given):
    assert check_callbacks(given) == [Recorder, Silent]
    recorder, silent = make_callbacks(given)
    assert type(recorder) is Recorder and type(silent) is Silent
    assert recorder.factor == (3.0 if given == (NAMED, "own_callbacks:Silent") else 2.0)


def test_one_object_is_used_as_it_is():
    recorder = Recorder()
    assert make_callbacks(recorder) == [recorder] == callback_settings(recorder)


def test_one_object_can_be_made_again_from_its_setting():
    (again,) = make_callbacks(Recorder(factor=3.0).setting())
    assert type(again) is Recorder and again.factor == 3.0


def test_an_object_is_saved_with_the_arguments_of_its_constructor():
    assert Recorder().setting() == "own_callbacks:Recorder"
    assert Recorder(4.0).setting() == {"name": "own_callbacks:Recorder", "factor": 4.0}
    given = Recorder(factor=4.0, name_of_metric="x")
    (again,) = make_callbacks([given.setting()])
    assert (again.factor, again.name_of_metric) == (4.0, "x")
    assert pickle.loads(pickle.dumps(given)).setting() == given.setting()


@dataclasses.dataclass(frozen=True)
class Frozen(Callbacks):
    rate: float = 1.0


def test_a_frozen_dataclass_can_be_callbacks():
    assert Frozen(2.0).setting() == {"name": f"{__name__}:Frozen", "rate": 2.0}


@pytest.mark.parametrize(
    "given, says",
    [
        ("own_callbacks", "callbacks 'own_callbacks': name a class, as package.module:Class"),
        ("own_callbacks:Recordr", "did you mean 'Recorder'?"),
        ("no_such_module:A", "cannot be imported"),
        ("own_callbacks:NOT_CALLBACKS", "is not a subclass of callboard.callbacks.Callbacks"),
        ("own_callbacks:Walk", "is not a subclass of callboard.callbacks.Callbacks"),
        ("os:system", "is part of Python's standard library"),
        (5, "callbacks must be package.module:Class"),
        ([5], "callbacks must be package.module:Class"),
        ([{"factor": 3}], "callbacks must be package.module:Class"),
        ([{**NAMED, "facto": 1}], "callbacks 'own_callbacks:Recorder': got an unexpected keyword argument 'facto'"),
        ([Recorder], "callbacks must be package.module:Class"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(given, says):
    assert says in error_of(lambda: check_callbacks(given))


def test_an_object_that_could_not_be_made_again_is_refused():
    class Local(Callbacks):
        pass

    assert "define the class at a module's top" in error_of(lambda: check_callbacks([Local()]))
    assert "take the argument 'numbers' by position" in error_of(lambda: check_callbacks([WithPositional(1, 2)]))


def test_which_methods_are_overridden():
    assert overridden(Recorder, "on_episode_step") and overridden(Raising, "on_episode_step", "on_episode_end")
    assert not overridden(Raising, "on_episode_step") and not overridden(Silent, "on_run_start", "on_result")


def test_a_task_is_plain_data():
    task = {"size": np.int64(3), "places": np.array([1.0, 2.0]), "pair": (1, 2)}
    assert plain_task(task) == {"size": 3, "places": [1.0, 2.0], "pair": [1, 2]}
    assert type(plain_task(task)["size"]) is int
    for wrong in ({1, 2}, {"a": object()}):
        assert "a task must be plain data" in error_of(lambda wrong=wrong: plain_task(wrong))


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
