"""A run as its nodes receive it: its plan, and the part of each policy."""

import pathlib
import pickle

from echo_agents import Taught

from callboard.agents.ppo import Ppo
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.run_directory.layout import RunDirectory

PPO = Ppo(unroll_length=8, batch_size=8, minibatches=2, epochs=1)
BOTH: dict[str, dict] = {"left": {}, "right": {"entropy_cost": 0.5}}


def test_the_environment_is_made_once_to_read_its_agents():
    experiment = Experiment(PPO, "echo_agents:Taught", policies=BOTH, actors=1, envs_per_actor=4)
    before = Taught.made
    run = Run.of(experiment, check_experiment(experiment), RunDirectory(pathlib.Path("run")))
    assert Taught.made == before + 1
    in_a_node = pickle.loads(pickle.dumps(run))
    assert list(in_a_node.plan().slots) == list(in_a_node.plan(evaluation=True).slots) == ["left", "right"]
    assert list(in_a_node.policies) == [one.policy for one in in_a_node.policy_runs] == ["left", "right"]
    assert Taught.made == before + 1, "nodes make none for that"

    right = in_a_node.of_policy("right")
    assert right.experiment.agent.entropy_cost == 0.5 and right.directory.path == pathlib.Path("run/policies/right")
    assert right.name_of("learner", 0) == "learner/right/0" and run.name_of("learner", 0) == "learner/0"
    assert right.policy_runs == [right] and list(right.policies) == ["right"]


def test_a_run_of_one_agent_is_a_run_of_one_policy_without_a_name():
    experiment = Experiment(PPO, "CartPole-v1", actors=1, envs_per_actor=4)
    run = Run.of(experiment, check_experiment(experiment), RunDirectory(pathlib.Path("run")))
    assert run.policies == {"": run.layout} and run.policy_runs == [run] and run.policy_runs[0] is run
    for plan in (run.plan(), Run(experiment, run.layout, run.directory).plan(evaluation=True)):
        assert plan.learning == {"": PPO} and plan.slots[""].spec == run.layout.spec
        assert plan.layout_in(experiment, "") == run.layout
