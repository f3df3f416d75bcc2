"""A session with two policies: each is evaluated, saved, inspected and changed by its name."""

import pathlib

import numpy as np
import pytest

from callboard.agents.ppo import Ppo
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.run_directory.policy_weights import read_policy
from callboard.launch.session import Session

pytestmark = pytest.mark.slow

APEX = {"name": "apex", "batch_size": 16, "replay": {"min_size": 50}}


@pytest.fixture
def experiment(tmp_path):
    return Experiment(
        Ppo(unroll_length=8, batch_size=8, minibatches=2, epochs=1),
        "echo_agents:Echo",
        policies={"left": {}, "right": APEX},
        actors=1,
        envs_per_actor=4,
        max_steps=10_000_000,
        evaluation_envs=2,
        run_dir=tmp_path / "run",
    )


def equal(some, others):
    return some.keys() == others.keys() and all((some[name] == others[name]).all() for name in some)


def hardly_changed(some, others):
    # The first layer follows the statistics of the normalization of observations, so that the outputs stay the same.
    learned = [name for name in some if not name.startswith("normalizer/") and "/dense_0/" not in name]
    assert learned
    return all(np.abs(some[name] - others[name]).max() < 1e-20 for name in learned)


def test_a_session_controls_each_policy(experiment):
    with Session(experiment, "threads") as session:
        result = session.train(steps=2000)
        assert result.environment_steps >= 2000 and result.metrics["left/learner/step"] > 0
        for call in (session.get_weights, session.save, session.policy):
            with pytest.raises(CallboardError, match="name one of the policies that learn: policy='left'"):
                call()
        with pytest.raises(CallboardError, match="did you mean 'left'"):
            session.save(policy="lfet")

        evaluation = session.evaluate(4)
        assert len(evaluation.returns) == 4 and evaluation.lengths == [8] * 4
        metrics = evaluation.metrics
        assert {"left/return", "right/return", "agent/left/return", "agent/right/return"} <= set(metrics)
        assert metrics["left/return"] + metrics["right/return"] == pytest.approx(evaluation.mean)

        left, right = (session.get_weights(policy=name) for name in ("left", "right"))
        saved = session.save(policy="left")
        assert saved.is_relative_to(pathlib.Path(experiment.run_dir) / "policies" / "left")
        names, values, _ = read_policy(saved / "policy.npz")
        assert equal(dict(zip(names, values, strict=True)), left)
        session.set_weights({name: np.zeros_like(value) for name, value in left.items()}, policy="left")
        assert not any(value.any() for value in session.get_weights(policy="left").values())
        assert equal(session.get_weights(policy="right"), right), "only the named policy changes"
        assert session.restore(saved, policy="left") == int(saved.name[:12])
        assert equal(session.get_weights(policy="left"), left)

        for name, size in (("left", 3), ("right", 4)):
            action, _ = session.policy(policy=name)(np.eye(size, dtype=np.float32)[0])
            assert 0 <= action < size

        session.update(policy="left", learning_rate=1e-30)
        with pytest.raises(CallboardError, match="unknown setting 'entropy_cost'; choose from optimizer.learning_rate"):
            session.update(policy="right", entropy_cost=0.1)
        left = session.get_weights(policy="left")
        session.train(steps=2000)
        assert hardly_changed(session.get_weights(policy="left"), left)
        assert not equal(session.get_weights(policy="right"), right), "the other policy learns on"
        last = session.get_weights(policy="right")
    assert session.outcome.exit_code == 0
    assert equal(session.get_weights(policy="right"), last), "those of the last checkpoint"
