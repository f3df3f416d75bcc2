"""How far an actor may run ahead of the learner."""

import os
import signal

import numpy as np
import pytest

from callboard.data import Version
from callboard.launch.nodes.acting.pacing import Pacer
from callboard.replay import Pace


def write_sequence(pacer, length=3):
    pacer.begin()
    for timestep in range(length):
        assert pacer.between_sequences == (timestep == 0)
        assert pacer.count_timestep() == (timestep == length - 1)


def sequences_begun(pacer, version):
    number = 0
    while pacer.may_begin(version):
        write_sequence(pacer)
        number += 1
    return number


@pytest.mark.parametrize("share", [1, 3])
def test_without_lag_actor_and_learner_take_turns(share):
    pacer = Pacer(Pace(0, unroll_length=3, items_per_actor=share), index=0)
    assert [sequences_begun(pacer, Version(0, step)) for step in (0, 0, 1, 2, 2)] == [share, 0, share, share, 0]


def test_with_lag_an_actor_runs_ahead_once():
    pacer = Pacer(Pace(2, unroll_length=3, items_per_actor=2), index=0)
    assert [sequences_begun(pacer, Version(0, step)) for step in range(4)] == [6, 2, 2, 2]


def test_missed_learner_steps_are_not_caught_up_on():
    pacer = Pacer(Pace(1, unroll_length=3, items_per_actor=1), index=0)
    assert [sequences_begun(pacer, Version(0, step)) for step in (5, 105, 106)] == [2, 2, 1]


def test_a_restarted_learner_receives_new_data():
    pacer = Pacer(Pace(0, unroll_length=3, items_per_actor=1), index=0)
    assert [sequences_begun(pacer, Version(0, step)) for step in (7, 8)] == [1, 1]
    assert [sequences_begun(pacer, Version(1, step)) for step in (3, 3, 4)] == [1, 0, 1]


def test_extra_items_do_not_reduce_the_next_share():
    pacer = Pacer(Pace(0, unroll_length=3, items_per_actor=1), index=0)
    assert sequences_begun(pacer, Version(0, 0)) == 1
    for _ in range(5):
        write_sequence(pacer)
    assert not pacer.may_begin(Version(0, 0))
    assert sequences_begun(pacer, Version(0, 1)) == 1


@pytest.mark.parametrize("index", [0, 2])
def test_an_actor_helps_a_learner_that_is_short_of_data(index, clock):
    """After a second and the duration of a sequence; after three times that if two other actors help first."""
    pacer = Pacer(Pace(0, unroll_length=3, items_per_actor=1), index, clock)
    pacer.begin()
    clock.now += 4
    for _ in range(3):
        pacer.count_timestep()
    patience = (1 + 4) * (1 + index)
    clock.now += patience - 0.1
    assert not pacer.may_help(short_of_data=patience + 10)
    clock.now += 0.1
    # A learner that has data, or received it a moment ago, is only slow.
    assert not pacer.may_help(short_of_data=0.0) and not pacer.may_help(short_of_data=patience - 0.1)
    assert pacer.may_help(short_of_data=patience)
    write_sequence(pacer)
    assert not pacer.may_help(short_of_data=patience + 1)


@pytest.fixture
def train_ppo(start, tmp_path):
    def start_training(*arguments):
        endless = ["--max-steps", 10_000_000, "--stop-return", 501]
        return start("train", "--recipe", "ppo-cartpole", "--run-dir", tmp_path / "run", *endless, *arguments)

    return start_training


def lags(run):
    return [row["learner/policy_lag"] for row in run.rows() if "learner/policy_lag" in row]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["threads", "processes"])
def test_without_permitted_lag_all_data_is_current(train_ppo, launcher):
    run = train_ppo("--launcher", launcher)
    run.wait_for_steps(20_000)
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert len(lags(run)) > 2 and set(lags(run)) == {0.0}
    assert run.leftovers() == []


@pytest.mark.slow
def test_a_permitted_lag_is_not_exceeded(train_ppo):
    run = train_ppo("--agent.max-policy-lag", 1)
    run.wait_for_steps(20_000)
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert 0 < max(lags(run)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_an_actor_that_does_nothing_does_not_hold_up_the_others(train_ppo, index):
    run = train_ppo()
    run.wait_for_steps(5_000)
    os.kill(run.pid_of(f"actor/{index}"), signal.SIGSTOP)
    stopped_at = run.rows()[-1]["environment_steps"]
    run.wait_for_steps(stopped_at + 10_000)
    os.kill(run.pid_of(f"actor/{index}"), signal.SIGCONT)
    run.wait_for_steps(stopped_at + 40_000)
    os.kill(run.pid_of(f"actor/{index}"), signal.SIGKILL)
    run.wait_for_steps(stopped_at + 60_000)
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    # Data that arrived too late was not learned from.
    assert set(lags(run)) == {0.0}
    assert run.leftovers() == []


@pytest.mark.slow
def test_inline_is_reproducible_to_the_last_bit(start, tmp_path):
    weights = []
    for name in ("a", "b"):
        arguments = ["--recipe", "ppo-cartpole", "--launcher", "inline", "--max-steps", 6000, "--evaluator", "false"]
        run = start("train", *arguments, "--stop-return", "null", "--run-dir", tmp_path / name)
        assert run.wait() == 0, run.text()
        checkpoint = max((tmp_path / name / "checkpoints").glob("0*"))
        with np.load(checkpoint / "policy.npz") as file:
            weights.append({key: file[key].tobytes() for key in file.files})
    assert weights[0] == weights[1]
