"""A team whose members differ in their actions, masks and presence, and random sequences of it."""

from typing import Any

import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs

from callboard.agents.policies.qmix_policy import QmixState
from callboard.agents.qmix import Qmix
from callboard.data import ItemInfo, Record, Sample
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

ACTIONS = {"left": 3, "middle": 2, "right": 3}
MEMBERS = len(ACTIONS)
SIZE = 2
STATE = 4
GRU = 3


def team_spec(state: bool = True, present: bool = True) -> EnvironmentSpec:
    """The members `left` and `right` have masks, `middle` has none and fewer actions."""
    own = dm_specs.Array((SIZE,), np.float32)
    masks = {member: dm_specs.Array((number,), np.int8) for member, number in ACTIONS.items()}
    observation: dict[str, Any] = {member: {"observation": own, "action_mask": masks[member]} for member in masks}
    observation["middle"] = own
    if present:
        observation["present"] = dm_specs.Array((MEMBERS,), np.float32)
    if state:
        observation["state"] = dm_specs.Array((STATE,), np.float32)
    return EnvironmentSpec(observation, {member: dm_specs.DiscreteArray(number) for member, number in ACTIONS.items()})


def random_observation(rng: np.random.Generator, shape: tuple[int, ...], state: bool = True) -> dict[str, Any]:
    """Observations `[*shape, ...]` with random masks, in which each member is sometimes absent."""
    observation: dict[str, Any] = {}
    for member, number in ACTIONS.items():
        own = rng.normal(size=(*shape, SIZE)).astype(np.float32)
        mask = (rng.random((*shape, number)) < 0.6).astype(np.int8)
        mask[..., 1] |= ~mask.any(axis=-1)
        observation[member] = own if member == "middle" else {"observation": own, "action_mask": mask}
    observation["present"] = (rng.random((*shape, MEMBERS)) < 0.8).astype(np.float32)
    if state:
        observation["state"] = rng.normal(size=(*shape, STATE)).astype(np.float32)
    return observation


def small(**fields: Any) -> Qmix:
    return from_values(
        Qmix,
        {
            "burn_in": 2,
            "trace_length": 6,
            "period": 3,
            "batch_size": 4,
            "discount": 0.9,
            "mixing_size": 3,
            "hypernetwork_size": 5,
            "target_update_period": 2,
            "replay.size": 200,
            "replay.min_size": 10,
            "optimizer.learning_rate_decay": False,
            "network.hidden_sizes": (4,),
            "network.lstm_size": GRU,
            **fields,
        },
    )


def random_sample(agent: Qmix, seed: int = 0, state: bool = True) -> Sample:
    """Sequences whose episodes end in all ways: terminated or not, with a final observation or without."""
    rng = np.random.default_rng(seed)
    length, batch = agent.burn_in + agent.trace_length, agent.batch_size
    first, last = rng.random((length + 1, batch)) < 0.25, rng.random((length + 1, batch)) < 0.2
    discount = np.where(last[:-1] | (rng.random((length, batch)) < 0.8), 1.0, 0.0).astype(np.float32)
    floats = tf.keras.backend.floatx()
    return Sample(
        record=Record(
            observation=random_observation(rng, (length + 1, batch), state),
            first=first,
            last=last,
            action={
                member: rng.integers(number, size=(length, batch)).astype(np.int32)
                for member, number in ACTIONS.items()
            },
            reward=rng.normal(size=(length, batch)).astype(np.float32),
            discount=discount,
            extras=(),
            version=np.zeros((length, batch, 2), np.int32),
        ),
        state=QmixState(
            core=rng.normal(size=(batch, MEMBERS, GRU)).astype(floats),
            previous_action=rng.integers(2, size=(batch, MEMBERS)).astype(np.int32),
            previous_present=rng.random((batch, MEMBERS)) < 0.7,
        ),
        info=ItemInfo(*(np.zeros(batch) for _ in range(4))),
    )
