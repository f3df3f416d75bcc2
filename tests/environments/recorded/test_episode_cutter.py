"""Cutting blocks of timesteps into episodes, beside a plain loop over each environment."""

import numpy as np
import pytest
from dm_env import specs as dm_specs

from callboard.data import Timestep
from callboard.environments.recorded import episode_cutter
from callboard.environments.recorded.chosen_infos import InfoColumns, TimestepInfos
from callboard.environments.recorded.episode_columns import DISCOUNTS
from callboard.environments.recorded.episode_cutter import EpisodeCutter, Step
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(dm_specs.Array((), np.float32), dm_specs.DiscreteArray(99, np.int32))
ENVS = 3


def infos(timestep):
    """Numbers of the timestep: of the action that led to it, and negative ones of the resets in it."""
    number = timestep.observation.tolist()
    return TimestepInfos([number], [[-one for one in number]] if timestep.first.any() else [])


def play(steps, seed):
    """A first timestep and random steps: episodes end with and without their last observation, and agents leave."""
    rng = np.random.default_rng(seed)
    begun = Timestep(
        np.arange(ENVS, dtype=np.float32), np.zeros(ENVS, np.float32), np.ones(ENVS, np.float32),
        np.ones(ENVS, bool), np.zeros(ENVS, bool),
    )  # fmt: skip
    played, last = [], begun.last
    for number in range(1, steps + 1):
        ends = rng.random(ENVS) < 0.2
        lost = ends & ~last & (rng.random(ENVS) < 0.5)
        discount = np.where(ends & (rng.random(ENVS) < 0.5), 0, 1).astype(np.float32)
        leaves = lost & (discount == 1) & (rng.random(ENVS) < 0.5)
        timestep = Timestep(
            (10 * number + np.arange(ENVS)).astype(np.float32),
            rng.random(ENVS).astype(np.float32),
            discount,
            last | lost,
            (ends & ~lost & ~last) | leaves,
        )
        played.append(Step(rng.integers(0, 99, ENVS).astype(np.int32), timestep, infos(timestep)))
        last = timestep.last
    return begun, played


def episodes_by_hand(begun, played):
    found = []
    for env in range(ENVS):
        observation, last, seed = begun.observation[env], begun.last[env], env
        rows: list[tuple[float, int, float]] = []
        for action, timestep, _ in played:
            after = timestep.observation[env]
            if not last:
                rows.append((observation, action[env], timestep.reward[env]))
                terminated = not timestep.discount[env]
                if timestep.first[env]:
                    found.append((env, rows if terminated else rows[:-1], observation, terminated, seed))
                elif timestep.last[env]:
                    found.append((env, rows, after, terminated, seed))
                if timestep.last[env] or timestep.first[env]:
                    rows, seed = [], None
            observation, last = after, timestep.last[env]
    return sorted(
        ([float(row[0]) for row in rows] + [float(final)], [int(row[1]) for row in rows], terminated, seed)
        for _, rows, final, terminated, seed in found
        if rows
    )


@pytest.mark.parametrize("block", [1, 3, 64])
def test_blocks_of_any_length_give_the_episodes_of_a_loop_over_each_environment(block):
    begun, played = play(150, seed=1)
    cutter = EpisodeCutter(SPEC, range(ENVS), notify=print, infos=InfoColumns(["number"], "x"))
    cutter.begin(begun, infos(begun))
    found = [one for first in range(0, len(played), block) for one in cutter.cut(played[first : first + block])]
    rewards = {int(timestep.observation[env]): timestep.reward[env] for _, timestep, _ in played for env in range(ENVS)}
    for episode in found:
        of_reset, *numbers = episode.values["infos/number"].astype(int).tolist()
        assert -of_reset == episode.values["observations"][0]
        # The last observation may be lost, but not the info of its action.
        assert numbers[:-1] == episode.values["observations"][1:-1].tolist()
        assert [rewards[number] for number in numbers] == episode.values["rewards"].tolist()
        assert episode.values["terminations"][:-1].sum() == episode.values["truncations"][:-1].sum() == 0
        assert episode.values["terminations"][-1] != episode.values["truncations"][-1]
        assert DISCOUNTS not in episode.values
    assert len(found) > 50
    assert episodes_by_hand(begun, played) == sorted(
        (
            episode.values["observations"].tolist(),
            episode.values["actions"].tolist(),
            bool(episode.values["terminations"][-1]),
            episode.seed,
        )
        for episode in found
    )


def test_an_episode_that_takes_too_much_memory_is_left_out_with_one_line(monkeypatch):
    monkeypatch.setattr(episode_cutter, "_OPEN_BYTES", 13 * 20)
    lines = []
    cutter = EpisodeCutter(SPEC, range(ENVS), notify=lines.append)
    begun, played = play(1, seed=1)
    cutter.begin(begun)
    nothing = played[0].timestep._replace(first=np.zeros(ENVS, bool), last=np.zeros(ENVS, bool))
    for _ in range(30):
        assert not list(cutter.cut([Step(played[0].action, nothing)]))
    assert lines == ["an episode is longer than 20 steps, more than is kept: it is not recorded"]
    assert not cutter._blocks
    assert not list(cutter.cut([Step(played[0].action, nothing._replace(last=np.ones(ENVS, bool)))]))
    begins = nothing._replace(first=np.ones(ENVS, bool)), nothing._replace(last=np.ones(ENVS, bool))
    assert [one.length for one in cutter.cut([Step(played[0].action, timestep) for timestep in begins])] == [1] * ENVS
