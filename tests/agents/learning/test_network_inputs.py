"""What networks take beside the newest observation is the same for the actor and, through replay, for the learner."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from agent_cases import AGENT_CASES, AgentCase
from recording_actor import Actor
from small_worlds import layout_of

from callboard.agents.learning.network_inputs import sequence_inputs
from callboard.agents.policies.acting import CompiledPolicy, trace_layout
from callboard.agents.registry import agent_class, agent_settings
from callboard.data import Sample
from callboard.environments import GymnasiumBatch
from callboard.errors import CallboardError
from callboard.replay import BatchReader, Elements, ReplayHandle, start_server
from callboard.settings.nested_settings import declared_fields, from_values, with_values

ENVS, STACK = 4, 3
CASES = [
    case
    for case in AGENT_CASES
    if any(not small.images for small in case.small_updates.values())
    and "frame_stack" in declared_fields(agent_settings(case.name))
]
"""Without A3C, whose learner reads gradients, DrQ, which takes no vectors, and the agents of teams, without stacks."""
FAST = ("impala", "ppo")
"""Their sequences share an observation, and share none; tests of Ape-X and R2D2 have other items."""


class Numbered(gymnasium.Env):
    """Pictures of environment, episode, time and the action before, as numbers; episodes end in both ways."""

    def __init__(self, number: int, continuous: bool):
        self.observation_space = gymnasium.spaces.Box(0, 255, (4, 4, 1), np.uint8)
        choice, box = gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = box if continuous else choice
        self._number, self._episode = number, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._episode += 1
        self._time = 0
        return self._picture(0), {}

    def step(self, action: Any) -> Any:
        self._time += 1
        level = level_of(action)
        over = self._time == 3 + (self._episode + self._number) % 4
        return self._picture(level), self._time + level / 8, over and self._episode % 2 == 0, over, {}

    def _picture(self, level: int) -> np.ndarray:
        picture = np.zeros((4, 4, 1), np.uint8)
        picture[0, :, 0] = self._number, self._episode, self._time, level
        return picture


def level_of(action: Any) -> Any:
    """A whole number that stands for an action, or an array of them for an array of actions."""
    continuous = np.asarray(action).dtype == np.float32
    return np.round(100 + 100 * np.asarray(action)[..., 0]).astype(int) if continuous else np.asarray(action) + 1


def agent_of(case: AgentCase) -> Any:
    small = next(iter(case.small_updates.values()))
    agent = from_values(agent_class(case.name), {**small.settings, "frame_stack": STACK, "network.torso": "mlp"})
    changed: dict[str, Any] = {"network.previous_inputs": True, "batch_size": 8}
    changed |= {"replay.min_size": 8, "replay.samples_per_insert": 1.0, "network.normalize_observations": False}
    known = declared_fields(type(agent))
    return with_values(agent, {name: value for name, value in changed.items() if name in known})


def samples_of(agent: Any, continuous: bool, directory: Any) -> tuple[list[Sample], Any]:
    """The first two batches, or parts of them, of an actor's data as the learner reads it; and the learner."""
    environment = GymnasiumBatch([Numbered(number, continuous) for number in range(ENVS)], range(ENVS))
    layout = layout_of(environment.spec, envs_per_actor=ENVS, max_steps=10_000)
    agent.check(layout)
    tf.keras.utils.set_random_seed(1)
    networks = agent.make_networks(layout)
    layout = trace_layout(agent, layout, networks)
    server = start_server(agent.make_replay(layout).tables(), None, directory)
    replay = ReplayHandle(lambda: [f"localhost:{server.port}"])
    policy = CompiledPolicy(agent.make_policy(networks, "train"), layout, np.arange(ENVS), seed=1)
    actor = Actor(environment, policy, agent.make_replay(layout).writer(replay, 0))
    pace = agent.make_replay(layout).pace
    timesteps = 0
    while timesteps < 200 and (pace is not None or actor.writer.ready(1.0)):
        actor.step()
        timesteps += 1
        if pace is not None and timesteps % pace.unroll_length == 0:
            actor.end_sequence()
            if not actor.writer.ready(1.0, max_pending=0):
                break
    reader = BatchReader(
        lambda: Elements(agent.make_replay(layout).dataset(replay, tf.distribute.InputContext()).dataset),
        lambda: False,
        patience=60.0,
    )
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    samples = [next(reader), next(reader)]
    reader.close()
    actor.writer.close()
    server.stop()
    return samples, learner


def check_stacks(sample: Sample) -> None:
    """Frames are in order, the missing ones are copies of an episode's first, and none is of another episode."""
    seen = sample.record.observation.numpy()[..., 0, :, :]
    number, episode, time, _ = np.moveaxis(seen, -2, 0).astype(int)
    assert seen.shape[-1] == STACK
    assert (number == number[:1, :, :1]).all() and (episode == episode[..., :1]).all()
    lag = np.arange(STACK)[::-1]
    np.testing.assert_array_equal(time, np.maximum(time[..., -1:] - lag, 0))
    assert (time[..., -1] < 2).any() and (time[..., -1] > 2).any()


def check_previous(sample: Sample) -> None:
    """The previous action is the one that the picture shows, and the previous reward is its reward."""
    inputs, _ = sequence_inputs(sample.record, getattr(sample.state, "network", sample.state))
    _, _, time, level = np.moveaxis(sample.record.observation.numpy()[..., 0, :, -1], -1, 0).astype(int)
    within = ~sample.record.first.numpy()
    assert within[0].any() and not within.all()
    np.testing.assert_array_equal(level_of(inputs.previous_action.numpy())[within], level[within])
    np.testing.assert_allclose(inputs.previous_reward.numpy()[within], (time + level / 8)[within])


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.name in FAST else pytest.mark.slow) for case in CASES],
)
def test_a_learner_reads_what_the_actor_saw(case, tmp_path):
    """Of every agent, with episodes that end and begin inside of its items."""
    agent = agent_of(case)
    samples, learner = samples_of(agent, case.continuous, tmp_path)
    check_stacks(samples[1])
    if getattr(agent.network, "previous_inputs", False):
        check_previous(samples[1])
    if case.name not in FAST:
        assert all(np.isfinite(float(value)) for value in learner.step(iter(samples)).metrics.values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_no_picture_is_not_stacked(case):
    space = gymnasium.make("Pendulum-v1" if case.continuous else "CartPole-v1")
    layout = layout_of(GymnasiumBatch([space], [1]).spec, envs_per_actor=ENVS, max_steps=100_000)
    with pytest.raises(CallboardError, match="only images are stacked.*: set agent.frame_stack to 1"):
        with_values(agent_of(case), {"network.torso": "auto"}).check(layout)
