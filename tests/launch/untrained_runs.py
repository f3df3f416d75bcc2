"""Runs as if they had been trained, for what reads a run."""

import numpy as np

from callboard.environments.batches.spec_files import format_spec
from callboard.files.manifest import write_manifest
from callboard.launch.experiments.policy_plan import make_plan
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment, write_experiment
from callboard.launch.nodes.evaluation.evaluation_players import EvaluationPlayers, make_evaluated_policies
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.policy_weights import save_policy

SMALL = ("--agent.network.hidden-sizes=[4]", "--evaluation-envs=2")


DEFAULTS = ("--env=CartPole-v1", "--env-options.max_episode_steps=7", *SMALL)


def write_run(path, agent="impala", options=DEFAULTS, steps=(), best=True, scale=0):
    """Writes a run with the agent's initial weights; returns its experiment and directory.

    Args:
      path: the run directory.
      agent: name of the agent.
      options: settings of the run.
      steps: learner steps that have a checkpoint.
      best: whether there is a best policy.
      scale: standard deviation of random weights, without biases; 0 for the agent's initial weights.
    """
    experiment = parse_experiment(agent, {}, [*options, f"--run-dir={path}"])
    run = RunDirectory(path)
    run.create()
    write_experiment(experiment, run.experiment)
    layout = check_experiment(experiment).whole
    run.environment.write_text(format_spec(layout.spec))
    policy = experiment.agent.make_policy(experiment.agent.make_networks(layout), "evaluate")
    if scale:
        rng = np.random.default_rng(3)
        for variable in policy.variables:
            if variable.shape.rank > 1:
                variable.assign(rng.normal(scale=scale, size=variable.shape))
    if best:
        save_policy(run.best_policy, policy, mean_return=0.0, learner_step=0)
    for step in steps:
        checkpoint = run.checkpoints / f"{step:012d}"
        checkpoint.mkdir()
        save_policy(checkpoint / "policy.npz", policy)
        write_manifest(checkpoint)
    return experiment, run


def untrained_players(experiment):
    """Returns the environments of an experiment's evaluations, with its agent's initial policy."""
    plan = make_plan(experiment, experiment.agent_specs(), evaluation=True)
    return EvaluationPlayers(plan, make_evaluated_policies(experiment, plan, {})[0])
