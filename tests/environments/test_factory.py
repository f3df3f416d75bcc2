"""Environments by name: the environments made from names, their seeds and options, and mistakes in names."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from dm_env import specs
from odd_environments import error_of
from refused_names import assert_refused

from callboard import environments
from callboard.errors import CallboardError
from callboard.messages.install_commands import install_command

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


def test_spec_of_an_environment():
    observation, action, _ = environments.spec("CartPole-v1")
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


@pytest.mark.slow("daily")
def test_importing_environments_does_not_import_tensorflow():
    code = "import sys, callboard.environments; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_environment_is_a_name_a_class_or_a_function():
    def make_short(size=3):
        return gymnasium.make("CartPole-v1", max_episode_steps=size)

    batch = environments.make(make_short, 2, [0, 1], {"size": 5})
    assert batch.spec == environments.spec("CartPole-v1")
    environments.check(make_short, {"size": 5})
    with pytest.raises(CallboardError, match="make_short' has no option 'siz'; did you mean 'size'?"):
        environments.check(make_short, {"siz": 5})
    with pytest.raises(CallboardError, match="env must be a name, a class or a function .*, not an int"):
        environments.make(5, 1, [0])
    with pytest.raises(CallboardError, match=r"env '\[\{name: A' is not a list of environments: write"):
        environments.check("[{name: A")


def test_a_function_without_a_name_cannot_be_found_again_by_it():
    with pytest.raises(CallboardError, match="'__main__:<lambda>' cannot be imported: .*; continue its run from the"):
        environments.check("__main__:<lambda>")


def test_an_id_without_a_version_is_found_after_its_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "registers_bare.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Bare', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
        "class Within:\n"
        "    @staticmethod\n"
        "    def make():\n"
        "        return gymnasium.make('CartPole-v1')\n"
    )
    assert environments.spec("registers_bare:Bare").observation.shape == (4,)
    assert environments.spec("registers_bare:Within.make").observation.shape == (4,)
    with pytest.raises(CallboardError, match="module 'registers_bare' has no 'Bar'"):
        environments.check("registers_bare:Bar")


@pytest.mark.slow
def test_the_old_ids_of_procgen_are_its_games():
    assert environments.spec("procgen:procgen-coinrun-v0") == environments.spec("procgen:coinrun")


def test_raw_frames_of_an_old_id_are_gymnasiums():
    assert environments.spec("gymnasium:PongNoFrameskip-v4").observation.shape == (210, 160, 3)


def test_a_missing_box2d_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    install = install_command("callboard[box2d]")
    assert_refused("LunarLander-v3", {}, f"environment 'LunarLander-v3' needs the package 'Box2D': {install}")


@pytest.mark.parametrize(
    "name, module, package, extra",
    [
        ("dm_control:walker-walk", "dm_control", "dm-control", "dm-control"),
        ("bsuite:catch/0", "bsuite", "bsuite", "bsuite"),
        ("envpool:Pong-v5", "envpool", "envpool", "envpool"),
        ("MiniGrid-DoorKey-5x5-v0", "minigrid", "minigrid", "minigrid"),
    ],
)
def test_a_missing_library_is_named_with_the_extra(monkeypatch, name, module, package, extra):
    monkeypatch.setitem(sys.modules, module, None)
    pattern = rf"^environment '{name}' needs the package '{package}' \(.*\): .*pip install 'callboard\[{extra}\]'$"
    for refuse in (environments.check, environments.spec):
        with pytest.raises(CallboardError, match=pattern):
            refuse(name)


def test_evaluation_has_no_wrappers_that_change_rewards():
    clip = {"name": "ClipReward", "min_reward": 0, "max_reward": 0.5}
    options = {"env_wrappers": [clip, "FlattenObservation, NormalizeReward"]}
    assert environments.for_evaluation("CartPole-v1", options) == (
        "CartPole-v1",
        {"env_wrappers": ["FlattenObservation"]},
    )
    (entry,), _ = environments.for_evaluation(["CartPole-v1"], options)
    assert entry.options == {"env_wrappers": ["FlattenObservation"]}


@pytest.mark.parametrize("name", ["ALE/Pong-v5", "MinAtar/Breakout-v1", "procgen:coinrun"])
@pytest.mark.parametrize("options", [{"env_wrappers": "FlattenObservation"}, {"env_processes": True}])
def test_batches_of_their_own_are_neither_wrapped_nor_in_processes(name, options):
    (setting,) = options
    assert_refused(
        name, options, f"environment {name!r} is not made of single Gymnasium environments: leave {setting} out"
    )


SHOWS_NOTHING = {
    "Shapeless": "environment 'odd_environments:Shapeless' has an observation of shape (0,), with nothing in it: "
    "give it at least one element",
    "PartShapeless": "environment 'odd_environments:PartShapeless' has an observation of shape (0,) at 'hand', with "
    "nothing in it: leave that part out",
    "EmptyDict": "environment 'odd_environments:EmptyDict' shows nothing: its observation space is empty, give it a "
    "part",
}


@pytest.mark.parametrize("odd", SHOWS_NOTHING)
def test_an_environment_that_shows_nothing_is_refused(odd):
    assert error_of(odd) == SHOWS_NOTHING[odd]
