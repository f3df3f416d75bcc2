"""The environments of evaluations, together with what acts in them."""

import numpy as np
import pytest

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_plan import make_plan
from callboard.launch.experiments.policy_settings import RandomPolicy, Snapshots
from callboard.launch.nodes.acting.compiled_policies import acting_policies
from callboard.launch.nodes.evaluation.evaluation_players import EvaluationPlayers, evaluation_mode


def echo(**policies):
    return Experiment(Ppo(), "echo_agents:Echo", env_options={"alike": True}, policies=policies)


def plan_of(experiment):
    return make_plan(experiment, experiment.agent_specs(), evaluation=True)


def test_random_policies_act_in_all_environments():
    experiment = echo(left=RandomPolicy(), right=RandomPolicy())
    players = EvaluationPlayers(plan_of(experiment), {})
    environments, policy = players.make(experiment, 3)
    timestep = environments.reset()
    for _ in range(8):
        actions, _ = policy(timestep)
        assert {name: action.shape for name, action in actions.items()} == {"left": (3,), "right": (3,)}
        timestep = environments.step(actions)
    assert timestep.last.all() and len(environments.take_episodes()) == 3
    environments.close()


def test_a_policy_of_several_agents_has_a_slot_for_each():
    experiment = Experiment(
        Ppo(), "echo_agents:Echo", env_options={"alike": True}, policies={"all": RandomPolicy()}, mapping={"*": "all"}
    )
    plan = plan_of(experiment)
    (policy,) = acting_policies(plan, {}, seed=0, first_env=4, envs=3).values()
    assert policy(type("Seen", (), {"observation": np.zeros((6, 3))}))[0].shape == (6,)


def test_environments_without_players_have_the_policies_of_all_members():
    experiment = echo(left=Ppo(), right=Snapshots("left", keep=2))
    environments, _ = EvaluationPlayers(plan_of(experiment), {}).make(experiment, 2)
    timestep = environments.reset()
    assert set(timestep.observation) == {"left", "right/0", "right/1"}
    environments.close()


@pytest.mark.parametrize(
    ("agent", "setting", "mode"),
    [(Ppo(), "greedy", "evaluate"), (Ppo(), "sampled", "sample"), (Apex(), "sampled", "evaluate")],
)
def test_a_policy_without_a_distribution_takes_the_best_actions(agent, setting, mode):
    experiment = Experiment(Ppo(), "CartPole-v1", evaluation_mode=setting)
    assert evaluation_mode(experiment, agent) == mode
