"""What agents advise where settings work, but are hardly meant."""

import dataclasses

import pytest

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.agents.r2d2 import R2D2
from callboard.launch.experiments.experiment import Experiment

ONE = "the network sees one gray image at a time"


def advice(agent, env="ALE/Pong-v5"):
    return agent.advice(Experiment(agent, env=env).acting_layout())


@pytest.mark.slow("daily")
@pytest.mark.parametrize("kind", [Ppo, Apex])
def test_one_image_of_atari_is_not_enough_for_a_network_without_memory(kind):
    (line,) = advice(kind())
    assert line.startswith(ONE) and "--agent.frame-stack 4" in line
    assert not advice(dataclasses.replace(kind(), frame_stack=4))
    assert not advice(kind(), "CartPole-v1") and not advice(kind(), "MinAtar/Breakout-v1")


def test_a_memory_sees_what_moves():
    assert not advice(R2D2())
    assert not advice(Ppo(network={"core": "lstm"}))
