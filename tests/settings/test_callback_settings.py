"""Callbacks as settings: names, arguments and objects, and what is refused."""

import enum
import functools

import pytest
import yaml
from own_callbacks import Goals, Raising, Recorder, RefusesItsFile, Silent, TakesName, WithPositional

from callboard.callbacks import Callbacks
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.settings import format_experiment, parse_experiment
from callboard.settings.callback_settings import callback_settings, check_callbacks, make_callbacks, overridden

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


class Misspelled(Callbacks):
    def on_episod_end(self, run, episode):
        raise AssertionError


def test_a_class_stands_for_an_object_that_needs_no_arguments():
    (made,) = callback_settings(Recorder)
    assert isinstance(made, Recorder)


def test_a_class_may_stand_for_its_name_beside_arguments():
    assert callback_settings([{**NAMED, "name": Recorder}]) == [NAMED]


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
        ([int], "callbacks must be package.module:Class"),
        (Misspelled, "unknown callback of Misspelled 'on_episod_end'; did you mean 'on_episode_end'?"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(given, says):
    assert says in error_of(lambda: check_callbacks(given))


def test_an_object_that_could_not_be_made_again_is_refused():
    class Local(Callbacks):
        pass

    assert "define the class at a module's top" in error_of(lambda: check_callbacks([Local()]))
    assert "take the argument 'numbers' by position" in error_of(lambda: check_callbacks([WithPositional(1, 2)]))


def test_arguments_are_saved_as_they_were_given():
    given = [1.0, {"far": [2.0]}]
    callbacks = Recorder(given)
    given[1]["far"].append(3.0)
    given.append(4.0)
    assert callbacks.setting() == {"name": "own_callbacks:Recorder", "factor": [1.0, {"far": [2.0]}]}


def test_a_dataclass_of_callbacks_is_made_again_from_the_settings_of_its_run():
    experiment = Experiment("ppo", env="CartPole-v1", callbacks=[Goals([1.0]), Goals([2.0], weight=3)])
    saved = yaml.safe_load(format_experiment(experiment))
    assert saved["callbacks"][0] == {"name": "own_callbacks:Goals", "goals": [1.0]}
    assert make_callbacks(parse_experiment(None, saved, []).callbacks) == [Goals([1.0]), Goals([2.0], weight=3)]


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "callbacks, says",
    [
        (
            lambda: TakesName("b"),
            "TakesName take the argument 'name', which in the run's settings is the name of their",
        ),
        (lambda: TakesName(more=Color.RED), "TakesName take a Color as 'more', which the run's settings cannot hold"),
        (lambda: TakesName(more=[{"a": Color}]), "TakesName take an EnumMeta as 'more'"),
        (lambda: TakesName(more=functools.partial(int, 3)), "TakesName take a partial as 'more'"),
        (
            lambda: Goals([1.0], weight=Goals([])),
            "Goals take a Goals as 'weight', which the run's settings cannot hold",
        ),
    ],
)
def test_arguments_that_settings_would_give_back_as_something_else_are_refused(callbacks, says):
    assert says in error_of(lambda: check_callbacks(callbacks()))


def test_which_methods_are_overridden():
    assert overridden(Recorder, "on_episode_step") and overridden(Raising, "on_episode_step", "on_episode_end")
    assert not overridden(Raising, "on_episode_step") and not overridden(Silent, "on_run_start", "on_result")


@pytest.mark.parametrize("make", [callback_settings, lambda _: make_callbacks("own_callbacks:RefusesItsFile")])
def test_what_a_constructor_raises_is_one_line_that_names_its_class(make):
    assert error_of(lambda: make(RefusesItsFile)) == (
        "the constructor of the callback RefusesItsFile raised OSError: no room"
    )


def test_a_constructor_that_exits_is_named():
    said = error_of(lambda: make_callbacks({"name": "own_callbacks:RefusesItsFile", "file": "exit"}))
    assert said == "the constructor of the callback RefusesItsFile raised SystemExit: 3"
