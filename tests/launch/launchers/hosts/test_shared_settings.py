"""Which settings all hosts must share."""

import dataclasses

from callboard.agents.sac import Sac
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_settings import TrainedPolicy
from callboard.launch.launchers.hosts.shared_settings import shared_settings

EXPERIMENT = Experiment(agent=Sac(), env="Pendulum-v1", init_from="/a/run", init_parts="all")


def test_hosts_may_take_weights_from_different_places():
    here = dataclasses.replace(EXPERIMENT, policies={"left": Sac(), "old": TrainedPolicy("/a/run")})
    there = dataclasses.replace(here, init_from="/b/run", policies={"left": Sac(), "old": TrainedPolicy("/b/run")})
    assert shared_settings(here) == shared_settings(there)


def test_everything_else_must_be_the_same():
    settings = shared_settings(EXPERIMENT)
    changes = {
        "init_parts": ("torso",),
        "policies": {"left": Sac(), "old": TrainedPolicy("/a/run")},
        "agent": Sac(discount=0.9),
        "max_steps": 7,
    }
    for name, value in changes.items():
        changed = shared_settings(dataclasses.replace(EXPERIMENT, **{name: value}))
        (different,) = [key for key in settings if settings[key] != changed[key]]
        assert different.startswith(name)
    with_one = dataclasses.replace(EXPERIMENT, policies={"left": Sac()})
    assert shared_settings(with_one) != shared_settings(dataclasses.replace(EXPERIMENT, **changes))
    assert "run_dir" not in settings
