"""Callbacks as settings: names, arguments and objects, and what is refused."""

import pytest
from own_callbacks import Raising, Recorder, RefusesItsFile, Silent, WithPositional

from callboard.callbacks import Callbacks
from callboard.errors import CallboardError
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
