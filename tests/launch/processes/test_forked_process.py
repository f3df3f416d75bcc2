"""What uses TensorFlow is refused in a process that was forked after TensorFlow was used, where it would never end."""

import dataclasses
import os
import signal

import numpy as np
import pytest

import callboard
from callboard import Experiment, run
from callboard.agents.impala import Impala
from callboard.settings.nested_settings import from_values


def said_in_fork(function):
    """The message of the error that a function raises in a forked process; its result if there is none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        try:
            text = repr(function())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, "it has not ended"
    return text


@pytest.mark.slow("daily")
def test_what_would_hang_is_refused(tmp_path):
    path = tmp_path / "a"
    settings = {"network.hidden_sizes": (4,), "unroll_length": 4, "batch_size": 2}
    experiment = Experiment(
        from_values(Impala, settings),
        env="CartPole-v1",
        actors=1,
        evaluator=False,
        max_steps=64,
        run_dir=tmp_path / "a",
    )
    assert run(experiment, "inline").exit_code == 0
    policy = callboard.load_policy(path)
    callboard.export(path, tmp_path / "model")
    another = dataclasses.replace(experiment, run_dir=tmp_path / "b")
    for function in (
        lambda: policy(np.zeros((300, 4), np.float32)),
        lambda: policy.initial_state(7),
        lambda: callboard.load_policy(path),
        lambda: callboard.load_policy(tmp_path / "model"),
        lambda: callboard.evaluate(path, episodes=1),
        lambda: callboard.export(path, tmp_path / "other"),
        lambda: run(another, "inline"),
        lambda: run(another, "threads"),
    ):
        assert said_in_fork(function).startswith("CallboardError: this process was forked from one that had used")
    assert not (tmp_path / "b").exists() and not (tmp_path / "other").exists()
    # Nodes have processes of their own, which are forked from another one.
    assert said_in_fork(lambda: run(another, "processes").exit_code) == "0"
