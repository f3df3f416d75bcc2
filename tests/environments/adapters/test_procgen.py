"""Procgen: sixteen games through one native batch, which resets in the same step."""

import numpy as np
import pytest
from dm_env import specs
from slow_cases import slow_but

from callboard import environments
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec

GAMES = (
    *("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot"),
    *("heist", "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot"),
)
LIMITS = (("maze", 500), ("leaper", 500), ("climber", 1000), ("coinrun", 1000))
STAND_STILL, RIGHT, RIGHT_AND_UP = 4, 7, 8


def make(game, batch_size=4, seed=0, **options):
    return environments.make(f"procgen:{game}", batch_size, range(seed, seed + batch_size), options)


def run(environment, actions):
    timesteps = [
        environment.reset(),
        *(environment.step(np.full(environment.batch_size, action)) for action in actions),
    ]
    return timesteps


@pytest.mark.slow("daily")
@pytest.mark.parametrize("game", slow_but(GAMES, "coinrun"))
def test_every_game(game):
    environment = make(game, 3, distribution_mode="easy")
    assert environment.spec == EnvironmentSpec(
        specs.BoundedArray((64, 64, 3), np.uint8, 0, 255), specs.DiscreteArray(15, np.int32)
    )
    for timestep in run(environment, range(15)):
        described = [(array.dtype.name, array.shape) for array in timestep]
        assert described == [
            ("uint8", (3, 64, 64, 3)),
            ("float32", (3,)),
            ("float32", (3,)),
            ("bool", (3,)),
            ("bool", (3,)),
        ]
        assert not timestep.last.any()
    environment.close()
    environment.close()


@pytest.mark.slow("daily")
def test_an_episode_that_ends_is_first_with_its_reward_and_discount_0():
    environment = make("coinrun", 8, distribution_mode="easy")
    actions = np.random.default_rng(1).choice([RIGHT, RIGHT_AND_UP, RIGHT_AND_UP, STAND_STILL, 1, 5], 1300)
    timesteps = run(environment, actions)
    assert timesteps[0].first.all() and (timesteps[0].reward == 0).all() and (timesteps[0].discount == 1).all()
    length, ended = np.zeros(8, int), set()
    for timestep in timesteps[1:]:
        length += 1
        # The coin, worth 10, ends an episode; so does a saw or an enemy; and 1000 steps do.
        assert ((timestep.reward == 10) <= timestep.first).all() and (
            (timestep.reward == 0) | (timestep.reward == 10)
        ).all()
        np.testing.assert_array_equal(timestep.discount == 0, timestep.first & (length < 1000))
        ended |= set(timestep.reward[timestep.first & (length < 1000)])
        length[timestep.first] = 0
    assert ended == {0, 10}
    environment.close()


@pytest.mark.slow("daily")
@pytest.mark.parametrize("game, limit", slow_but(LIMITS, ("maze", 500), ("coinrun", 1000)))
def test_time_limits_are_truncations(game, limit):
    # An agent that does not move ends an episode only in this way.
    environment = make(game, 8, num_levels=1, distribution_mode="easy")
    timesteps = run(environment, [STAND_STILL] * (limit + 1))
    first = np.stack([timestep.first for timestep in timesteps])
    cut_off = first[1:limit].sum(0) == 0
    assert cut_off.any()
    assert timesteps[limit].first[cut_off].all() and (timesteps[limit].discount[cut_off] == 1).all()
    assert not timesteps[limit + 1].first[cut_off].any()
    environment.close()


@pytest.mark.slow("daily")
def test_time_limits_are_those_that_the_games_have():
    # A saved state holds the limit: it is the number before the level's seed.
    expected = {"bigfish": 6000, "bossfight": 4000, "plunder": 4000, "leaper": 500, "maze": 500}
    for game in GAMES:
        for mode in ("easy", "memory") if game == "jumper" else ("easy",):
            environment = make(game, 1, distribution_mode=mode)
            environment.reset()
            native = environment._games._environment
            level = native.get_info()[0]["level_seed"]
            limit = 2000 if mode == "memory" else expected.get(game, 1000)
            assert np.array([limit, level], np.int32).tobytes() in native.get_state()[0], game
            assert environment._games._limit == limit
            environment.close()


def test_seeds_make_trajectories():
    def trajectory(seed):
        environment = make("jumper", 4, seed)
        timesteps = run(environment, np.random.default_rng(0).integers(0, 15, 60))
        environment.close()
        return np.stack([timestep.observation for timestep in timesteps])

    once = trajectory(3)
    np.testing.assert_array_equal(once, trajectory(3))
    assert (once[0] != trajectory(4)[0]).any()
    assert (once[0, 0] != once[0, 1]).any()


def test_threads_do_not_change_what_happens():
    actions = np.random.default_rng(0).integers(0, 15, 60)
    alone, threads = (run(make("dodgeball", 4, num_threads=number), actions) for number in (0, 3))
    for one, other in zip(alone, threads, strict=True):
        np.testing.assert_array_equal(one.observation, other.observation)


def begun(environment, episodes=12):
    """The set of the first images of some episodes of every game in the batch."""
    return {picture.tobytes() for _ in range(episodes) for picture in environment.reset().observation}


def test_levels():
    few = begun(make("maze", 4, num_levels=2, start_level=10))
    assert len(few) == 2
    assert few == begun(make("maze", 4, seed=50, num_levels=2, start_level=10))
    assert not few & begun(make("maze", 4, num_levels=2, start_level=20))
    assert len(begun(make("maze", 4))) > 40
    assert len(begun(make("maze", 4, distribution_mode="exploration"))) == 1


def test_a_reset_in_the_middle_gives_the_episodes_up():
    environment = make("coinrun")
    before = run(environment, [RIGHT] * 5)
    kept = [timestep.observation.copy() for timestep in before]
    timestep = environment.reset()
    assert timestep.first.all() and (timestep.reward == 0).all() and (timestep.discount == 1).all()
    assert (timestep.observation != before[-1].observation).any(axis=(1, 2, 3)).all()
    assert not environment.step(np.full(4, STAND_STILL)).first.any()
    assert all((timestep.observation == copy).all() for timestep, copy in zip(before, kept, strict=True))


@pytest.mark.slow("daily")
def test_steps_before_a_reset_do_not_count_for_the_time_limit():
    environment = make("coinrun", 8, distribution_mode="easy")
    for _ in range(11):
        run(environment, [STAND_STILL] * 99)
    timesteps = run(environment, np.tile([RIGHT_AND_UP, RIGHT_AND_UP, RIGHT], 50))
    assert any(timestep.first.any() for timestep in timesteps[1:])
    assert all((timestep.discount[timestep.first] == 0).all() for timestep in timesteps[1:])


def test_a_sequence_of_levels_is_one_episode():
    # Some easy level of CoinRun is solved by a run to the right; then another follows, and nothing has ended.
    environment = make("coinrun", 16, distribution_mode="easy", use_sequential_levels=True)
    timesteps = run(environment, np.tile([RIGHT_AND_UP, RIGHT_AND_UP, RIGHT], 60))
    solved = [(timestep.reward > 0) for timestep in timesteps]
    assert np.any(solved)
    assert not any(timestep.first[won].any() for timestep, won in zip(timesteps[1:], solved[1:], strict=True))


def test_render():
    environment = make("coinrun")
    timestep = environment.reset()
    np.testing.assert_array_equal(environment.render(), timestep.observation[0])
    large = make("coinrun", 1, render_mode="rgb_array")
    large.reset()
    assert large.render().shape == (512, 512, 3) and large.render().dtype == np.uint8


@pytest.mark.parametrize("actions", [[15, 0], [0, -1], [0, 0, 0]])
def test_actions_that_procgen_does_not_have_are_refused(actions):
    environment = make("coinrun", 2)
    environment.reset()
    with pytest.raises(ValueError, match="expected"):
        environment.step(np.array(actions))


def test_an_evaluator_plays_levels_that_were_not_trained_on():
    options = {"num_levels": 200, "start_level": 7, "distribution_mode": "easy"}
    assert environments.for_evaluation("procgen:fruitbot", options)[1] == {"distribution_mode": "easy"}
    assert environments.has_unseen_levels("procgen:fruitbot", options)
    assert not environments.has_unseen_levels("procgen:fruitbot", {"distribution_mode": "easy"})
    assert not environments.has_unseen_levels("CartPole-v1")


def test_a_task_begins_with_the_next_episode_of_each_game():
    environment = make("coinrun", 4, distribution_mode="easy", num_levels=1, start_level=7)
    environment.keep_infos()
    actions = np.random.default_rng(1).choice([RIGHT, RIGHT_AND_UP, RIGHT_AND_UP, STAND_STILL], 1100)
    environment.reset()
    assert {info["level_seed"] for info in environment.infos.begun} == {7}
    environment.step(np.full(4, RIGHT, np.int32))
    environment.set_task({"start_level": 50})
    moved, lengths = np.zeros(4, bool), np.full(4, 1)
    for action in actions:
        timestep = environment.step(np.full(4, action, np.int32))
        lengths += 1
        for game in range(4):
            if timestep.first[game]:
                assert environment.infos.begun[game]["level_seed"] == 50
                assert environment.infos.followed[game]["prev_level_seed"] == (50 if moved[game] else 7)
                assert timestep.discount[game] == (lengths[game] >= 1000)
                moved[game], lengths[game] = True, 0
            elif not moved[game]:
                assert environment.infos.followed[game]["level_seed"] == 7
        if moved.all():
            break
    assert moved.all()
    environment.set_task(None)
    first = environment.reset()
    assert first.first.all() and {info["level_seed"] for info in environment.infos.begun} == {7}
    environment.close()


@pytest.mark.parametrize("task, says", [(5, "a task is a mapping of options"), ({"levels": 3}, "no option 'levels'")])
def test_wrong_tasks_are_refused(task, says):
    environment = make("coinrun")
    with pytest.raises(CallboardError, match=says):
        environment.set_task(task)
    environment.close()


def test_a_library_that_cannot_be_loaded_is_one_line(monkeypatch):
    def load(*arguments, **options):
        raise OSError("cannot load library 'libenv.so': libglib-2.0.so.0: cannot open shared object file")

    monkeypatch.setattr("procgen.ProcgenGym3Env", load)
    with pytest.raises(
        CallboardError, match=r"'procgen:coinrun': .* cannot be loaded .*apt-get install libglib2.0-0`$"
    ):
        environments.make("procgen:coinrun", 1, [0])
