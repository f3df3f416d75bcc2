"""Values of policies from recorded episodes, against what they gain."""

from types import SimpleNamespace

import numpy as np
import pytest

from callboard import Experiment, estimate_value, run
from callboard.errors import CallboardError
from callboard.settings.nested_settings import from_values
from callboard.studies.datasets.fitted_q_evaluation import FittedQSettings

pytest.importorskip("minari")


@pytest.fixture(scope="module")
def ppo(tmp_path_factory):
    """A run of PPO that has recorded its episodes, and has hardly learned."""
    from callboard.agents.ppo import Ppo

    directory = tmp_path_factory.mktemp("runs") / "ppo"
    agent = from_values(
        Ppo, {"batch_size": 4, "unroll_length": 32, "minibatches": 1, "epochs": 1, "optimizer.learning_rate": 1e-9}
    )
    common = {"actors": 1, "envs_per_actor": 4, "evaluator": False, "record_episodes": True}
    outcome = run(Experiment(agent, env="CartPole-v1", max_steps=2000, run_dir=directory, **common), "inline")
    assert outcome.exit_code == 0, outcome.error
    return str(directory)


@pytest.mark.slow
def test_all_methods_agree_on_the_policy_that_acted(ppo):
    from callboard import dataset_info

    lengths = dataset_info(ppo).lengths
    true = np.mean((1 - 0.95**lengths) / (1 - 0.95))
    for method in ("is", "wis"):
        found = estimate_value(f"{ppo}@latest", ppo, method, behavior=f"{ppo}@latest", discount=0.95)
        assert found.value == pytest.approx(true, rel=0.02)
    settings = FittedQSettings(steps=300, learning_rate=3e-3, hidden_sizes=(32,), target_update_rate=0.05)
    found = estimate_value(f"{ppo}@latest", ppo, discount=0.95, mode="sampled", settings=settings)
    assert found.value == pytest.approx(true, rel=0.3)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"method": "wis"}, "method wis needs behavior"),
        ({"behavior": "runs/x"}, "method fqe takes no behavior"),
        ({"method": "dr"}, "the method is fqe, wis or is, not 'dr'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(settings, problem):
    with pytest.raises(CallboardError, match=problem):
        estimate_value("runs/x", "runs/y", **settings)


def test_discounts_of_the_environment_are_part_of_every_estimate(tmp_path, monkeypatch):
    from recorded_sets import CARTPOLE, cartpole_episode, write

    from callboard.studies.datasets import value_estimates

    discount = [0.5, 1, 0.5, 1]
    name = write(tmp_path / "set-v0", CARTPOLE, [{**cartpole_episode(1, 4), "discount": discount}])

    class Saved(tuple):
        policy = SimpleNamespace(initial_state=lambda size: ())

    experiment = SimpleNamespace(agent=SimpleNamespace(reward_discount=lambda: 0.5))
    monkeypatch.setattr(
        value_estimates, "read_saved_policy", lambda *_, **__: Saved((Saved.policy, CARTPOLE, experiment))
    )
    monkeypatch.setattr(value_estimates, "check_probabilities", lambda *_: None)
    monkeypatch.setattr(value_estimates, "_log_prob", lambda *_: np.zeros(4))
    wanted = 1 + 0.5 * 0.5 + 0.5**2 * 0.5 + 0.5**3 * 0.25
    for method in ("is", "wis"):
        assert estimate_value("x", name, method, behavior="y").value == pytest.approx(wanted)
    learned = []
    monkeypatch.setattr(value_estimates, "_actions", lambda *_: None)
    monkeypatch.setattr(value_estimates, "fitted_q_evaluation", lambda spec, found, *_: learned.append(found))
    estimate_value("x", name)
    assert learned[0].discount.tolist() == discount


@pytest.mark.slow
def test_the_defaults_find_the_value_of_a_policy_among_those_that_acted(tmp_path):
    from callboard import dataset_info
    from callboard.cli.command import main

    run_dir, own = str(tmp_path / "run"), str(tmp_path / "own-v0")
    limits = ["--max-steps", "20000", "--evaluate-every", "20000", "--launcher", "inline", "--seed", "1"]
    assert (
        main(["train", "ppo", "--env", "CartPole-v1", "--record-episodes", "true", *limits, "--run-dir", run_dir]) == 0
    )
    assert main(["evaluate", run_dir, "--episodes", "100", "--mode", "sampled", "--record", own]) == 0
    true = np.mean((1 - 0.99 ** dataset_info(own).lengths) / (1 - 0.99))
    found = estimate_value(run_dir, run_dir, discount=0.99, mode="sampled")
    assert found.value == pytest.approx(true, rel=0.1)
