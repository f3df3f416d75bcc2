"""Environments of a user's own function: what it is given, what it may return, and messages about mistakes."""

import functools
import re
import sys

import gymnasium
import numpy as np
import pytest
from dm_env import specs
from odd_environments import error_of
from scripted_environments import DmScript, Seeded

from callboard import environments
from callboard.environments import python_factory
from callboard.environments.adapters.gymnasium_wrappers import NamedWrapper, wrapped
from callboard.environments.python_factory import check_factory, factory_name, make_factory, named_factory
from callboard.errors import CallboardError

CALLS: list = []


def single(seed, seeds, batch_size, scale=1.0):
    CALLS.append((seed, seeds, batch_size, scale))
    return Seeded(seed, scale)


class Closed(Seeded):
    def close(self):
        CALLS.append("closed")


def fails_in_the_third_call(seed):
    if seed == 2:
        raise CallboardError("there is no third one")
    return Closed(seed)


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


@pytest.fixture
def own_module(monkeypatch):
    """The name under which the factories of this module are found."""
    monkeypatch.setitem(sys.modules, "own_factories", sys.modules[__name__])
    return "own_factories"


def test_a_factory_of_single_environments_is_called_for_each_with_its_seed(own_module):
    batch = make_factory(f"{own_module}:single", 2, [5, 6], {"scale": 3.0})
    assert isinstance(batch, environments.DmEnvBatch) and batch.batch_size == 2
    assert CALLS == [(5, [5, 6], 2, 3.0), (6, [5, 6], 2, 3.0)]


@pytest.mark.parametrize(
    "factory, kind",
    [
        ("DmScript", environments.DmEnvBatch),
        ("GymScript", environments.GymnasiumBatch),
        ("vector_next_step", environments.GymnasiumVectorBatch),
        ("vector_of_num_envs", environments.GymnasiumVectorBatch),
        ("batched_itself", environments.DmEnvBatch),
    ],
)
def test_every_interface_has_its_adapter(factory, kind):
    batch = make_factory(f"scripted_environments:{factory}", 2, [0, 1], {})
    assert type(batch) is kind and batch.batch_size == 2


def placed(index, actor, env_config, scale=1.0):
    CALLS.append((index, actor, env_config, scale))
    return Seeded(0, scale)


def test_a_factory_may_take_its_slot_its_actor_and_other_options(own_module):
    name = f"{own_module}:placed"
    environments.make(name, 2, [5, 6], {"scale": 3.0, "map": "big"}, slots=(8, 9), actor=4)
    assert CALLS == [(8, 4, {"map": "big"}, 3.0), (9, 4, {"map": "big"}, 3.0)]
    CALLS.clear()
    make_factory(name, 1, [5], {})
    assert CALLS == [(0, None, {}, 1.0)]
    # Options of these names are the user's.
    CALLS.clear()
    make_factory(name, 1, [5], {"index": 7, "env_config": {"a": 1}})
    assert CALLS == [(7, None, {"a": 1}, 1.0)]
    with pytest.raises(CallboardError, match="has no option 'scael'; did you mean 'scale'?"):
        check_factory(name, {"env_config": {}, "scael": 3})


class Nested:
    @classmethod
    def made(cls, scale=1.0):
        return Seeded(0, scale)


def test_classes_and_functions_become_names(own_module, monkeypatch):
    for known in (Nested, Nested.made.__func__, single):
        monkeypatch.setattr(known, "__module__", own_module)
    assert named_factory(single) == (f"{own_module}:single", {})
    assert named_factory(functools.partial(functools.partial(single, scale=1), scale=2, seed=3)) == (
        f"{own_module}:single",
        {"scale": 2, "seed": 3},
    )
    name, _ = named_factory(Nested.made)
    assert name == f"{own_module}:Nested.made"
    assert isinstance(environments.make(name, 1, [0], {"scale": 2.0}), environments.DmEnvBatch)
    assert named_factory("CartPole-v1") == ("CartPole-v1", {})


class Grows(Seeded):
    """Changes the list that is its option."""

    def __init__(self, seed, sizes):
        super().__init__(seed, scale=float(len(sizes)))
        sizes.append(0)


class GrowsSingle(gymnasium.Wrapper):
    def __init__(self, env, marks):
        super().__init__(env)
        marks.append(len(marks))
        self.marks = marks


def test_environments_and_wrappers_may_change_the_lists_in_their_options():
    options = {"sizes": [1, {"far": [2]}]}
    environments.make(Grows, 3, [0, 1, 2], options).close()
    assert options == {"sizes": [1, {"far": [2]}]}
    wrapper = NamedWrapper("own", GrowsSingle, {"marks": [5]})
    for _ in range(2):
        environment = wrapped(gymnasium.make("CartPole-v1"), [wrapper])
        assert environment.marks == [5, 1] and wrapper.arguments == {"marks": [5]}
        environment.close()


def test_what_cannot_be_imported_stands_for_itself():
    def local():
        return Seeded(0)

    class Callable:
        def __call__(self):
            return Seeded(0)

    for factory in (local, lambda: Seeded(0), Callable()):
        assert named_factory(factory) == (factory, {})
        assert factory_name(factory).startswith(f"{__name__}:")
        assert isinstance(environments.make(factory, 1, [0]), environments.DmEnvBatch)


@pytest.mark.parametrize(
    "environment, message",
    [
        (Seeded(0), "env is a Seeded that is already made: give its name, its class or a function that makes it"),
        (
            functools.partial(Seeded, 3),
            "positional arguments (3,): give them by keyword, since they become",
        ),
        (5, "env must be a name, a class or a function that makes environments, not an int"),
    ],
)
def test_other_objects_are_refused_in_one_line(environment, message):
    with pytest.raises(CallboardError, match=re.escape(message)):
        named_factory(environment)


def test_environments_are_closed_if_a_later_one_cannot_be_made(own_module):
    with pytest.raises(CallboardError, match="there is no third one"):
        make_factory(f"{own_module}:fails_in_the_third_call", 3, [0, 1, 2], {})
    assert CALLS == ["closed", "closed"]


def test_a_check_does_not_call_the_factory(own_module):
    assert check_factory(f"{own_module}:single", {"scale": 2.0}) is single
    assert CALLS == []


@pytest.mark.parametrize(
    "name, options, message",
    [
        (
            "no.such.module:make",
            {},
            "environment 'no.such.module:make' cannot be imported: No module named 'no'",
        ),
        (
            "scripted_environments:Nothing",
            {},
            "unknown environment 'scripted_environments:Nothing'; module 'scripted_environments' has no 'Nothing', "
            "define it in scripted_environments, or name another object",
        ),
        (
            "scripted_environments:TIME_LIMIT",
            {},
            "environment 'scripted_environments:TIME_LIMIT' is not a function but of type int",
        ),
        (
            "scripted_environments:Seeded",
            {"size": 3},
            "environment 'scripted_environments:Seeded' has no option 'size'; its options are scale",
        ),
        (
            "scripted_environments:Seeded",
            {"seed": 3},
            "environment 'scripted_environments:Seeded': option 'seed' is given by Callboard, leave it out",
        ),
    ],
)
def test_mistakes_that_a_check_finds_are_refused_in_one_line(name, options, message):
    for call in (environments.check, lambda name, options: environments.make(name, 2, [0, 1], options)):
        with pytest.raises(CallboardError) as caught:
            call(name, options)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    "name, message",
    [
        (
            "scripted_environments:with_required",
            "environment 'scripted_environments:with_required' needs the option 'width'",
        ),
        (
            "scripted_environments:not_an_environment",
            "environment 'scripted_environments:not_an_environment' is of type int: the factory must give a "
            "gymnasium.Env, a dm_env.Environment, a gymnasium.vector.VectorEnv, a callboard BatchedEnvironment, "
            "which can wrap batches with an interface of their own (EnvPool, SuperSuit, Stable-Baselines3), or, with "
            "several agents, a PettingZoo ParallelEnv or a callboard MultiAgentEnvironment",
        ),
        # A function without a signature.
        (
            "scripted_environments:without_signature",
            "environment 'scripted_environments:without_signature' cannot be made: array() missing required argument "
            "'object' (pos 0)",
        ),
        (
            "scripted_environments:needs_missing_package",
            "environment 'scripted_environments:needs_missing_package' cannot be made: "
            "No module named 'no_such_package_at_all'",
        ),
        (
            "scripted_environments:vector_of_four",
            "environment 'scripted_environments:vector_of_four' is a batch of 4, not of 2: "
            "let the factory take 'batch_size'",
        ),
        (
            "scripted_environments:always_the_same",
            "environment 'scripted_environments:always_the_same': the factory gives the same object twice, "
            "make it anew",
        ),
        (
            "scripted_environments:vector_disabled",
            "SyncVectorEnv begins no episode by itself (AutoresetMode.DISABLED): make it with "
            "autoreset_mode=AutoresetMode.NEXT_STEP",
        ),
    ],
)
def test_mistakes_in_what_the_factory_returns_are_refused_in_one_line(name, message):
    with pytest.raises(CallboardError) as caught:
        environments.make(name, 2, [0, 1])
    assert str(caught.value) == message


def test_a_batch_behind_the_interface_of_a_single_environment_is_refused():
    assert error_of("OpenBatch") == (
        "environment 'odd_environments:OpenBatch' is of type OpenBatch: the factory must give a gymnasium.Env, a "
        "dm_env.Environment, a gymnasium.vector.VectorEnv, a callboard BatchedEnvironment, which can wrap batches with "
        "an interface of their own (EnvPool, SuperSuit, Stable-Baselines3), or, with several agents, a PettingZoo "
        "ParallelEnv or a callboard MultiAgentEnvironment"
    )


def test_errors_of_the_environment_itself_are_not_dressed_up(tmp_path, monkeypatch):
    (tmp_path / "breaks_at_import.py").write_text("import a_package_that_is_missing\n")
    (tmp_path / "breaks_when_made.py").write_text("def factory(size=1):\n    return size + 'x'\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        CallboardError, match="'breaks_at_import:factory' cannot be imported: No module named 'a_package_that_is"
    ):
        environments.make("breaks_at_import:factory", 1, [0])
    with pytest.raises(TypeError, match="unsupported operand"):
        environments.make("breaks_when_made:factory", 1, [0], {"size": 2})


def test_env_config_says_where_the_environment_is():
    seen = []

    def factory(env_config):
        seen.append((dict(env_config), env_config.worker_index, env_config.vector_index))
        return gymnasium.make("CartPole-v1", **env_config)

    environments.make(factory, 2, [1, 2], {"sutton_barto_reward": True}, slots=[6, 7], actor=3).close()
    environments.make(factory, 1, [1]).close()
    assert seen == [({"sutton_barto_reward": True}, 4, 0), ({"sutton_barto_reward": True}, 4, 1), ({}, 0, 0)]


def test_a_name_of_the_users_own_stands_for_a_factory(monkeypatch):
    monkeypatch.setattr(python_factory, "_registered", {})
    environments.register_environment("pole", functools.partial(gymnasium.make, "CartPole-v1"))
    with pytest.raises(CallboardError, match="positional"):
        environments.spec("pole")
    environments.register_environment(
        "pole", lambda max_steps=5: gymnasium.make("CartPole-v1", max_episode_steps=max_steps)
    )
    assert environments.spec("pole").action.num_values == 2
    for name in ("CartPole-v1", "my:Env", "", 3):
        with pytest.raises(CallboardError, match="cannot be registered"):
            environments.register_environment(name, list)
    with pytest.raises(CallboardError, match="environment 'maze' is not a class or function but of type int"):
        environments.register_environment("maze", 3)


class Choices(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, count):
        self.action_space = gymnasium.spaces.Discrete(count)


class DmChoices(DmScript):
    closed = False

    def __init__(self, count):
        self.count = count

    def observation_spec(self):
        return specs.Array((2,), np.float32)

    def action_spec(self):
        return specs.DiscreteArray(self.count)


@pytest.mark.parametrize("kind", [Choices, DmChoices])
def test_environments_of_a_batch_have_the_same_spaces(kind):
    with pytest.raises(CallboardError, match="^environments 0 and 1 of .* with 3 discrete actions, and .* with 4 disc"):
        environments.make(lambda index: kind(3 + index % 2), 2, [1, 2])
