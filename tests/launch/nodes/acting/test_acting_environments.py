"""Environments of an experiment: seeds and slots of their own for every node that acts."""

import numpy as np
import pytest

from callboard.agents.impala import Impala
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.acting.acting_environments import make_environments


def first_observations(experiment, *arguments):
    environment = make_environments(experiment, *arguments)
    observation = environment.reset().observation
    environment.close()
    return observation


def test_environments_depend_on_run_role_slot_and_incarnation():
    experiment = Experiment(Impala(), "Pendulum-v1", seed=3)
    actors = first_observations(experiment, "actor", 0, 4)
    np.testing.assert_array_equal(first_observations(experiment, "actor", 2, 2), actors[2:])
    np.testing.assert_array_equal(first_observations(experiment, "actor", 0, 4), actors)
    for others in (
        first_observations(experiment, "evaluator", 0, 4),
        first_observations(experiment, "actor", 0, 4, 1),
        first_observations(Experiment(Impala(), "Pendulum-v1", seed=4), "actor", 0, 4),
    ):
        assert (others != actors).any(axis=1).all()


def test_options_reach_the_environments_and_evaluators_leave_out_those_for_training():
    pytest.importorskip("procgen")
    options = {"num_levels": 1, "start_level": 7, "distribution_mode": "easy"}
    experiment = Experiment(Impala(), "procgen:coinrun", env_options=options)
    actors = first_observations(experiment, "actor", 0, 4)
    assert (actors == actors[0]).all()
    evaluators = first_observations(experiment, "evaluator", 0, 4)
    assert (evaluators[1:] != evaluators[0]).any(axis=(1, 2, 3)).all()
