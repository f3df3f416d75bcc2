"""What can be made in a worker, and what is refused."""

import numpy as np
import pytest

from callboard import environments
from callboard.errors import CallboardError

SAME = {"env_python": "same"}
MASK = "callboard.environments.info_masks:MaskFromInfo"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, options, message",
    [
        ("CartPol-v1", {}, "^unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'[?]$"),
        ("CartPole-v1", {"max_episode_steps": 0}, "it must be a whole number of 1 or more, or -1 for no limit$"),
        ("CartPole-v1", {"gravty": 3}, "^environment 'CartPole-v1' has no option 'gravty'; its options are"),
        ("Blackjack-v1", {"vectorized": True}, "^environment 'Blackjack-v1' has no vector form of its own"),
        ("worker_cases:Walk", {"index": 3, "seed": 3}, "option 'seed' is given by Callboard, leave it out$"),
        (
            "worker_cases:dm_walk",
            {"speed": 3},
            "^environment 'worker_cases:dm_walk' has no option 'speed'; it has none$",
        ),
        (
            "no_such_module:Env",
            {},
            "needs .no_such_module., which Python .* does not find: start in its",
        ),
        ("envpool:Pong-v5", {}, "needs the package 'envpool' under Python 3"),
        (
            "Ant-v2",
            {},
            r"^environment 'Ant-v2' is not in the Gymnasium of Python 3.* any more; did you mean 'Ant-v5'\?$",
        ),
        ("CartPole-v1", {"render_mode": 3}, "'render_mode' is 3, it must be text$"),
        ("ALE/Nothing-v5", {}, r"^unknown environment 'ALE/Nothing-v5'; did you mean 'ALE/\w+-v5'\?$"),
        ("ale/Pong-v5", {}, "^unknown environment 'ale/Pong-v5'; give an id of ale-py"),
        ("ALE/Pong-v5", {"noops": 3}, "^environment 'ALE/Pong-v5' has no option 'noops'; did you mean 'noop_max'"),
    ],
)
def test_names_and_options_are_checked_without_making_them(name, options, message):
    with pytest.raises(CallboardError, match=message):
        environments.check(name, {**options, **SAME})


@pytest.mark.parametrize(
    "name, options, message",
    [
        (
            "procgen:coinrun",
            {},
            "is made by Callboard itself, under its own interpreter: leave env_python out",
        ),
        ("MiniGrid-Empty-5x5-v0", {}, "as 'gymnasium:ID' or 'package.module:factory'$"),
        (
            lambda: None,
            {},
            "is defined by this program, which the worker of env_python does not run: put it",
        ),
        ("CartPole-v1", {"env_processes": True}, "^env_processes and env_python exclude each other: leave one out$"),
        ("CartPole-v1", {"env_wrappers": "FixedSizeObservations"}, "'FixedSizeObservations' is Callboard's own"),
        ("CartPole-v1", {"env_wrappers": [MASK, "TimeAwareObservation"]}, "does not know: let it be the last one$"),
        ("ALE/Pong-v4", {}, "^unknown environment 'ALE/Pong-v4'; give an id of ale-py"),
        ("ALE/Pong-v5", {"noops": 3}, "^environment 'ALE/Pong-v5' has no option 'noops'; did you mean 'noop_max'[?]$"),
        ("CartPole-v1", {"gravity": object()}, "a worker takes plain data only"),
    ],
)
def test_what_other_interpreters_do_not_have_is_refused(name, options, message):
    with pytest.raises(CallboardError, match=message):
        environments.make(name, 1, [1], {**options, **SAME})


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, options, message",
    [
        ("CartPole-v1", {"env_wrappers": "TimeAwre"}, "^env_wrappers: Python 3.* has no wrapper 'TimeA"),
        (
            "CartPole-v1",
            {"env_wrappers": [{"name": "TimeLimit", "max_episode_steps": "x"}]},
            "^env_wrappers: 'TimeLimit'",
        ),
        (
            "worker_cases:Nothing",
            {},
            "^environment 'worker_cases:Nothing' is of type Nothing: under another interpreter, the factory",
        ),
    ],
)
def test_what_cannot_be_wrapped_is_refused(name, options, message):
    with pytest.raises(CallboardError, match=message):
        environments.make(name, 1, [1], {**options, **SAME})


@pytest.mark.parametrize(
    "name, options",
    [
        ("CartPole-v1", {"foo": 3}),
        ("CartPole-v1", {"foo": 3, "vectorized": True}),
        ("worker_cases:Wlk", {}),
        ("worker_cases:Walk", {"env_wrappers": "worker_cases:Wlk"}),
        ("worker_cases:Written", {}),
        ("worker_cases:Unseeded", {}),
        ("worker_cases:refused", {}),
        ("worker_cases:lacking", {}),
        ("FrozenLake-v1", {"map_name": "9x9"}),
        ("worker_cases:next_step", {"env_wrappers": "TimeAwareObservation"}),
        ("worker_cases:next_step", {"env_wrappers": [{"name": MASK, "kye": "x"}]}),
        ("worker_cases:dm_walk", {"env_wrappers": MASK}),
        ("CartPole-v1", {"env_wrappers": "TimeAwareObservation", "vectorized": True}),
        ("ALE/Pong-v5", {"env_wrappers": "TimeAwareObservation"}),
    ],
)
def test_refusals_are_worded_as_in_this_process(name, options):
    messages = []
    for own in ({}, SAME):
        with pytest.raises(CallboardError) as raised:
            environments.make(name, 1, [1], {**options, **own}).reset()
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_parts_keep_their_order():
    found = [environments.spec("worker_cases:Unsorted", options) for options in ({}, SAME)]
    assert list(found[0].observation) == list(found[1].observation) == ["b", "a"]


@pytest.mark.slow("daily")
def test_environments_of_a_list_may_have_interpreters_of_their_own():
    mixture = [{"name": "CartPole-v1", "options": SAME}, "CartPole-v1"]
    batch = environments.make(mixture, 4, [1, 2, 3, 4])
    assert batch.reset().observation.shape == (4, 4)
    batch.close()


@pytest.mark.slow
def test_old_ids_of_atari_are_raw_frames_of_gymnasium_alone():
    batch = environments.make("gymnasium:Pong-v4", 1, [1], SAME)
    assert batch.reset().observation.shape == (1, 210, 160, 3)
    batch.close()
    with pytest.raises(CallboardError, match="^unknown environment 'Pong-v4'; Python 3.* has no such id"):
        environments.make("Pong-v4", 1, [1], SAME)


@pytest.mark.parametrize("name", ["Old", "OldVector", "OldDm"])
def test_environments_of_other_classes_are_refused_as_in_process(name):
    for own in ({}, SAME):
        with pytest.raises(CallboardError, match=f"^environment 'worker_cases:{name}' is of type {name}"):
            environments.make(f"worker_cases:{name}", 1, [1], own)
    with pytest.raises(CallboardError, match="which is no gymnasium.Env: .* or, for the old interface of Gym, add "):
        environments.make("worker_cases:Old", 1, [1], SAME)


@pytest.mark.parametrize(
    "name, options, ask",
    [
        ("CartPole-v1", {}, lambda batch: batch.set_task({"low": 0.0})),
        ("worker_cases:dm_bare", {}, lambda batch: batch.set_task(1)),
        ("worker_cases:dm_bare", {}, lambda batch: batch.keep_infos()),
        ("worker_cases:dm_bare", {}, lambda batch: batch.render()),
    ],
)
def test_what_environments_lack_is_said_as_in_process(name, options, ask):
    messages = []
    for own in ({}, SAME):
        batch = environments.make(name, 1, [1], {**options, **own})
        with pytest.raises(CallboardError) as raised:
            ask(batch)
        messages.append(str(raised.value))
        batch.close()
    assert messages[0] == messages[1]


def test_timesteps_of_dm_env_have_a_discount():
    for own in ({}, SAME):
        batch = environments.make("worker_cases:dm_bare", 1, [1], own)
        batch.reset()
        with pytest.raises(CallboardError, match="^'step' of _DmBare gives the .*discount"):
            batch.step(np.zeros(1, np.int32))
        batch.close()
