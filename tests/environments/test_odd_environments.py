"""Mistakes in an environment are named in one line that says what to change."""

import numpy as np
import pytest

from callboard import environments
from callboard.errors import CallboardError

MESSAGES = {
    "OldStep": "'step' of OldStep returns 4 values, as in the old interface of Gym: let it return (observation, "
    "reward, terminated, truncated, info)",
    "OldVector": "'step' of OldVector returns 4 values, as in the old interface of Gym: let it return (observation, "
    "reward, terminated, truncated, info)",
    "NoReward": "'step' of NoReward gives the reward None: it must be a number",
    "DmNoReward": "'step' of DmNoReward gives the reward None and the discount None: both must be numbers",
    "NoSeed": "NoSeed cannot be seeded (NoSeed.reset() got an unexpected keyword argument 'seed'): let 'reset' take "
    "seed=None and options=None",
    "NoInfo": "'reset' of NoInfo gives no info: let it return (observation, info)",
    "NoInfoOfTwo": "'reset' of NoInfoOfTwo gives no info: let it return (observation, info)",
    "NoSpace": "NoSpace has no observation_space: an environment of Gymnasium 1 must have one",
    "VectorWithoutSingleSpaces": "VectorWithoutSingleSpaces has no single_observation_space: an environment of "
    "Gymnasium 1 must have one",
    "Shapeless": "environment 'odd_environments:Shapeless' has an observation of shape (0,), with nothing in it: "
    "give it at least one element",
    "PartShapeless": "environment 'odd_environments:PartShapeless' has an observation of shape (0,) at 'hand', with "
    "nothing in it: leave that part out",
    "EmptyDict": "environment 'odd_environments:EmptyDict' shows nothing: its observation space is empty, give it a "
    "part",
    "MissingPart": "the environment gives an observation without the part 'hand' of its space",
    "Words": "the environment gives an observation that is not float32(3,): could not convert string to float: 'north'",
    "Mission": "the observation space Text at 'mission' is not supported: Box, Discrete, MultiDiscrete, MultiBinary, "
    "Dict and Tuple are; turn it into numbers with gymnasium.wrappers.TransformObservation, or leave it out with "
    "gymnasium.wrappers.FilterObservation",
    "SecretBatch": "the environment gives an observation of shape (2, 3) where its spec says (3,); a batch of "
    "environments must be a gymnasium.vector.VectorEnv or a callboard BatchedEnvironment",
    "OpenBatch": "environment 'odd_environments:OpenBatch' is of type OpenBatch: the factory must give a "
    "dm_env.Environment, a gymnasium.Env, a gymnasium.vector.VectorEnv or a callboard BatchedEnvironment, which "
    "can wrap batches with an interface of their own (EnvPool, SuperSuit, Stable-Baselines3)",
}


@pytest.mark.parametrize("broken", MESSAGES)
def test_mistakes_are_named(broken):
    with pytest.raises(CallboardError) as caught:
        environment = environments.make(f"odd_environments:{broken}", 2, [0, 1])
        environment.reset()
        environment.step(np.zeros(2, np.int32))
    assert str(caught.value) == MESSAGES[broken]


def test_names_are_those_of_environments_that_can_be_made():
    names = environments.names()
    assert {"CartPole-v1", "Ant-v5", "MinAtar/Breakout-v1", "procgen:coinrun", "ALE/Pong-v5"} <= set(names)
    # Gymnasium keeps these only to say where they are now.
    assert not {"Ant-v2", "GymV21Environment-v0"} & set(names)
