"""DrQ: its losses are SAC's, averaged over augmentations, and what it refuses."""

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from small_worlds import layout_of

from callboard.agents.drq import DrQ
from callboard.agents.sac import Sac
from callboard.data import Record, Sample
from callboard.errors import CallboardError
from callboard.networks.random_streams import Stream, stream_seed
from callboard.networks.torsos.augmentation import random_shift
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

IMAGE = dm_specs.BoundedArray((24, 24, 1), np.uint8, 0, 255)
SPECS = {
    "continuous": EnvironmentSpec(IMAGE, dm_specs.BoundedArray((2,), np.float32, -1, 1)),
    "discrete": EnvironmentSpec(IMAGE, dm_specs.DiscreteArray(3)),
}
BATCH = 6
SMALL = {
    "batch_size": BATCH,
    "frame_stack": 1,
    "network.hidden_sizes": (8,),
    "network.filters": ((4, 3, 2), (4, 3, 2)),
    "network.image_features": 5,
}
SEED = tf.constant([1, 5], tf.int64)


def random_sample(spec: EnvironmentSpec) -> Sample:
    rng = np.random.default_rng(0)
    discrete = isinstance(spec.action, dm_specs.DiscreteArray)
    action = rng.integers(3, size=(1, BATCH)) if discrete else rng.uniform(-1, 1, (1, BATCH, 2))
    last = np.stack([np.arange(BATCH) == 1, np.zeros(BATCH, bool)])
    return Sample(
        Record(
            observation=rng.integers(0, 256, (2, BATCH, 24, 24, 1)).astype(np.uint8),
            first=np.zeros((2, BATCH), bool),
            last=last,
            action=action.astype(np.int32 if discrete else np.float32),
            reward=rng.normal(size=(1, BATCH)).astype(np.float32),
            discount=np.ones((1, BATCH), np.float32),
            extras=(),
            version=np.zeros((1, BATCH, 2), np.int32),
        ),
        (),
    )


def shifted(sample: Sample, number: int, pixels: int) -> Sample:
    """The sample with one of its augmentations."""
    seed = stream_seed(SEED, Stream.AUGMENTATION, number)
    seeds = [stream_seed(seed, Stream.AUGMENTED_TIME, time) for time in (0, 1)]
    images = [random_shift(sample.record.observation[time], seeds[time], np.arange(BATCH), pixels) for time in (0, 1)]
    return sample._replace(record=sample.record._replace(observation=np.stack(images)))


@pytest.mark.slow("daily")
@pytest.mark.parametrize("kind", SPECS)
def test_targets_and_losses_of_the_critics_are_means_over_augmentations(kind):
    agent, plain = from_values(DrQ, SMALL), from_values(Sac, SMALL)
    networks = agent.make_networks(layout_of(SPECS[kind])).actor_critic
    sample = random_sample(SPECS[kind])
    found = agent.loss(networks, sample, SEED).loss
    parts = [shifted(sample, number, 4) for number in range(2)]
    seeds = [stream_seed(SEED, Stream.AUGMENTATION, number) for number in range(2)]
    targets = [plain.target(networks, part, seed).numpy() for part, seed in zip(parts, seeds, strict=True)]
    assert not np.allclose(*targets, rtol=1e-4)
    losses = [
        plain.losses(networks, part, seed, (targets[0] + targets[1]) / 2)
        for part, seed in zip(parts, seeds, strict=True)
    ]
    each = [np.sum(one.critic_loss) / BATCH for one in losses]
    np.testing.assert_allclose(found["critic_loss"], (each[0] + each[1]) / 2, rtol=1e-4)
    assert abs(each[0] - each[1]) > 1e-6
    for name in ("actor_loss", "temperature_loss"):
        np.testing.assert_allclose(found[name], np.sum(getattr(losses[0], name)) / BATCH, rtol=1e-4)


@pytest.mark.slow("daily")
def test_without_a_shift_and_with_one_augmentation_the_critics_learn_as_those_of_sac():
    agent, plain = from_values(DrQ, {**SMALL, "shift": 0, "augmentations": 1}), from_values(Sac, SMALL)
    networks = agent.make_networks(layout_of(SPECS["discrete"])).actor_critic
    sample = random_sample(SPECS["discrete"])
    found, expected = agent.loss(networks, sample, SEED), plain.loss(networks, sample, SEED)
    tree.map_structure(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), found.loss, expected.loss)


@pytest.mark.parametrize(
    "settings, observation, message",
    [
        (
            {},
            dm_specs.Array((4,), np.float32),
            r"drq learns from images, and the observation is float32\(4,\): use sac",
        ),
        ({"network.torso": "resnet8"}, IMAGE, "drq does not train the statistics of batch normalization"),
        ({}, dm_specs.BoundedArray((6, 6, 3), np.uint8, 0, 255), "is larger than its input"),
        ({"frame_stack": 0}, IMAGE, "agent.frame_stack must be a whole number of at least 1, not 0"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, observation, message):
    with pytest.raises(CallboardError, match=message) as caught:
        from_values(DrQ, settings).check(layout_of(SPECS["continuous"]._replace(observation=observation)))
    assert "\n" not in str(caught.value)


def test_actions_of_several_parts_are_refused_in_one_line():
    spec = EnvironmentSpec(IMAGE, (dm_specs.DiscreteArray(3), dm_specs.DiscreteArray(2)))
    with pytest.raises(CallboardError, match="drq takes one discrete action .* 3 discrete .*: use sac") as caught:
        DrQ().check(layout_of(spec))
    assert "\n" not in str(caught.value)


def test_policy_and_targets_are_updated_as_often_as_in_the_paper():
    agent = DrQ()
    assert (agent.policy_delay, agent.target_update_period, agent.target_update_rate) == (2, 2, 0.01)
