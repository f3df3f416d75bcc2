"""Checks of an experiment's settings against each other."""

from collections.abc import Sequence
from typing import Any

from ...agents.agent_names import agent_name
from ...agents.schedules import check_schedules
from ...agents.settings.optimizer_settings import check_own_optimizers
from ...callbacks import plain_task
from ...data import Layout
from ...environments import (
    check_agents_tasks,
    check_hooks,
    environment_of_slots,
    environment_text,
)
from ...environments.batches.episode_metrics import parse_episode_metrics
from ...environments.external.recorded_spaces import RECORDED_PREFIX
from ...environments.recorded import parse_record_infos
from ...errors import CallboardError
from ...settings.callback_settings import check_callbacks
from ..processes.devices import device_count, gpu_indices
from ..processes.gpu_driver import find_gpus
from .curriculum import check_stages
from .experiment import Experiment
from .parts.episodes_part import EpisodesPart
from .parts.placement_part import PlacementPart
from .parts.policies_part import PoliciesPart
from .policy_settings import SHARED
from .stop_conditions import check_conditions


def check_node_counts(experiment: Experiment) -> None:
    """Rejects numbers of replay shards and inference nodes that do not fit the actors."""
    if not experiment.actors and not experiment.dataset:
        raise CallboardError("a run without actors learns from recorded episodes: name a dataset, or set actors to 1")
    if experiment.actors and isinstance(experiment.env, str) and experiment.env.startswith(RECORDED_PREFIX):
        raise CallboardError("actors need an environment: name one with env, or set actors to 0")
    if not experiment.actors and experiment.max_learner_steps is None and experiment.max_seconds is None:
        raise CallboardError(
            "a run without actors makes no environment steps that would end it: set max_learner_steps or max_seconds"
        )
    if not experiment.actors and experiment.inference == "central":
        raise CallboardError("central inference is for actors, and there are 0: leave inference out")
    if experiment.policy_server is not None and experiment.record_episodes:
        raise CallboardError("what a policy server's clients play is not recorded: leave record_episodes out")
    if parse_record_infos(experiment.record_infos) and not experiment.record_episodes:
        raise CallboardError("record_infos are infos of the episodes that are recorded: set record_episodes to true")
    for name in ("render", "training_video_every"):
        if getattr(experiment, name) is not None and (not experiment.actors or experiment.policy_server is not None):
            raise CallboardError(f"{name} is for environments that actors of the run step: leave it out")
    if experiment.replay_shards > experiment.actors and not experiment.dataset:
        raise CallboardError(
            f"each of {experiment.replay_shards} replay shards needs an actor that writes to it: set replay_shards to "
            f"at most {experiment.actors}"
        )
    if experiment.inference == "local" and experiment.inference_nodes > 1:
        raise CallboardError(
            f"{experiment.inference_nodes} inference nodes are for central inference: leave inference_nodes out, or "
            "set inference to central"
        )
    if experiment.inference_nodes > max(1, experiment.actors):
        raise CallboardError(
            f"each of {experiment.inference_nodes} inference nodes needs an actor that it acts for: set "
            f"inference_nodes to at most {experiment.actors}"
        )


def check_shares(experiment: Experiment) -> None:
    """Rejects environments in a list that would get no slot."""
    if not isinstance(experiment.env, tuple):
        return
    weights = [entry.weight for entry in experiment.env]
    counts = {"actors * envs_per_actor": experiment.actors * experiment.envs_per_actor} if experiment.actors else {}
    if experiment.evaluator:
        counts["evaluation_envs"] = experiment.evaluation_batch()
    for setting, count in counts.items():
        missing = set(range(len(weights))) - set(environment_of_slots(weights, count).tolist())
        if missing:
            entry = experiment.env[min(missing)]
            raise CallboardError(
                f"environment {environment_text(entry.name)!r} with weight {entry.weight:g} gets none of the "
                f"{count} slots: increase {setting}, or its weight"
            )


def check_devices(placement: PlacementPart, learners_here: int) -> None:
    """Rejects devices that `learners_here` learners on this machine cannot have."""
    count = device_count(placement.learner_devices)
    if placement.learners > 1 and count > 1 and str(placement.learner_devices).upper().startswith("CPU"):
        raise CallboardError(
            f"each of {placement.learners} learners has one device of the processor, not {count}: "
            "set learner_devices to 1, or learners to 1"
        )
    if placement.jit_compile and placement.learners * count > 1:
        raise CallboardError(
            f"jit_compile is for one learner with one device, not for {placement.learners * count} devices: leave it "
            "out, or set learners and learner_devices to 1"
        )
    if not learners_here:
        return
    memory = [gpu.bytes / 1e9 for gpu in find_gpus().gpus]
    if placement.gpu_memory is not None and memory and placement.gpu_memory > min(memory):
        raise CallboardError(
            f"gpu_memory is {placement.gpu_memory:g} GB, and a GPU of this machine has {min(memory):.1f}: lower it"
        )
    gpus = len(memory)
    needed = len(gpu_indices(placement.learner_devices, gpus))
    if learners_here > 1 and needed and str(placement.learner_devices).upper().startswith("GPU"):
        raise CallboardError(
            f"{learners_here} learners on one machine cannot all have {placement.learner_devices}: set "
            "learner_devices to the number of GPUs of each"
        )
    if learners_here * needed > gpus:
        raise CallboardError(
            f"{learners_here} learners on this machine need {learners_here * needed} GPUs, and it has {gpus}: lower "
            "learners or learner_devices"
        )


def check_evaluations(experiment: Experiment) -> None:
    """Rejects numbers of evaluations that do not fit each other, and settings that need an evaluator."""
    episodes, environments = experiment.evaluation_episodes, experiment.evaluation_batch()
    if experiment.evaluator and episodes % environments:
        raise CallboardError(
            f"evaluation_episodes ({episodes}) must be a multiple of evaluation_envs ({environments}): every "
            "environment plays the same number of episodes; set evaluation_envs to null for the largest fitting number"
        )
    for name in ("stop_return", "patience", "video_every"):
        if getattr(experiment, name) is not None and not experiment.evaluator:
            raise CallboardError(f"{name} needs the evaluator: leave evaluator at true")


def check_callbacks_and_tasks(episodes: EpisodesPart) -> None:
    """Rejects metrics of episodes, callbacks, stages of a curriculum and tasks of evaluations that cannot work."""
    parse_episode_metrics(episodes.episode_metrics)
    check_callbacks(episodes.callbacks)
    check_stages(episodes.curriculum)
    try:
        plain_task(episodes.evaluation_task)
    except CallboardError as error:
        raise CallboardError(f"evaluation_task: {error}") from error


def check_tasks(environment: PoliciesPart, tasks: Sequence[Any], infos: bool = False) -> None:
    """Rejects tasks that the environment does not take, by making one, if there are any.

    Args:
      environment: the environment and its agents.
      tasks: the tasks; None is the environment's own.
      infos: whether the environment's infos are wanted, too.
    """
    if environment.has_agents:
        check_agents_tasks(environment.env, environment.options_of_env, environment.agent_options, tasks)
    else:
        check_hooks(environment.env, environment.options_of_env, infos, tasks)


def check_run_conditions(experiment: Experiment, agent: str | None) -> None:
    """Rejects conditions on metrics that the run does not have.

    Args:
      experiment: the experiment.
      agent: name of the agent of an environment that has one; None if that is not known yet.
    """
    known = metrics_known(experiment, agent)
    check_conditions(experiment.stop_when, *known)
    conditions = [stage.when for stage in experiment.curriculum if stage.when is not None]
    check_conditions(conditions, *known, "curriculum: when")


def metrics_known(experiment: Experiment, agent: str | None) -> tuple[str | None, int, int, bool, list[str]]:
    """Returns what is known of a run's metrics: the arguments of `check_metric` after the name.

    Args:
      experiment: the experiment.
      agent: see `check_run_conditions`.
    """
    inference_nodes = experiment.inference_nodes if experiment.inference == "central" else 0
    own = _own_metrics(experiment) if agent else [*_own_metrics(experiment), *_metrics_of_policies(experiment)]
    return agent, experiment.replay_shards, inference_nodes, experiment.evaluator, own


def check_agent(experiment: Experiment, layout: Layout, learners_here: int | None) -> None:
    """Rejects an agent that cannot learn with this layout and the settings of its experiment."""
    check_devices(experiment, experiment.learners if learners_here is None else learners_here)
    experiment.evaluation_policy_mode()
    check_learner_steps(experiment)
    experiment.agent.check(layout)
    _check_publishing(experiment, layout)
    check_own_optimizers(experiment.agent)
    check_schedules(experiment.agent, layout, experiment.max_learner_steps)


def _check_publishing(experiment: Experiment, layout: Layout) -> None:
    """Rejects weights that come so seldom that actors which wait for them would stop."""
    if experiment.publish_every_steps == 1:
        return
    pace = experiment.agent.make_replay(layout).pace
    if pace is not None and experiment.publish_every_steps > pace.max_policy_lag + 1:
        raise CallboardError(
            f"publish_every_steps is {experiment.publish_every_steps}, but actors of {agent_name(experiment.agent)} "
            f"wait for weights of the last {pace.max_policy_lag + 1} learner step(s): leave it out"
        )


def check_learner_steps(experiment: Experiment) -> None:
    """Rejects a limit of learner steps that the agent cannot reach exactly."""
    limit, at_a_time = experiment.max_learner_steps, experiment.agent.steps_at_a_time()
    if limit is not None and limit % at_a_time:
        fitting = [str(steps) for steps in (limit // at_a_time * at_a_time, (limit // at_a_time + 1) * at_a_time)]
        raise CallboardError(
            f"max_learner_steps ({limit}) must be a multiple of agent.updates_per_call ({at_a_time}), the learner "
            f"steps made at a time: set it to {' or '.join(steps for steps in fitting if steps != '0')}"
        )


def _own_metrics(experiment: Experiment) -> list[str]:
    """Returns the names of metrics that a run has besides the registered ones, see `check_conditions`."""
    names = [f"episode/{metric.name}" for metric in parse_episode_metrics(experiment.episode_metrics)]
    names += [f"evaluator/{name}" for name in names]
    names = [f"{name}{ending}" for name in names for ending in ("", "_min", "_max")]
    if experiment.callbacks:
        names += ["episode/*", "callbacks/*", "evaluator/callbacks/*"]
    return names


def _metrics_of_policies(experiment: Experiment) -> list[str]:
    """Returns the beginnings of the names of metrics that an environment with several agents has, likewise."""
    names = [*(experiment.policies or (SHARED,)), "agent"]
    return [f"{beginning}{name}/*" for name in names for beginning in ("", "evaluator/")]
