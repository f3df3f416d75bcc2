"""The settings and the code that all hosts of a run share."""

import dataclasses
from typing import Any

from ....settings.own_files import digests_of, own_files
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


OF_FILE = "the file "
"""Beginning of the names of entries for source files."""


def shared_code(experiment: Experiment, *others: Any) -> dict[str, str]:
    """Returns digests of the files of the user's own modules, which must be the same on all hosts.

    Args:
      experiment: its settings name modules.
      others: what else has been taken from modules, such as the classes of nodes of the user's own.
    """
    digests = digests_of(own_files(experiment, *others))
    return {f"{OF_FILE}{name}": digest for name, digest in digests.items()}
