"""What a data set records of its environment."""

import gymnasium
import pytest

from callboard.agents.ppo import Ppo
from callboard.launch.experiments.parts.environment_part import EnvironmentPart
from callboard.launch.experiments.recorded_metadata import recorded_metadata


def test_gymnasium_makes_the_recorded_environment_and_others_as_before():
    options = {"vectorized": False, "env_processes": False, "max_episode_steps": 30, "sutton_barto_reward": True}
    kwargs = dict(gymnasium.spec("CartPole-v1").kwargs)
    metadata = recorded_metadata(Ppo(), EnvironmentPart(env="CartPole-v1", env_options=options), seed=1)
    spec = gymnasium.envs.registration.EnvSpec.from_json(metadata["env_spec"])
    assert spec.kwargs == {"sutton_barto_reward": True} and spec.max_episode_steps == 30
    gymnasium.make(spec).close()
    assert gymnasium.spec("CartPole-v1").kwargs == kwargs and gymnasium.spec("CartPole-v1").max_episode_steps == 500
    assert metadata["callboard"]["environment_options"] == options


@pytest.mark.parametrize("limit, recorded", [(-1, None), (None, 500)])
def test_a_limit_is_recorded_as_the_run_has_it(limit, recorded):
    part = EnvironmentPart(env="CartPole-v1", env_options={"max_episode_steps": limit})
    spec = gymnasium.envs.registration.EnvSpec.from_json(recorded_metadata(Ppo(), part, seed=1)["env_spec"])
    assert spec.max_episode_steps == recorded
    gymnasium.make(spec).close()
