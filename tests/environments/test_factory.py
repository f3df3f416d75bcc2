"""Environments by name: names, the environments made from them, and messages about mistakes."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from dm_env import specs

from callboard import environments
from callboard.errors import CallboardError

SEEDS = [11, 5, 70]


def trajectory(name, seeds, options=None, steps=30):
    """The observations `[steps + 1, B, ...]` for a fixed sequence of actions, the same in every environment."""
    environment = environments.make(name, len(seeds), seeds, options)
    rng = np.random.default_rng(0)
    action = environment.spec.action
    timesteps = [environment.reset()]
    for _ in range(steps):
        chosen = action.minimum + rng.random(action.shape) * (action.maximum - action.minimum)
        timesteps.append(
            environment.step(np.tile(np.round(chosen).astype(action.dtype), (len(seeds), *[1] * chosen.ndim)))
        )
    environment.close()
    return np.stack([timestep.observation for timestep in timesteps])


@pytest.mark.parametrize(
    "name, options",
    [
        ("CartPole-v1", {"vectorized": True}),
        ("CartPole-v1", {"vectorized": False}),
        ("Pendulum-v1", {}),
        ("callboard.environments.masked_observations:masked", {}),
        ("scripted_environments:Seeded", {}),
    ],
)
def test_seeds_make_trajectories(name, options):
    once = trajectory(name, SEEDS, options)
    np.testing.assert_array_equal(once, trajectory(name, SEEDS, options))
    other = trajectory(name, [21, 22, 23], options)
    for slot in range(3):
        assert (once[0, slot] != other[0, slot]).any()
        assert (once[0, slot] != once[0, slot - 1]).any()


@pytest.mark.parametrize(
    "name", ["Pendulum-v1", "callboard.environments.masked_observations:masked", "scripted_environments:Seeded"]
)
def test_what_an_environment_does_follows_its_own_seed_alone(name):
    np.testing.assert_array_equal(trajectory(name, SEEDS)[:, 1:2], trajectory(name, SEEDS[1:2]))


def test_a_vector_environment_of_single_ones_seeds_each_of_them():
    single = environments.make("Pendulum-v1", 3, SEEDS)
    vector = environments.GymnasiumVectorBatch(gymnasium.make_vec("Pendulum-v1", 3, "sync"), SEEDS)
    np.testing.assert_array_equal(single.reset().observation, vector.reset().observation)


def test_only_the_first_reset_is_seeded():
    environment = environments.make("Pendulum-v1", 1, [3])
    assert (environment.reset().observation != environment.reset().observation).any()


def test_auto_takes_the_vector_form_where_it_is_the_same_environment():
    def kind(name, options):
        environment = environments.make(name, 2, [0, 1], options)
        environment.close()
        return type(environment)

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


def test_spec_of_an_environment():
    observation, action = environments.spec("CartPole-v1")
    assert isinstance(observation, specs.BoundedArray)
    assert observation.shape == (4,) and observation.dtype == np.float32
    assert action == specs.DiscreteArray(2, dtype=np.int32)
    assert environments.spec("Pendulum-v1").action == specs.BoundedArray((1,), np.float32, -2.0, 2.0)
    assert environments.spec("gymnasium:Acrobot-v1").action.num_values == 3


def test_options_reach_the_environment():
    environment = environments.make("Pendulum-v1", 2, [0, 1], {"max_episode_steps": 2})
    environment.reset()
    environment.step(np.zeros((2, 1)))
    assert environment.step(np.zeros((2, 1))).last.all()
    assert trajectory("scripted_environments:Seeded", [0], {"scale": 100.0}).max() > 1


def test_masked_hides_the_velocities():
    shown = trajectory("callboard.environments.masked_observations:masked", SEEDS)
    whole = trajectory("CartPole-v1", SEEDS, {"vectorized": False})
    np.testing.assert_array_equal(shown, whole[..., [0, 2]])
    options = {"id": "Pendulum-v1", "keep": [2], "max_episode_steps": 7}
    spec = environments.spec("callboard.environments.masked_observations:masked", options)
    assert spec.observation.shape == (1,) and spec.observation.maximum.tolist() == [8]


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("CartPol-v1", {}, "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        ("cartpole-v1", {}, "unknown environment 'cartpole-v1'; did you mean 'CartPole-v1'?"),
        ("CartPole-v9", {}, "unknown environment 'CartPole-v9'; did you mean 'CartPole-v1'?"),
        ("gymnasium:Pendulum", {}, "unknown environment 'Pendulum'; did you mean 'Pendulum-v1'?"),
        ("qqqq", {}, "unknown environment 'qqqq'; give a Gymnasium id or 'package.module:factory'"),
        (
            "no.such.module:make",
            {},
            "environment 'no.such.module:make' cannot be imported: No module named 'no'",
        ),
        (
            "no_such_module:Id-v0",
            {},
            "environment 'no_such_module:Id-v0' cannot be imported: No module named 'no_such_module'",
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
            "CartPole-v1",
            {"gravity": 3},
            "environment 'CartPole-v1' has no option 'gravity'; "
            "its options are max_episode_steps, render_mode, sutton_barto_reward, vectorized",
        ),
        (
            "CartPole-v1",
            {"gravity": 3, "vectorized": True},
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
        (
            "scripted_environments:with_required",
            {},
            "environment 'scripted_environments:with_required' needs the option 'width'",
        ),
        (
            "scripted_environments:not_an_environment",
            {},
            "environment 'scripted_environments:not_an_environment' is of type int: the factory must give a "
            "dm_env.Environment, a gymnasium.Env, a gymnasium.vector.VectorEnv or a callboard BatchedEnvironment, "
            "which can wrap batches with an interface of their own (EnvPool, SuperSuit, Stable-Baselines3)",
        ),
        (
            "scripted_environments:needs_missing_package",
            {},
            "environment 'scripted_environments:needs_missing_package' cannot be made: "
            "No module named 'no_such_package_at_all'",
        ),
        (
            "scripted_environments:vector_of_four",
            {},
            "environment 'scripted_environments:vector_of_four' is a batch of 4, not of 2: "
            "let the factory take 'batch_size'",
        ),
        (
            "scripted_environments:always_the_same",
            {},
            "environment 'scripted_environments:always_the_same': the factory gives the same object twice, "
            "make it anew",
        ),
        (
            "scripted_environments:vector_disabled",
            {},
            "SyncVectorEnv must say how it resets by itself: "
            "metadata['autoreset_mode'] as AutoresetMode.NEXT_STEP or AutoresetMode.SAME_STEP",
        ),
        (
            "callboard.environments.masked_observations:masked",
            {"id": "CartPol-v1"},
            "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?",
        ),
        (
            "callboard.environments.masked_observations:masked",
            {"gravity": 3},
            "environment 'CartPole-v1' has no option 'gravity'; "
            "its options are max_episode_steps, render_mode, sutton_barto_reward, vectorized",
        ),
        (
            "callboard.environments.masked_observations:masked",
            {"keep": [4]},
            "keep=[4] does not fit 'CartPole-v1': choose from 0 to 3",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(name, options, message):
    with pytest.raises(CallboardError) as caught:
        environments.make(name, 2, [0, 1], options)
    assert str(caught.value) == message


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


def test_one_seed_to_each_environment():
    with pytest.raises(ValueError, match="3 environments need as many seeds"):
        environments.make("CartPole-v1", 3, [0, 1])


@pytest.mark.parametrize("vectorized", [True, False])
def test_render_shows_a_picture(vectorized):
    environment = environments.make("CartPole-v1", 2, [0, 1], {"render_mode": "rgb_array", "vectorized": vectorized})
    environment.reset()
    before = environment.render()
    for _ in range(5):
        environment.step(np.ones(2, np.int32))
    after = environment.render()
    assert before.dtype == np.uint8 and before.shape == (400, 600, 3)
    assert (after != before).any()
    environment.close()


def test_render_shows_environment_0_and_does_not_change_later():
    environment = environments.make("scripted_environments:vector_own", 2, [0, 1])
    environment.reset()
    before = environment.render()
    environment.step(np.zeros(2, np.int32))
    after = environment.render()
    assert (before == 0).all() and (after == 1).all()


@pytest.mark.parametrize(
    "name, message",
    [
        ("CartPole-v1", "CartPole-v1 has no picture to show: make it with the option render_mode='rgb_array'"),
        ("scripted_environments:GymScript", "GymScript has no picture to show: it has no render mode 'rgb_array'"),
        ("scripted_environments:DmScript", "DmScript has no picture to show: it has no method 'render'"),
    ],
)
def test_no_picture_is_told(name, message):
    environment = environments.make(name, 1, [0])
    environment.reset()
    with pytest.raises(CallboardError) as caught:
        environment.render()
    assert str(caught.value) == message


def test_seeds_differ_by_run_role_slot_and_incarnation_and_not_by_how_slots_are_shared_out():
    actors = environments.environment_seeds(0, "actor", 0, 500)
    everyone = actors + environments.environment_seeds(0, "evaluator", 0, 500)
    everyone += environments.environment_seeds(1, "actor", 0, 500)
    everyone += environments.environment_seeds(0, "actor", 0, 500, incarnation=1)
    everyone += environments.environment_seeds(0, "actor", 0, 500, incarnation=2)
    assert len(set(everyone)) == 2500
    assert all(0 <= seed < 2**31 for seed in everyone)
    assert environments.environment_seeds(0, "actor", 16, 16) == actors[16:32]


def test_importing_environments_does_not_import_tensorflow():
    code = "import sys, callboard.environments; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_mujoco_writes_nothing_where_the_user_stands(tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    environments.make("HalfCheetah-v5", 1, [0]).close()
    assert list(tmp_path.iterdir()) == []
