"""Policies of runs and exports act without their environment as they do in an evaluation."""

import re
import shutil

import gymnasium
import numpy as np
import pytest
from critic_state import Guess
from untrained_runs import write_run

import callboard
from callboard import environments
from callboard.agents.policies.acting import CompiledPolicy
from callboard.cli.command import main
from callboard.environments.masked_observations import masked
from callboard.errors import CallboardError
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.saved.saved_policies import policy_file, restored_policy
from callboard.launch.trained.saved_runs import load_policy

MASKED = ("--env=callboard.environments.masked_observations:masked", "--agent.network.lstm-size=16")
CASES = {
    "impala": (("--env=CartPole-v1", "--env-options.vectorized=false"), lambda: gymnasium.make("CartPole-v1")),
    "r2d2": (MASKED, masked),
    "sac": (("--env=Pendulum-v1",), lambda: gymnasium.make("Pendulum-v1")),
}
TIMESTEPS = 40


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Gives the run of an agent, whose weights are large enough for actions of every kind."""
    made = {}

    def of_agent(agent):
        if agent not in made:
            path = tmp_path_factory.mktemp(agent) / "run"
            made[agent] = write_run(path, agent, CASES[agent][0], steps=(5, 12), scale=2)[0], path
        return made[agent]

    return of_agent


def evaluated(experiment, path):
    """The actions of the run's policy in an environment of Callboard, as in an evaluation."""
    layout = experiment.layout()
    policy = restored_policy(experiment, layout, policy_file(RunDirectory(path), "best"))
    acting = CompiledPolicy(policy, layout, np.arange(1), experiment.seed)
    environment = environments.make(experiment.env, 1, [3], experiment.env_options)
    timestep, actions = environment.reset(), []
    for _ in range(TIMESTEPS):
        action, _ = acting(timestep)
        actions.append(action[0])
        timestep = environment.step(action)
        if timestep.last[0]:
            break
    return actions


def played(policy, environment):
    """The actions of a loaded policy in the user's own environment."""
    observation, _ = environment.reset(seed=3)
    state, reward, actions = None, 0.0, []
    for _ in range(TIMESTEPS):
        action, state = policy(observation, state, reward)
        actions.append(action)
        observation, reward, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            break
    return actions


@pytest.mark.slow("daily")
@pytest.mark.parametrize("agent", CASES)
def test_a_loaded_policy_acts_in_the_users_environment_as_in_an_evaluation(agent, runs):
    experiment, path = runs(agent)
    actions = played(load_policy(path), CASES[agent][1]())
    expected = evaluated(experiment, path)
    assert len(actions) == len(expected) > 8
    np.testing.assert_allclose(actions, expected, rtol=1e-5)
    assert len(np.unique(expected)) > 1


@pytest.mark.slow("daily")
@pytest.mark.parametrize("agent", ["impala", pytest.param("r2d2", marks=pytest.mark.slow)])
def test_an_export_acts_as_its_run_without_files_of_the_run(agent, runs, tmp_path):
    _, path = runs(agent)
    expected = played(load_policy(path), CASES[agent][1]())
    assert main(["export", str(path), str(tmp_path / "model")]) == 0
    policy = load_policy(tmp_path / "model")
    assert played(policy, CASES[agent][1]()) == expected
    assert policy.uses_reward == (agent == "r2d2")
    # A policy without memory has no state, as that of a run.
    assert (policy.initial_state() == ()) == (agent == "impala")
    with pytest.raises(CallboardError, match="is an export and acts as its run's evaluations: leave mode, seed and"):
        load_policy(tmp_path / "model", "greedy")
    (tmp_path / "model" / "assets.extra" / "environment.json").unlink()
    with pytest.raises(CallboardError, match="has no assets.extra/environment.json: .*; export the policy again"):
        load_policy(tmp_path / "model")


def test_neither_an_environment_nor_an_actor_is_made(runs, monkeypatch):
    _, path = runs("impala")

    def refuse(*arguments, **options):
        raise AssertionError("an environment was made")

    monkeypatch.setattr("callboard.environments.factory.make", refuse)
    monkeypatch.setattr("callboard.environments.factory._resolve", refuse)
    action, state = callboard.load_policy(path)(np.zeros(4, np.float32))
    assert action in (0, 1) and state == ()


@pytest.mark.slow("daily")
def test_weights_are_named_by_a_checkpoint_or_a_url(runs, monkeypatch):
    _, path = runs("impala")
    chosen = []
    monkeypatch.setattr(
        "callboard.launch.trained.saved_runs.policy_file",
        lambda directory, checkpoint: chosen.append(checkpoint) or policy_file(directory, checkpoint),
    )
    directory = path / "checkpoints" / "000000000005"
    for source in (path, f"{path}@latest", f"{path}@5", directory, str(directory)):
        load_policy(source)
    assert chosen == ["best", "latest", "5", directory.name, directory.name]


def test_a_run_at_a_url(runs):
    _, path = runs("impala")
    assert load_policy(f"file://{path}@best")(np.zeros((3, 4)))[0].shape == (3,)


@pytest.mark.slow("daily")
def test_sampled_actions_repeat_with_their_seed(runs):
    _, path = runs("impala")
    observations = np.random.default_rng(1).normal(0, 0.02, (64, 4)).astype(np.float32)
    actions = [load_policy(path, "sampled", seed=seed)(observations)[0].tolist() for seed in (1, 1, 2)]
    assert actions[0] == actions[1] != actions[2]


def test_what_cannot_be_loaded_is_refused_in_one_line(runs, tmp_path):
    _, path = runs("impala")
    old = tmp_path / "old"
    shutil.copytree(path, old)
    (old / "environment.json").unlink()
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        (
            (old,),
            f"the run in {old} is from before the specs of environments were saved: resume it, which",
        ),
        ((tmp_path / "none",), f"there is no run in {tmp_path / 'none'}: it has no experiment.yaml"),
        ((tmp_path / "empty",), "there is no run in "),
        ((f"{path}@7",), f"{path} has no checkpoint 7; choose from best, latest, 5, 12"),
        ((f"{path}@new",), f"unknown checkpoint 'new' in {path}@new; write @best, @latest or @ and a step"),
        ((5,), "name the policy by a path or a URL, not by an int"),
        ((path, "best"), "mode must be greedy or sampled, not 'best'"),
        ((path, None, -1), "seed must be a whole number from 0 to 2,147,483,647, not -1"),
        ((path, None, None, 0.5), "Impala takes no epsilon"),
    ):
        with pytest.raises(CallboardError, match=f"^{re.escape(message)}[^\n]*$"):
            load_policy(*arguments)


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "agent, core",
    [("impala", "none"), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("ppo", "gru"), ("a2c", "none")))],
)
def test_a_policy_acts_without_what_only_its_critic_saw(agent, core, tmp_path):
    network = {"shared": "false", "critic-state": "state", "core": core, "hidden-sizes": "[8]"}
    options = [f"--agent.network.{key}={value}" for key, value in network.items()]
    path = tmp_path / "run"
    experiment, _ = write_run(path, agent, ("--env=critic_state:Guess", *options), steps=(5,), scale=2)
    expected = evaluated(experiment, path)
    main(["export", str(path), str(tmp_path / "model")])
    for source in (path, tmp_path / "model"):
        policy = load_policy(source)
        assert set(policy.spec.observation) == {"own"}
        environment, state, actions = Guess(), None, []
        observation, _ = environment.reset(seed=3)
        for _ in expected:
            action, after = policy({"own": observation["own"]}, state)
            if source == path:
                assert policy(observation, state)[0] == action
            else:
                with pytest.raises(CallboardError, match="the part 'state', which the policy does not know"):
                    policy(observation, state)
            state = after
            actions.append(action)
            observation, *_ = environment.step(action)
        assert actions == expected
        assert len(set(actions)) == 2
