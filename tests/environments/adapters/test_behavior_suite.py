"""Experiments of bsuite: their settings, seeds and timesteps."""

import numpy as np
import pytest
from refused_names import assert_refused

from callboard import environments

pytest.importorskip("bsuite", reason="the extra bsuite is not installed")


def cues(seeds, options=None):
    """The cue of `memory_len` in ten episodes, `[10, B]`."""
    batch = environments.make("bsuite:memory_len/0", len(seeds), seeds, options)
    shown = []
    for _ in range(10):
        shown.append(batch.reset().observation[:, 0, 2])
    return np.array(shown)


def test_environments_have_seeds_of_their_own():
    first = cues([1, 2, 3])
    np.testing.assert_array_equal(first, cues([1, 2, 3]))
    assert len({tuple(column) for column in first.T}) == 3


def test_a_game_of_catch_is_bsuites():
    from bsuite.environments.catch import Catch

    batch, single = environments.make("bsuite:catch/0", 1, [7]), Catch(seed=7)
    timestep, expected = batch.reset(), single.reset()
    for index in range(25):
        np.testing.assert_array_equal(timestep.observation[0], expected.observation)
        assert (timestep.first[0], timestep.last[0]) == (expected.first(), expected.last())
        assert timestep.reward[0] == (expected.reward or 0)
        assert timestep.discount[0] == (1 if expected.discount is None else expected.discount)
        timestep, expected = batch.step(np.array([index % 3], np.int32)), single.step(index % 3)


def test_options_replace_the_settings_of_the_experiment():
    assert environments.spec("bsuite:catch/0", {"rows": 6}).observation.shape == (6, 5)
    batch = environments.make("bsuite:memory_len/0", 1, [1], {"memory_length": 4})
    batch.reset()
    lasts = [bool(batch.step(np.zeros(1, np.int32)).last[0]) for _ in range(5)]
    assert lasts == [False] * 4 + [True]


def test_the_problem_is_the_same_in_every_environment():
    batch = environments.make("bsuite:deep_sea/0", 4, range(4))
    batch.reset()
    for _ in range(5):
        observation = batch.step(np.ones(4, np.int32)).observation
    assert (observation == observation[0]).all()


def test_mistakes_are_refused():
    assert_refused("bsuite:catch/77", {}, "unknown environment 'bsuite:catch/77'; did you mean 'bsuite:catch/7'?")
    assert_refused(
        "bsuite:catch/0", {"row": 3}, "environment 'bsuite:catch/0' has no option 'row'; did you mean 'rows'?"
    )
    assert_refused(
        "bsuite:catch/0",
        {"seed": 3},
        "environment 'bsuite:catch/0' has no option 'seed'; its options are columns, rows",
    )
