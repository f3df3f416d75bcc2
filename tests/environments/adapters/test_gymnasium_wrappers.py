"""Wrappers by name: which are found, in which order they wrap, and mistakes."""

# What type checkers refuse is tried here too.
# mypy: disable-error-code="call-arg"

import functools

import gymnasium
import numpy as np
import pytest

from callboard import environments
from callboard.environments.adapters.gymnasium_wrappers import named_wrappers, read_wrappers, without_rewards, wrapped
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment

CLIP = {"name": "ClipReward", "min_reward": 0.0, "max_reward": 0.5}


def test_wrappers_are_applied_from_the_innermost_outward():
    wrappers = read_wrappers(["TimeAwareObservation", CLIP])
    environment = wrapped(gymnasium.make("CartPole-v1"), wrappers)
    assert type(environment) is gymnasium.wrappers.ClipReward
    assert type(environment.env) is gymnasium.wrappers.TimeAwareObservation
    environment.close()


def test_names_come_in_a_list_or_with_commas_and_a_class_of_any_module_is_a_name():
    expected = ["TimeAwareObservation", "FlattenObservation"]
    for setting in ("TimeAwareObservation, FlattenObservation", expected, ("TimeAwareObservation,FlattenObservation",)):
        assert [wrapper.name for wrapper in read_wrappers(setting)] == expected
    (found,) = read_wrappers("gymnasium.wrappers:FlattenObservation")
    assert found.kind is gymnasium.wrappers.FlattenObservation
    assert read_wrappers("") == read_wrappers(()) == ()


def test_a_batch_is_made_of_wrapped_environments():
    options = {"env_wrappers": ["TimeAwareObservation", CLIP]}
    assert environments.spec("CartPole-v1", options).observation.shape == (5,)
    batch = environments.make("CartPole-v1", 2, [1, 2], options)
    batch.reset()
    assert batch.step(np.zeros(2, np.int32)).reward.tolist() == [0.5, 0.5]
    batch.close()


def test_a_factory_of_gymnasium_environments_is_wrapped_too():
    options = {"env_wrappers": "FlattenObservation"}
    assert environments.spec("gymnasium.envs.toy_text.taxi:TaxiEnv", options).observation.shape == (500,)


def test_wrappers_that_change_rewards_are_recognized():
    kept = [{"name": "TimeLimit", "max_episode_steps": 5}, "FlattenObservation"]
    assert without_rewards([CLIP, "NormalizeReward", *kept]) == kept


class Bonus(gymnasium.RewardWrapper):
    def __init__(self, env, bonus=1.0):
        super().__init__(env)
        self.bonus = bonus

    def reward(self, reward):
        return reward + self.bonus


BONUS = f"{__name__}:Bonus"


@pytest.mark.parametrize(
    "given, settings",
    [
        (Bonus, (BONUS,)),
        (["FlattenObservation", Bonus], ("FlattenObservation", BONUS)),
        ([{"name": Bonus, "bonus": 2.0}], ({"name": BONUS, "bonus": 2.0},)),
        ([functools.partial(Bonus, bonus=2.0)], ({"name": BONUS, "bonus": 2.0},)),
        ("A,B", "A,B"),
    ],
)
def test_classes_stand_for_their_names_and_partials_for_mappings(given, settings):
    assert named_wrappers(given) == settings == Experiment("ppo", env="CartPole-v1", env_wrappers=given).env_wrappers
    assert given == "A,B" or read_wrappers(given)[-1].kind is Bonus


@pytest.mark.parametrize(
    "given, message",
    [
        (lambda env: env, "has no name by which a run can import it: define a class at the top of a module"),
        (functools.partial(Bonus, None, 2.0), "a partial must give its arguments by name, and none called 'name'"),
        (functools.partial(Bonus, name="b"), "a partial must give its arguments by name, and none called 'name'"),
    ],
)
def test_classes_that_no_setting_can_name_are_refused(given, message):
    for setting in (given, [given]):
        with pytest.raises(CallboardError, match=message):
            Experiment("ppo", env="CartPole-v1", env_wrappers=setting)


class NeedsName(gymnasium.Wrapper):
    def __init__(self, env, name):
        super().__init__(env)


def test_a_wrapper_whose_argument_no_setting_can_give_is_refused():
    with pytest.raises(CallboardError, match="NeedsName' needs the argument 'name', which in env_wrappers is the name"):
        read_wrappers(f"{__name__}:NeedsName")


@pytest.mark.parametrize(
    "setting, message",
    [
        ("FlatenObservation", "unknown wrapper 'FlatenObservation'; did you mean 'FlattenObservation'?"),
        (
            "TimeLimit",
            "env_wrappers: 'TimeLimit': missing a required argument: 'max_episode_steps'; write "
            "[{name: TimeLimit, argument: value}] to give arguments",
        ),
        (
            [{"name": "TimeLimit", "steps": 5}],
            "env_wrappers: 'TimeLimit': missing a required argument: 'max_episode_steps'; write "
            "[{name: TimeLimit, argument: value}] to give arguments",
        ),
        (
            [{"name": "FlattenObservation", "steps": 5}],
            "env_wrappers: 'FlattenObservation': got an unexpected keyword argument 'steps'; write "
            "[{name: FlattenObservation, argument: value}] to give arguments",
        ),
        (
            "scripted_environments:Script",
            "env_wrappers: 'scripted_environments:Script' is not a subclass of gymnasium.Wrapper",
        ),
        (
            [3],
            "env_wrappers must be names of gymnasium.wrappers or package.module:Class, or a list of these and of "
            "mappings {name: NAME, argument: value}, not 3",
        ),
        ("os:system", "wrapper 'os:system' is refused: 'os' is part of Python's standard library"),
    ],
)
def test_a_wrong_wrapper_is_refused_without_making_the_environment(setting, message):
    with pytest.raises(CallboardError) as caught:
        environments.check("CartPole-v1", {"env_wrappers": setting})
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_a_wrapper_that_does_not_fit_the_environment_is_refused():
    message = "^env_wrappers: 'RescaleAction' cannot wrap the environment: .+$"
    setting = [{"name": "RescaleAction", "min_action": -1, "max_action": 1}]
    with pytest.raises(CallboardError, match=message):
        environments.spec("CartPole-v1", {"env_wrappers": setting})


def test_the_vector_form_is_not_wrapped():
    options = {"vectorized": True, "env_wrappers": "FlattenObservation"}
    message = "is not made of single Gymnasium environments: leave 'vectorized' or env_wrappers out$"
    with pytest.raises(CallboardError, match=message):
        environments.make("CartPole-v1", 2, [1, 2], options)
