"""Episodes that are watched: metrics of infos, callbacks and tasks, however the environments reset."""

import pathlib

import numpy as np
import pytest
from own_callbacks import Recorder

from callboard import environments
from callboard.callbacks import CallbackRun
from callboard.environments.batches.episode_metrics import parse_episode_metrics
from callboard.launch.nodes.episodes.callback_calls import CallbackCalls
from callboard.launch.nodes.episodes.episode_watch import WatchedEnvironment

RUN = CallbackRun("actor/0", None, pathlib.Path(), lambda: 0, lambda: None, lambda kind, value: None)
FACTORIES = ("Counting", "DmCounting", "next_step", "same_step", "set_same_step")
ACTIONS = [[0, 0], [0, 2], [1, 0], [0, 0], [2, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]


def watch(factory, metrics="time,time:sum,second", callbacks=(), notify=lambda text: None):
    environment = environments.make(f"informed_environments:{factory}", 2, range(2))
    calls = CallbackCalls(callbacks, RUN)
    return WatchedEnvironment(environment, parse_episode_metrics(metrics), calls, 10, notify)


def play(environment, actions=ACTIONS):
    timesteps = [environment.reset()]
    timesteps += [environment.step(np.array(action, np.int32)) for action in actions]
    return timesteps


@pytest.mark.parametrize("factory", FACTORIES)
def test_final_and_summed_values_of_every_episode(factory):
    environment = watch(factory)
    play(environment)
    ended = environment.take_ended()
    assert len(ended) >= 5 and environment.take_ended() == []
    of_second = [episode for episode in ended if episode.env == 1]
    assert of_second[0].values == {
        "episode/time": 2.0,
        "episode/time_sum": 3.0,
        "episode/second": 1.0,
        "actor/episode_return": 2.0,
        "actor/episode_length": 2.0,
    }
    for episode in ended:
        length = episode.values["actor/episode_length"]
        assert episode.values["episode/time"] == length
        assert episode.values["episode/time_sum"] == length * (length + 1) / 2
        assert ("episode/second" in episode.values) == (length >= 2)


@pytest.mark.parametrize("factory", FACTORIES)
def test_calls_of_callbacks(factory):
    recorder = Recorder()
    environment = watch(factory, "time", [recorder])
    timesteps = play(environment)
    for env in range(2):
        calls = [call for call in recorder.calls if call[1] == 10 + env]
        starts = [index for index, call in enumerate(calls) if call[0] == "start"]
        assert len(starts) == sum(timestep.first[env] for timestep in timesteps)
        for begin, end in zip(starts, [*starts[1:], len(calls)], strict=True):
            start, *rest = calls[begin:end]
            assert start[3] == {"limit": 3} and start[4].reward == 0 and start[4].discount == 1
            ends = [call for call in rest if call[0] == "end"]
            steps = [call for call in rest if call[0] == "step"]
            assert [call[3]["time"] for call in steps] == list(range(1, len(steps) + 1))
            assert all(call[3]["time"] == call[4].observation[1] for call in steps if call[4].observation is not None)
            if end < len(calls):
                # The second action 2 terminates; the time limit does not.
                (over,) = ends
                assert rest[-1] is over and over[2] == len(steps) == over[3]
                assert over[4] == (steps[-1][2] == 2)
    ended = environment.take_ended()
    assert all(one.values["episode/twice"] == 2 * one.values["actor/episode_length"] for one in ended)


def test_a_reset_of_the_batch_discards_unfinished_episodes():
    environment = watch("Counting")
    play(environment, [[0, 0]] * 2)
    play(environment, [[0, 0]] * 3)
    assert [episode.values["actor/episode_length"] for episode in environment.take_ended()] == [3, 3]


def test_an_episode_has_the_task_with_which_it_began():
    environment = watch("Counting")
    environment.reset()
    environment.step(np.zeros(2, np.int32))
    environment.set_task({"limit": 4})
    for _ in range(7):
        environment.step(np.zeros(2, np.int32))
    ended = environment.take_ended()
    assert [episode.task for episode in ended] == [None, None, {"limit": 4}, {"limit": 4}]
    assert [episode.values["actor/episode_length"] for episode in ended] == [3, 3, 4, 4]


def test_a_metric_that_never_appears_is_named_once():
    said = []
    environment = watch("Counting", "tme,time", notify=said.append)
    play(environment, [[0, 0]] * 40)
    environment.close()
    assert said == ["no info so far has the episode metric 'tme'; did you mean 'time'?"]
    said.clear()
    environment = watch("Counting", "tme", notify=said.append)
    play(environment, [[0, 0]] * 3)
    environment.close()
    assert len(said) == 1


def test_callbacks_of_environments_without_infos_see_empty_ones():
    recorder = Recorder()
    environment = watch("PlainDm", (), [recorder])
    play(environment)
    assert {str(call[3]) for call in recorder.calls if call[0] == "step"} == {"{}"}
