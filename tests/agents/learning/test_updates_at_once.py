"""As many updates are made in one call as fit the run."""

import dataclasses

import numpy as np
import pytest
from dm_env import specs as dm_specs

from callboard import specs
from callboard.agents.apex import Apex
from callboard.agents.d4pg import D4PG
from callboard.agents.sac import Sac
from callboard.agents.td3 import TD3
from callboard.data import Layout
from callboard.settings.nested_settings import from_values

SPEC = specs.EnvironmentSpec(dm_specs.Array((4,), np.float32), dm_specs.DiscreteArray(2))
IMAGES = SPEC._replace(observation=dm_specs.BoundedArray((84, 84, 1), np.uint8, 0, 255))
LAYOUT = Layout(SPEC, envs_per_actor=16, actors=1, shards=1, replicas=1, seed=1, max_steps=10**6)
SETTINGS = {"batch_size": 128, "replay.samples_per_insert": 64.0}


@pytest.mark.parametrize(
    "settings, layout, number",
    [
        ({}, {}, 16),
        # Half an update is due after each environment step, so two timesteps of 2 environments have 2.
        ({}, {"envs_per_actor": 2}, 2),
        ({}, {"envs_per_actor": 1, "actors": 4}, 4),
        ({"replay.samples_per_insert": 1.0}, {}, 1),
        ({"accumulate": 4}, {}, 4),
        ({}, {"max_learner_steps": 1004}, 4),
        ({}, {"max_learner_steps": 1001}, 1),
        ({"replay.error_buffer": 1024.0 + 128 * 4}, {}, 4),
        ({"replay.error_buffer": 1024.0 + 128 * 8}, {}, 8),
        ({"frame_stack": 4}, {"spec": IMAGES}, 1),
        ({"updates_per_call": 3}, {}, 3),
    ],
)
def test_as_many_updates_are_made_at_once_as_fit(settings, layout, number):
    agent = from_values(Apex, {**SETTINGS, **settings})
    layout = LAYOUT._replace(**layout)
    assert agent.updates_at_once(layout) == number
    assert agent.make_replay(layout).updates_per_call == number * agent.accumulate
    if "replay.error_buffer" in settings:
        tight = dataclasses.replace(agent.replay, error_buffer=agent.replay.error_buffer - 1)
        assert dataclasses.replace(agent, replay=tight).updates_at_once(layout) == number / 2


@pytest.mark.parametrize("kind", [Sac, TD3])
@pytest.mark.parametrize(
    "settings, layout, number",
    [
        # An update for each environment step.
        ({}, {}, 8),
        ({}, {"envs_per_actor": 4}, 4),
        ({}, {"envs_per_actor": 1}, 1),
        ({"replay.samples_per_insert": 256.0 * 20}, {"envs_per_actor": 1}, 8),
        ({"reset_every": 100}, {}, 4),
        ({}, {"max_learner_steps": 1002}, 2),
        ({"frame_stack": 4}, {"spec": IMAGES}, 1),
        ({"updates_per_call": 3}, {}, 3),
    ],
)
def test_an_agent_for_continuous_actions_acts_with_newer_weights_after_each_timestep(kind, settings, layout, number):
    agent, layout = from_values(kind, settings), LAYOUT._replace(**layout)
    assert agent.updates_at_once(layout) == number
    assert agent.make_replay(layout).updates_per_call == number


def test_others_make_one_update_at_a_time():
    assert D4PG().updates_at_once(LAYOUT) == 1
