"""MinAtar: the same games as in the package itself, as timesteps."""

import sys

import numpy as np
import pytest
from dm_env import specs

from callboard import environments

CHANNELS = {"Asterix": 4, "Breakout": 4, "Freeway": 7, "Seaquest": 10, "SpaceInvaders": 6}


@pytest.fixture
def original(monkeypatch):
    """MinAtar's own `Environment`, without the packages that it would draw with."""
    for package in ("seaborn", "matplotlib"):
        monkeypatch.setitem(sys.modules, package, None)
    from minatar import Environment

    return Environment


@pytest.mark.parametrize("game", CHANNELS)
def test_spec(game):
    observation, action, _ = environments.spec(f"MinAtar/{game}-v1")
    assert observation == specs.BoundedArray((10, 10, CHANNELS[game]), np.bool_, False, True)
    assert action.num_values == {"Breakout": 3, "Freeway": 3, "SpaceInvaders": 4, "Asterix": 5, "Seaquest": 6}[game]
    assert environments.spec(f"MinAtar/{game}-v0").action == specs.DiscreteArray(6, dtype=np.int32)


@pytest.mark.parametrize("game", ["asterix", "breakout", "seaquest", "space_invaders"])
@pytest.mark.parametrize("sticky", [0.1, 0.6])
def test_timesteps_are_those_of_minatar_with_the_same_seeds(original, game, sticky):
    seeds = [3, 12]
    singles = [original(game, sticky_action_prob=sticky) for _ in seeds]
    for single, seed in zip(singles, seeds, strict=True):
        single.seed(seed)
        single.reset()
    name = f"MinAtar/{game.title().replace('_', '')}-v1"
    environment = environments.make(name, 2, seeds, {"sticky_action_prob": sticky})
    minimal = singles[0].minimal_action_set()
    rng = np.random.default_rng(0)
    timesteps, expected = [environment.reset()], [[(single.state(), 0, 1, True, False)] for single in singles]
    for _ in range(500):
        actions = rng.integers(0, len(minimal), 2).astype(np.int32)
        timesteps.append(environment.step(actions))
        for rows, single, action in zip(expected, singles, actions, strict=True):
            if rows[-1][4]:
                single.reset()
                rows.append((single.state(), 0, 1, True, False))
            else:
                reward, over = single.act(minimal[action])
                rows.append((single.state(), reward, not over, False, over))
    for slot, rows in enumerate(expected):
        assert sum(row[4] for row in rows) > 1
        for timestep, row in zip(timesteps, rows, strict=True):
            assert (timestep.observation[slot] == row[0]).all()
            assert (timestep.reward[slot], timestep.discount[slot], timestep.first[slot], timestep.last[slot]) == row[
                1:
            ]
    assert sum(row[1] for rows in expected for row in rows) > 0 or game == "seaquest"


def test_timesteps_have_the_dtypes_and_shapes_of_the_interface():
    environment = environments.make("MinAtar/Breakout-v1", 5, range(5))
    for timestep in (environment.reset(), environment.step(np.zeros(5, np.int64))):
        described = [(array.dtype.name, array.shape) for array in timestep]
        assert described == [
            ("bool", (5, 10, 10, 4)),
            ("float32", (5,)),
            ("float32", (5,)),
            ("bool", (5,)),
            ("bool", (5,)),
        ]
    with pytest.raises(ValueError, match="expected 0 to 2"):
        environment.step(np.full(5, -1))


@pytest.mark.slow("daily")
@pytest.mark.parametrize("sticky", [0.0, 0.3])
def test_an_action_sticks_as_often_as_is_set(sticky):
    environment = environments.make("MinAtar/Breakout-v1", 4, range(4), {"sticky_action_prob": sticky})
    # The actions move the paddle right and left alternately; its column `[T, B]` shows its movement.
    timesteps = [environment.reset()] + [environment.step(np.full(4, 2 - time % 2)) for time in range(4000)]
    columns = np.stack([timestep.observation[:, 9, :, 0].argmax(-1) for timestep in timesteps])
    moves = np.diff(columns, axis=0)
    turns = np.where(np.arange(len(moves)) % 2, -1, 1)[:, None]
    counted = (moves != 0) & ~np.stack([timestep.first for timestep in timesteps[1:]])
    # An action is wrong if it repeats one that was right: w = s (1 - w).
    wrong = (moves == -turns)[counted].mean()
    assert wrong == 0 if sticky == 0 else abs(wrong - sticky / (1 + sticky)) < 0.02


def test_a_lost_ball_terminates_and_the_next_timestep_is_first():
    environment = environments.make("MinAtar/Breakout-v1", 1, [0], {"sticky_action_prob": 0.0})
    timesteps = [environment.reset()] + [environment.step(np.array([0])) for _ in range(40)]
    over = [index for index, timestep in enumerate(timesteps[:-1]) if timestep.last[0]]
    assert len(over) > 1
    for index in over:
        assert (
            timesteps[index].discount[0] == 0 and timesteps[index + 1].first[0] and timesteps[index + 1].reward[0] == 0
        )


def test_time_limits_are_truncations():
    # Freeway ends only by its clock.
    environment = environments.make("MinAtar/Freeway-v1", 1, [0])
    timesteps = [environment.reset()] + [environment.step(np.array([1])) for _ in range(2502)]
    assert [index for index, timestep in enumerate(timesteps) if timestep.last[0]] == [2501] and timesteps[2502].first[
        0
    ]
    assert all(timestep.discount[0] == 1 for timestep in timesteps)
    environment = environments.make("MinAtar/Seaquest-v1", 2, [0, 1], {"max_episode_steps": 3})
    timesteps = [environment.reset()] + [environment.step(np.array([0, 0])) for _ in range(7)]
    assert [bool(timestep.last[1]) for timestep in timesteps] == [False, False, False, True] * 2
    assert all((timestep.discount == 1).all() for timestep in timesteps)


def test_a_trajectory_follows_its_own_seed():
    def trajectory(seeds):
        environment = environments.make("MinAtar/Asterix-v1", len(seeds), seeds)
        rng = np.random.default_rng(0)
        timesteps = [environment.reset()] + [environment.step(np.full(len(seeds), rng.integers(5))) for _ in range(200)]
        return np.stack([timestep.observation for timestep in timesteps])

    once = trajectory([4, 5])
    np.testing.assert_array_equal(once, trajectory([4, 5]))
    np.testing.assert_array_equal(once[:, 1:], trajectory([5]))
    assert (once[:, 0] != once[:, 1]).any()


def test_render():
    environment = environments.make("MinAtar/Seaquest-v1", 2, [0, 1])
    timestep = environment.reset()
    picture = environment.render()
    assert picture.shape == (320, 320, 3) and picture.dtype == np.uint8
    np.testing.assert_array_equal(picture[::32, ::32].any(-1), timestep.observation[0].any(-1))
    environment.close()
