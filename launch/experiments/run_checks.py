"""The checks of a whole experiment, before anything starts."""

from ...environments.batches.episode_metrics import parse_episode_metrics
from ...errors import CallboardError
from ...settings.setting_types import check_ranges
from ..loggers.metric_logger import check_loggers, require_package
from .experiment import Experiment
from .experiment_checks import (
    check_callbacks_and_tasks,
    check_evaluations,
    check_node_counts,
    check_run_conditions,
    check_shares,
    check_tasks,
)
from .parts.output_part import OutputPart
from .policy_checks import check_number_of_agents, check_policies_learn
from .policy_plan import Layouts
from .policy_server_settings import check_policy_server
from .warm_start_settings import check_parts


def check_settings(experiment: Experiment) -> None:
    """Rejects settings that are out of range or inconsistent; makes no environment, and does not check the agent.

    Raises:
      CallboardError: names the problem and a valid value, in one line.
    """
    check_ranges(experiment)
    check_policy_server(experiment, experiment)
    check_node_counts(experiment, experiment, experiment)
    check_shares(experiment)
    check_evaluations(experiment)
    check_callbacks_and_tasks(experiment)
    check_run_conditions(experiment, None)
    check_parts(experiment.init_from, experiment.init_parts, experiment.freeze)
    check_loggers(experiment.loggers)
    if experiment.prometheus_port is not None:
        require_package("prometheus_client", "prometheus", "leave prometheus_port out")
    elif experiment.prometheus_host != OutputPart.prometheus_host:
        raise CallboardError("prometheus_host is where prometheus_port is served: set prometheus_port, such as 9090")


def check_experiment(experiment: Experiment, learners_here: int | None = None) -> Layouts:
    """Rejects an experiment that cannot work.

    Args:
      experiment: the experiment.
      learners_here: number of learners that will run on this machine, which must have their devices; None for all.

    Returns:
      All that nodes have to know of the environment; layouts are without their record and state.

    Raises:
      CallboardError: names the problem and a valid value, in one line.
    """
    check_settings(experiment)
    check_number_of_agents(experiment, experiment)
    layouts = check_policies_learn(experiment, experiment, experiment.agent_specs(), learners_here)
    tasks = [*(stage.task for stage in experiment.curriculum), experiment.evaluation_task]
    check_tasks(experiment, tasks, bool(parse_episode_metrics(experiment.episode_metrics) or experiment.record_infos))
    return layouts
