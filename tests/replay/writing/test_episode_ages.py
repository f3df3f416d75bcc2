"""Ages of episodes, which say how many of the frames before a timestep are of the same episode."""

import numpy as np
from numbered_blocks import ENVS, numbered

from callboard.replay.writing.sequences import EpisodeAges


def test_ages_begin_anew_with_each_episode_and_count_a_repeated_timestep_once():
    for first, expected in ((True, [0, 1, 2, 0]), (False, [3, 4, 5, 0])):
        ages = EpisodeAges(ENVS, stack=4)
        for timestep, age in enumerate(expected):
            record = numbered(0)._replace(first=np.full(ENVS, timestep == 3 or first and timestep == 0))
            assert ages.after(record).tolist() == ages.after(record, again=True).tolist() == [age] * ENVS
