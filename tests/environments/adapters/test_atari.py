"""Atari games: preprocessing of the emulator's frames, and how games begin and end."""

import functools

import ale_py
import numpy as np
import pytest
from dm_env import specs
from slow_cases import slow_but

from callboard import environments
from callboard.errors import CallboardError

PLAIN = {"repeat_action_probability": 0.0, "noop_max": 0}
BREAKOUT = "ALE/Breakout-v5"


def play(options, seeds, actions, name=BREAKOUT):
    """The timesteps of a batch for a sequence of actions, the same in every game."""
    environment = environments.make(name, len(seeds), seeds, options)
    timesteps = [environment.reset(), *(environment.step(np.full(len(seeds), action)) for action in actions)]
    environment.close()
    return timesteps


def observations(timesteps):
    return np.stack([timestep.observation for timestep in timesteps])


@functools.cache
def loaded(game):
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    rom = ale_py.roms.get_rom_path(game)
    assert rom is not None
    ale.loadROM(rom)
    return ale


def emulator(game="breakout"):
    ale = loaded(game)
    ale.reset_game()
    return ale


def shrunk(frame, size=(84, 84)):
    """A gray frame resized: the mean of the area under each pixel."""

    def weights(length, pixels):
        edges = np.linspace(0, length, pixels + 1)
        pixel = np.arange(length)
        return np.clip(np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel), 0, None)

    rows, columns = map(weights, frame.shape, size)
    return rows @ frame.astype(np.float64) @ columns.T / np.outer(rows.sum(1), columns.sum(1))


@pytest.mark.slow("daily")
@pytest.mark.parametrize(("given", "size"), [(64, (64, 64)), ([96, 72], (96, 72)), ([210, 160], (210, 160))])
def test_the_size_of_observations_is_an_option(given, size):
    (first,) = play({**PLAIN, "screen_size": given}, [0], [])
    assert first.observation.shape == (1, *size, 1)
    np.testing.assert_allclose(first.observation[0, ..., 0], shrunk(emulator().getScreenGrayscale(), size), atol=0.51)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (161, r"at most \[210, 160\], the console's, not \[161, 161\]"),
        ([84], "screen_size must be"),
        (4, "screen_size must"),
    ],
)
def test_wrong_sizes_of_observations_are_refused(size, message):
    with pytest.raises(CallboardError, match=message):
        environments.make(BREAKOUT, 1, [0], {"screen_size": size})


ACTIONS = np.random.default_rng(3).integers(0, 4, 60)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("game, name", [("breakout", BREAKOUT), ("space_invaders", "ALE/SpaceInvaders-v5")])
def test_a_step_is_four_frames_their_whole_score_and_the_maximum_of_the_last_two(game, name):
    chosen = np.tile(ACTIONS, 3 if game == "space_invaders" else 1)
    timesteps = play(PLAIN, [0], chosen, name)
    ale = emulator(game)
    actions = ale.getMinimalActionSet()
    np.testing.assert_allclose(timesteps[0].observation[0, ..., 0], shrunk(ale.getScreenGrayscale()), atol=0.51)
    scores = []
    for action, timestep in zip(chosen, timesteps[1:], strict=True):
        frames, score = [], 0
        for _ in range(4):
            score += ale.act(actions[action])
            frames.append(ale.getScreenGrayscale())
        assert timestep.reward[0] == score
        scores.append(score)
        if timestep.last[0]:
            break
        if len(scores) <= len(ACTIONS):
            np.testing.assert_allclose(timestep.observation[0, ..., 0], shrunk(np.maximum(*frames[-2:])), atol=0.51)
    if game == "space_invaders":
        assert max(scores) >= 5  # The reward of an alien, not clipped to 1.


@pytest.mark.slow("daily")
def test_timesteps_have_the_dtypes_and_shapes_of_the_interface_and_one_frame_alone():
    observation, action, _ = environments.spec(BREAKOUT)
    assert observation == specs.BoundedArray((84, 84, 1), np.uint8, 0, 255)
    assert action == specs.DiscreteArray(4, dtype=np.int32)
    assert environments.spec(BREAKOUT, {"full_action_space": True}).action.num_values == 18
    for timestep in play({}, [0, 1, 2], [0]):
        described = [(array.dtype.name, array.shape) for array in timestep]
        assert described == [
            ("uint8", (3, 84, 84, 1)),
            ("float32", (3,)),
            ("float32", (3,)),
            ("bool", (3,)),
            ("bool", (3,)),
        ]


@pytest.mark.slow("daily")
def test_a_trajectory_follows_its_own_seed():
    actions = ACTIONS[:30]
    once = observations(play({}, [5, 6], actions))
    np.testing.assert_array_equal(once, observations(play({}, [5, 6], actions)))
    np.testing.assert_array_equal(once[:, 1:], observations(play({}, [6], actions)))
    assert (once[:, 0] != once[:, 1]).any()


@pytest.mark.slow("daily")
def test_a_later_reset_continues_from_the_seed():
    def begun():
        environment = environments.make("ALE/Freeway-v5", 2, [0, 1])
        pictures = [environment.reset().observation for _ in range(3)]
        environment.close()
        return pictures

    once, again = begun(), begun()
    np.testing.assert_array_equal(once, again)
    assert (once[0] != once[1]).any() and (once[1] != once[2]).any()


@pytest.mark.slow
def test_sticky_actions():
    # Without sticky actions, a game is the same for every seed; with them it is not; with probability 1 it never moves.
    plain = observations(play(PLAIN, [0, 1], ACTIONS))
    np.testing.assert_array_equal(plain[:, 0], plain[:, 1])
    sticky = observations(play({**PLAIN, "repeat_action_probability": 0.25}, [0, 1], ACTIONS))
    assert (sticky[:, 0] != sticky[:, 1]).any()
    stuck = observations(play({**PLAIN, "repeat_action_probability": 1.0}, [0], ACTIONS))
    np.testing.assert_array_equal(stuck, observations(play(PLAIN, [0], np.zeros_like(ACTIONS))))
    assert (stuck[:, 0] != plain[:, 0]).any()


@pytest.mark.slow("daily")
def test_noop_starts():
    # Freeway's cars move by themselves, so the image shows with which frame an episode begins.
    ale = emulator("freeway")
    frames = [np.round(shrunk(ale.getScreenGrayscale()))]
    for _ in range(8):
        ale.act(ale_py.Action.NOOP)
        frames.append(np.round(shrunk(ale.getScreenGrayscale())))
    environment = environments.make("ALE/Freeway-v5", 4, [0, 1, 2, 3], {"noop_max": 8})
    begun = set()
    for _ in range(15):
        for observation in environment.reset().observation:
            near = [index for index, frame in enumerate(frames) if np.abs(frame - observation[..., 0]).max() <= 1]
            assert near
            begun.update(near[:1])
    environment.close()
    assert len(begun) > 3 and min(begun) == 0 and max(begun) == 8


def endings(timesteps, slot=0):
    return [(bool(t.first[slot]), bool(t.last[slot]), float(t.discount[slot])) for t in timesteps]


CONTINUES, TERMINATED, BEGINS, LIFE_LOST = (False, False, 1), (False, True, 0), (True, False, 1), (True, False, 0)


# The ball of Breakout is served in every third step, and the paddle stays where it is: five lives are soon lost.
# Atlantis continues for a while when no life is left.
DEFEATS = {
    "breakout": (BREAKOUT, np.tile([1, 0, 0], 110), 4),
    "atlantis": ("ALE/Atlantis-v5", np.random.default_rng(0).integers(0, 4, 700), 5),
}


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "game, life_loss",
    slow_but([("breakout", False), ("breakout", True), ("atlantis", True)], ("atlantis", True)),
)
def test_lost_lives_and_the_end_of_the_game(game, life_loss):
    name, actions, losses = DEFEATS[game]
    timesteps = play({**PLAIN, "life_loss": life_loss}, [0], actions, name)
    ale = emulator(game)
    expected, lives, over, without_life = [BEGINS], ale.lives(), False, False
    for action in actions:
        if over:
            ale.reset_game()
            expected.append(BEGINS)
        else:
            for _ in range(4):
                ale.act(ale.getMinimalActionSet()[action])
                if ale.game_over():
                    break
            lost = 0 < ale.lives() < lives
            without_life |= ale.lives() == 0 and not ale.game_over()
            expected.append(TERMINATED if ale.game_over() else LIFE_LOST if lost and life_loss else CONTINUES)
        over, lives = ale.game_over(), ale.lives()
    assert endings(timesteps) == expected
    assert expected[: expected.index(TERMINATED)].count(LIFE_LOST) == (losses if life_loss else 0)
    assert without_life == (game == "atlantis")


@pytest.mark.slow("daily")
def test_the_game_continues_after_a_lost_life():
    actions = np.tile([1, 0, 0], 50)
    with_loss, without = (play({**PLAIN, "life_loss": life_loss}, [0], actions) for life_loss in (True, False))
    np.testing.assert_array_equal(observations(with_loss), observations(without))
    assert [timestep.reward for timestep in with_loss] == [timestep.reward for timestep in without]
    assert environments.for_evaluation(BREAKOUT, {"life_loss": True, "noop_max": 3})[1] == {"noop_max": 3}


@pytest.mark.slow("daily")
def test_the_limit_of_frames_is_a_truncation():
    timesteps = play({**PLAIN, "max_num_frames_per_episode": 20}, [0, 1], [0] * 12)
    assert endings(timesteps, 1) == [BEGINS, *[CONTINUES] * 4, (False, True, 1)] * 2 + [BEGINS]
    assert all(timestep.reward[timestep.first].sum() == 0 for timestep in timesteps)


@pytest.mark.slow("daily")
def test_timesteps_do_not_change_later_and_a_reset_in_the_middle_begins_anew():
    environment = environments.make(BREAKOUT, 2, [0, 1], {**PLAIN, "max_num_frames_per_episode": 12})
    timesteps = [environment.reset()] + [environment.step(np.array([1, 2])) for _ in range(3)]
    kept = [[array.copy() for array in timestep] for timestep in timesteps]
    assert timesteps[-1].last.all()
    again = environment.reset()
    assert again.first.all() and not again.last.any() and (again.discount == 1).all()
    assert endings([environment.step(np.array([1, 1]))]) == [CONTINUES]
    for timestep, copies in zip(timesteps, kept, strict=True):
        for array, copy in zip(timestep, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
    environment.close()
    environment.close()


@pytest.mark.slow("daily")
def test_render_shows_the_game_that_is_played():
    environment = environments.make(BREAKOUT, 2, [7, 8], {"render_mode": "rgb_array", "max_num_frames_per_episode": 60})
    timesteps = [environment.reset()]
    luminance = np.array([0.299, 0.587, 0.114])
    for action in ACTIONS[:20]:
        picture = environment.render()
        assert picture.shape == (210, 160, 3) and picture.dtype == np.uint8
        seen = timesteps[-1].observation[0, ..., 0]
        # The maximum of colors is not quite that of grays: pixels where a sprite flickers may differ.
        assert np.mean(np.abs(shrunk(picture @ luminance) - seen) > 3) < 0.01
        timesteps.append(environment.step(np.array([action, 0])))
    environment.close()
    with pytest.raises(CallboardError, match="make it with the option render_mode='rgb_array'"):
        environments.make(BREAKOUT, 1, [0]).render()


def test_actions_that_the_game_does_not_have_are_refused():
    environment = environments.make(BREAKOUT, 2, [0, 1], PLAIN)
    environment.reset()
    for actions in ([4, 0], [0, -1], [0, 0, 0]):
        with pytest.raises(ValueError, match="expected"):
            environment.step(np.array(actions))
    environment.close()


@pytest.mark.slow("daily")
def test_infos_are_those_of_the_emulator():
    environment = environments.make(BREAKOUT, 2, [1, 2], PLAIN)
    environment.keep_infos()
    environment.reset()
    assert [info["lives"] for info in environment.infos.begun] == [5, 5]
    environment.step(np.zeros(2, np.int32))
    assert [info["lives"] for info in environment.infos.followed] == [5, 5] and environment.infos.begun == [{}, {}]
    environment.close()


def test_the_episode_after_a_lost_life_begins_with_the_info_of_the_loss():
    environment = environments.make(BREAKOUT, 1, [1], {**PLAIN, "life_loss": True})
    environment.keep_infos()
    environment.reset()
    timestep, actions = None, 0
    while timestep is None or not timestep.first[0]:
        timestep, actions = environment.step(np.array([actions % 2])), actions + 1
    assert environment.infos.followed == environment.infos.begun and environment.infos.begun[0]["lives"] == 4
    environment.close()
