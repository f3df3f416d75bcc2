"""Infos of the library beside timesteps, in every interface and with every way to reset."""

import numpy as np
import pytest
from informed_environments import error_of

from callboard import environments
from callboard.environments.batches.infos import final_info_rows, info_rows

SINGLE = ("Counting", "SetCounting", "DmCounting")
VECTOR = ("next_step", "same_step", "set_next_step", "set_same_step")
PROCESSES = tuple(pytest.param(name, marks=pytest.mark.slow) for name in ("same_step_processes", "next_step_processes"))
ACTIONS = [[0, 0], [0, 2], [1, 0], [0, 0], [2, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]


def make(factory, batch_size=2):
    environment = environments.make(f"informed_environments:{factory}", batch_size, range(batch_size))
    environment.keep_infos()
    return environment


def episodes_of(environment, actions=ACTIONS):
    """For each environment: the info of every reset, followed by those of the episode's steps."""
    found = [[] for _ in range(environment.batch_size)]
    timesteps = [environment.reset()]
    infos = [environment.infos]
    for action in actions:
        timesteps.append(environment.step(np.array(action, np.int32)))
        infos.append(environment.infos)
    for timestep, info in zip(timesteps, infos, strict=True):
        for index, episodes in enumerate(found):
            if info.followed[index]:
                episodes[-1].append(plain(info.followed[index]))
            assert bool(info.begun[index]) == timestep.first[index]
            if timestep.first[index]:
                episodes.append([plain(info.begun[index])])
    return found


def plain(info):
    return {key: plain(value) if isinstance(value, dict) else np.asarray(value).item() for key, value in info.items()}


def steps(count):
    whole = [
        {"time": time, "parts": {"half": time / 2}, **({"second": True} if time == 2 else {})} for time in (1, 2, 3)
    ]
    return whole[:count]


@pytest.mark.parametrize("factory", (*SINGLE, *VECTOR, *PROCESSES))
def test_every_step_and_reset_has_its_own_info(factory):
    environment = make(factory)
    first, second = episodes_of(environment)
    start = {"limit": 3}
    assert first[0] == [start, *steps(3)]
    assert second[0] == [start, *steps(2)]
    assert first[1][0] == start and first[1][1:] == steps(len(first[1]) - 1)
    assert all(len(episode) > 1 for episode in (*first[:-1], *second[:-1]))
    environment.close()


def test_all_environments_of_a_same_step_batch_that_are_truncated_together():
    environment = make("same_step")
    both = episodes_of(environment, [[0, 0]] * 8)
    assert both[0] == both[1] == [[{"limit": 3}, *steps(3)]] * 2 + [[{"limit": 3}]]


def test_a_vector_environment_that_gives_no_final_info_has_that_of_the_step():
    environment = make("OwnVector")
    environment.reset()
    assert environment.infos.begun == [{}, {}] == environment.infos.followed
    environment.step(np.array([0, 2], np.int32))
    assert [dict(info) for info in environment.infos.followed] == [{"time": 1, "shared": 7}, {}]


@pytest.mark.parametrize(
    "name, says",
    [
        ("informed_environments:PlainDm", "PlainDm has no infos: give it a method 'info'"),
        ("MinAtar/Breakout-v1", "MinAtarBatch has no infos"),
    ],
)
def test_environments_without_infos_are_refused(name, says):
    environment = environments.make(name, 2, range(2))
    assert environment.infos is None
    assert says in error_of(environment.keep_infos)


def test_infos_are_not_kept_unless_they_are_wanted():
    environment = environments.make("informed_environments:Counting", 2, range(2))
    environment.reset()
    environment.step(np.zeros(2, np.int32))
    assert environment.infos is None


def test_masks_nested_infos_and_values_for_all():
    info = {
        "distance": np.array([1.0, 0.0]),
        "_distance": np.array([True, False]),
        "episode": {"r": np.array([0.0, 5.0]), "_r": np.array([False, True])},
        "_episode": np.array([False, True]),
        "name": "all",
        "names": ["a", "b"],
        "final_obs": np.zeros((2, 3)),
    }
    assert info_rows(info, 2) == [
        {"distance": 1.0, "name": "all", "names": "a"},
        {"episode": {"r": 5.0}, "name": "all", "names": "b"},
    ]
    assert final_info_rows({"final_info": [None, {"a": 1}]}, 2) == [{}, {"a": 1}]
