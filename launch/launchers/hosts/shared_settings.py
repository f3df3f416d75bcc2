"""The settings that all hosts of a run share."""

import dataclasses

from ...experiments.experiment import Experiment
from ...experiments.policy_settings import TrainedPolicy
from ...experiments.settings import settings_by_name


def shared_settings(experiment: Experiment) -> dict[str, str]:
    """Returns the settings that must be the same on all hosts, as text by flat name.

    Other runs from which weights are taken are not among them: only the first learner's host reads those, and a
    relative path leads to another place on each host.
    """
    policies = {
        name: TrainedPolicy("") if isinstance(policy, TrainedPolicy) else policy
        for name, policy in experiment.policies.items()
    }
    settings = settings_by_name(dataclasses.replace(experiment, policies=policies))
    del settings["init_from"]
    return settings
