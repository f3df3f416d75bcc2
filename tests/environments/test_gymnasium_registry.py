"""Environments by Gymnasium id: single or vector form, options, and messages about mistakes."""

import gymnasium
import numpy as np
import pytest
from refused_names import assert_refused
from registered_environments import LIMIT

from callboard import environments
from callboard.environments.batches.checked_observations import CheckedObservations
from callboard.environments.gymnasium_registry import is_only_refused
from callboard.errors import CallboardError


def test_auto_takes_the_vector_form_where_it_is_the_same_environment():
    def kind(name, options):
        environment = environments.make(name, 2, [0, 1], options)
        environment.close()
        return type(environment._environment if isinstance(environment, CheckedObservations) else environment)

    assert kind("CartPole-v1", {}) is environments.GymnasiumVectorBatch
    assert kind("CartPole-v1", {"vectorized": False}) is environments.GymnasiumBatch
    assert kind("CartPole-v1", {"vectorized": "auto", "sutton_barto_reward": True}) is environments.GymnasiumVectorBatch
    # An option of the single form only, not of the vector form.
    assert kind("CartPole-v1", {"disable_env_checker": True}) is environments.GymnasiumBatch
    assert kind("Pendulum-v1", {}) is environments.GymnasiumBatch


def test_auto_leaves_a_vector_form_that_shows_something_else():
    gymnasium.register(
        "CallboardTest/Other-v0",
        entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv",
        vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
    )
    try:
        environment = environments.make("CallboardTest/Other-v0", 2, [0, 1])
        assert environment.reset().observation.shape == (2, 3)
    finally:
        gymnasium.registry.pop("CallboardTest/Other-v0")


def test_mujoco_writes_nothing_where_the_user_stands(tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    environments.make("HalfCheetah-v5", 1, [0]).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("CartPol-v1", {}, "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        ("cartpole-v1", {}, "unknown environment 'cartpole-v1'; did you mean 'CartPole-v1'?"),
        ("CartPole-v9", {}, "unknown environment 'CartPole-v9'; did you mean 'CartPole-v1'?"),
        ("gymnasium:Pendulum", {}, "unknown environment 'Pendulum'; did you mean 'Pendulum-v1'?"),
        ("qqqq", {}, "unknown environment 'qqqq'; give a Gymnasium id or 'package.module:factory'"),
        (
            "no_such_module:Id-v0",
            {},
            "environment 'no_such_module:Id-v0' cannot be imported: No module named 'no_such_module'",
        ),
        ("procgen-coinrun-v0", {}, "unknown environment 'procgen-coinrun-v0'; did you mean 'procgen:coinrun'?"),
        (
            "BreakotDeterministic-v4",
            {},
            "unknown environment 'BreakotDeterministic-v4'; did you mean 'ALE/Breakout-v5'?",
        ),
        ("Reacher-v2", {}, "environment 'Reacher-v2' is not in Gymnasium any more; did you mean 'Reacher-v5'?"),
        (
            "NewUser/Grid-v0",
            {},
            "unknown environment 'NewUser/Grid-v0'; if a module of yours registers it, write "
            "'your_module:NewUser/Grid-v0'",
        ),
        (
            "CartPole-v1",
            {"max_episode_steps": "ten"},
            "environment 'CartPole-v1': 'max_episode_steps' is 'ten', it must be a whole number of 1 or more, or -1 "
            "for no limit",
        ),
        ("CartPole-v1", {"render_mode": 3}, "environment 'CartPole-v1': 'render_mode' is 3, it must be text"),
        (
            "CartPole-v1",
            {"gravity": 3},
            "environment 'CartPole-v1' has no option 'gravity'; "
            "its options are max_episode_steps, render_mode, sutton_barto_reward, vectorized",
        ),
        (
            "CartPole-v1",
            {"vectorized": "yes"},
            "environment 'CartPole-v1': 'vectorized' is 'yes', it must be true, false or 'auto'",
        ),
        (
            "Pendulum-v1",
            {"vectorized": True},
            "environment 'Pendulum-v1' has no vector form of its own: leave 'vectorized' out",
        ),
    ],
)
def test_mistakes_are_refused_in_one_line(name, options, message):
    assert_refused(name, options, message)


def test_an_unknown_option_of_the_vector_form_is_refused_in_one_line():
    with pytest.raises(CallboardError) as caught:
        environments.make("CartPole-v1", 2, [0, 1], {"gravity": 3, "vectorized": True})
    assert str(caught.value) == (
        "environment 'CartPole-v1' has no option 'gravity'; "
        "its options are max_episode_steps, render_mode, sutton_barto_reward, vectorized"
    )


@pytest.mark.parametrize(
    "name, options",
    [
        ("FrozenLake-v1", {"map_name": "9x9"}),
        ("FrozenLake-v1", {"desc": 3}),
        ("InvertedPendulum-v5", {"xml_file": __file__}),
        ("InvertedPendulum-v5", {"xml_file": "/no/such/file.xml"}),
        ("InvertedPendulum-v5", {"frame_skip": "two"}),
    ],
)
def test_values_of_options_that_gymnasium_refuses_are_one_line(name, options):
    with pytest.raises(CallboardError) as caught:
        environments.make(name, 2, [0, 1], options)
    assert "\n" not in str(caught.value) and name in str(caught.value)


def test_ids_that_only_raise_an_error_are_known():
    assert is_only_refused(gymnasium.spec("Reacher-v2")) and not is_only_refused(gymnasium.spec("Reacher-v5"))


def test_a_module_that_registers_an_id_is_imported_first(tmp_path, monkeypatch):
    (tmp_path / "registers_an_id.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('CallboardTest/Registered-v0', 'gymnasium.envs.classic_control.pendulum:PendulumEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert environments.spec("registers_an_id:CallboardTest/Registered-v0").observation.shape == (3,)
    finally:
        gymnasium.registry.pop("CallboardTest/Registered-v0")


def length(name, options):
    """Returns the steps of the first episode, at most 6."""
    environment = environments.make(name, 2, [0, 1], options)
    try:
        environment.reset()
        actions = np.zeros(2, np.int32)
        return next((step for step in range(1, 7) if environment.step(actions).last.all()), 6)
    finally:
        environment.close()


@pytest.mark.parametrize("python", [{}, pytest.param({"env_python": "same"}, marks=pytest.mark.slow)])
@pytest.mark.parametrize("vectorized", ["auto", True, False])
def test_a_limit_of_minus_one_is_none_and_of_none_that_of_the_id_in_all_forms(vectorized, python):
    options = {"vectorized": vectorized, **python}
    assert length("CartPole-v1", {**options, "max_episode_steps": -1}) == 6
    assert length("CartPole-v1", {**options, "max_episode_steps": 2}) == 2
    assert length("CartPole-v1", {**options, "max_episode_steps": None}) == 6


@pytest.mark.parametrize("python", [{}, pytest.param({"env_python": "same"}, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["WithoutLimit", "AnyOptions"])
def test_auto_leaves_a_vector_form_that_does_not_name_the_limit(form, python):
    name = f"registered_environments:CallboardTest/{form}-v0"
    assert length(name, python) == LIMIT
    assert length(name, {**python, "max_episode_steps": 2}) == 2
    assert length(name, {**python, "max_episode_steps": -1}) == 6
    assert length(name, {**python, "max_episode_steps": -1, "vectorized": True}) == 6


@pytest.mark.parametrize("python", [{}, pytest.param({"env_python": "same"}, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "form, options, message",
    [
        ("WithoutLimit", {}, "takes no 'max_episode_steps', which is 3 for its single form: leave 'vectorized' out"),
        ("WithoutOption", {}, "takes no 'scale', which is 2.0 for its single form: leave 'vectorized' out"),
        ("WithoutOption", {"scael": 1}, "'scael'; its options are"),
    ],
)
def test_a_vector_form_that_cannot_have_what_the_id_has_is_refused_in_one_line(form, options, message, python):
    name = f"registered_environments:CallboardTest/{form}-v0"
    with pytest.raises(CallboardError, match=message):
        environments.make(name, 2, [0, 1], {**options, **python, "vectorized": True})
    if not options:
        environments.make(name, 2, [0, 1], {**python, "vectorized": "auto"}).close()
