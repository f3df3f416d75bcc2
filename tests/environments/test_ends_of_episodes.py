"""What every adapter shows where episodes end and begin, and that each case of a list of cases is played once."""

import numpy as np
import pytest
import tree
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from listed_environments import ADAPTERS, ENDS, IN_WORKERS, LENGTHS, SAME_STEP, Cases, Listed, in_processes

from callboard.environments.adapters.gymnasium_vector_batch import GymnasiumVectorBatch
from callboard.environments.checks.trial import EnvironmentTrial, try_environment

STEPS = 25
ALL = {**ADAPTERS, **IN_WORKERS, "processes": in_processes}
IN_OTHERS = [pytest.param(kind, marks=pytest.mark.slow("daily")) for kind in (*IN_WORKERS, "processes")]
KINDS = [*ADAPTERS, *IN_OTHERS]
JOINED = {*SAME_STEP, "same step in a worker"}
"""Where the end of an episode and the beginning of the next one share a timestep."""


def zeros(batch):
    """Actions for all environments; in those with several agents, for the one policy."""
    spec = batch.spec.action
    if isinstance(spec, dict):
        return {"p": np.zeros(batch.batches.batch_size * len(batch.batches.slots["p"].agents), np.int32)}
    return np.zeros(batch.batch_size, np.int32)


def row_of(timestep, row):
    """Returns (case, steps in it, reward, discount, first, last) of an environment."""
    observation = tree.flatten(timestep.observation)[0]
    slot = row * (len(observation) // len(timestep.reward))
    values = (*observation[slot], *(getattr(timestep, name)[row] for name in ("reward", "discount", "first", "last")))
    return tuple(map(float, values))


def expected(length, keeps_terminal, cases=range(1, 99)):
    """The timesteps of an environment, worked out from the script."""
    rows, reward, discount = [], 0.0, 1.0
    for case in cases:
        terminates = ENDS[(case - 1) % 4] != "truncated"
        rows.append((case, 0, reward, discount, 1, 0))
        for time in range(1, length + 1):
            is_over = time == length
            if is_over and terminates and not keeps_terminal:
                # The next episode begins in the timestep with the last reward.
                reward, discount = 1.0, 0.0
                break
            rows.append((case, time, 1, float(not (is_over and terminates)), 0, float(is_over)))
            reward, discount = 0.0, 1.0
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_every_timestep_of_truncations_terminations_and_both_at_once(kind):
    cases = [Cases(length) for length in LENGTHS]
    batch = ALL[kind](cases)
    timesteps = [batch.reset(), *(batch.step(zeros(batch)) for _ in range(STEPS))]
    for row, length in enumerate(LENGTHS):
        shown = [row_of(timestep, row) for timestep in timesteps]
        assert shown == expected(length, kind not in JOINED)[: STEPS + 1]
    batch.close()


@pytest.mark.parametrize("kind", ADAPTERS)
def test_each_case_is_played_once_and_only_its_own_steps_are_taken(kind):
    cases = [Cases(length) for length in LENGTHS]
    batch = ADAPTERS[kind](cases)
    timesteps = [batch.reset(), *(batch.step(zeros(batch)) for _ in range(STEPS))]
    for row, one in enumerate(cases):
        rows = [row_of(timestep, row) for timestep in timesteps]
        begun = [case for case, _, _, _, first, _ in rows if first]
        assert begun == list(range(1, len(begun) + 1)) and len(begun) > 5
        # The next one may have begun in the step that was the last.
        assert one.begun - begun[-1] in (0, 1)
        assert one.acted == sum(reward for _, _, reward, *_ in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reset_in_the_middle_is_no_transition_and_begins_the_next_case(kind):
    cases = [Cases(length) for length in (1, 2, 4)]
    batch = ALL[kind](cases)
    batch.reset()
    # The first one shows the last timestep of an episode, the others are in the middle of theirs.
    batch.step(zeros(batch))
    numbers = [one.begun for one in cases] if kind in ADAPTERS else [1 + (kind in JOINED), 1, 1]
    timesteps = [batch.reset(), *(batch.step(zeros(batch)) for _ in range(6))]
    for row, (one, number) in enumerate(zip((1, 2, 4), numbers, strict=True)):
        shown = [row_of(timestep, row) for timestep in timesteps]
        assert shown == expected(one, kind not in JOINED, range(number + 1, 20))[:7]
    batch.close()


@pytest.mark.parametrize(
    "kind",
    [*SAME_STEP, "next step", "single", "parallel agents", "RLlib agents", *IN_OTHERS],
)
def test_a_task_that_is_passed_as_options_costs_no_case(kind):
    cases = [Cases(length) for length in LENGTHS]
    batch = ALL[kind](cases)
    batch.set_task({"hard": 1})
    timesteps = [batch.reset(), *(batch.step(zeros(batch)) for _ in range(STEPS))]
    for row, (one, length) in enumerate(zip(cases, LENGTHS, strict=True)):
        assert [row_of(timestep, row) for timestep in timesteps] == expected(length, kind not in JOINED)[: STEPS + 1]
        assert one.options == [{"hard": 1}] * one.begun
    batch.close()


@pytest.mark.parametrize("kind", SAME_STEP)
def test_an_episode_that_has_begun_but_is_not_shown_yet_takes_a_new_task(kind):
    cases = [Cases(1), Cases(9)]
    batch = ADAPTERS[kind](cases)
    batch.reset()
    assert batch.step(zeros(batch)).last.tolist() == [True, False]
    batch.set_task({"hard": 2})
    timestep = batch.step(zeros(batch))
    assert row_of(timestep, 0) == (3, 0, 0, 1, 1, 0) and cases[0].options == [None, None, {"hard": 2}]


def test_infos_of_an_episode_that_has_waited():
    made = [lambda one=one: Listed(one) for one in (Cases(1), Cases(50))]
    batch = GymnasiumVectorBatch(SyncVectorEnv(made, autoreset_mode=AutoresetMode.SAME_STEP), [0, 1])
    batch.keep_infos()
    batch.reset()
    batch.step(zeros(batch))
    assert batch.infos.followed[0]["case"] == 1 and not batch.infos.begun[0]
    batch.step(zeros(batch))
    assert batch.infos.begun[0]["case"] == 2 and not batch.infos.followed[0]


def test_the_environments_of_a_vector_environment_are_still_those_that_were_given():
    inner = Listed(Cases(1))
    batch = GymnasiumVectorBatch(SyncVectorEnv([lambda: inner], autoreset_mode=AutoresetMode.SAME_STEP), [0])
    assert list(batch.environments) == [inner]


def same_step_processes():
    return AsyncVectorEnv([lambda: Listed(Cases(2))], autoreset_mode=AutoresetMode.SAME_STEP, context="spawn")


@pytest.mark.slow
def test_a_trial_warns_where_cases_are_not_played():
    warnings = []
    try_environment(EnvironmentTrial(same_step_processes, steps=3), lambda phase: None, warnings.append)
    assert warnings == [
        "an AsyncVectorEnv with AutoresetMode.SAME_STEP begins an episode after each time limit that is not played: "
        "for a list of cases, use AutoresetMode.NEXT_STEP, or a SyncVectorEnv"
    ]
