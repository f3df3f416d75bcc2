"""Checks of an experiment's settings against each other."""

import contextlib
from collections.abc import Sequence
from typing import Any

from ...agents import Agent
from ...agents.agent_names import agent_name
from ...agents.schedules import check_schedules
from ...agents.settings.optimizer_settings import check_own_optimizers
from ...callbacks import plain_task
from ...data import Layout
from ...environments import (
    check_agents_tasks,
    check_hooks,
    environment_names,
    environment_of_slots,
    environment_text,
    make,
)
from ...environments.batches.episode_metrics import parse_episode_metrics
from ...environments.checks.goal_trial import check_played_rewards
from ...environments.external.spaces_only import EXTERNAL_PREFIX, RECORDED_PREFIX
from ...environments.recorded import parse_record_infos
from ...errors import CallboardError, type_text
from ...settings.callback_settings import check_callbacks
from ..processes.devices import parse_devices
from ..processes.gpu_driver import find_gpus
from .curriculum import check_stages
from .parts.acting_part import ActingPart
from .parts.environment_part import EpisodesPart, PoliciesPart
from .parts.output_part import CheckpointsPart, RecordingPart
from .parts.placement_part import PlacementPart, ServerPart
from .policy_settings import SHARED
from .stop_conditions import check_conditions

_PARTS_OF_REPLAY = ("pace", "is_queue", "check", "tables", "writer", "dataset")


def check_node_counts(acting: ActingPart, recording: RecordingPart, server: ServerPart) -> None:
    """Rejects numbers of replay shards and inference nodes that do not fit the actors, and what needs others."""
    if not acting.actors and not recording.dataset:
        raise CallboardError("a run without actors learns from recorded episodes: name a dataset, or set actors to 1")
    if acting.actors and isinstance(acting.env, str) and acting.env.startswith(RECORDED_PREFIX):
        raise CallboardError("actors need an environment: name one with env, or set actors to 0")
    if not acting.actors and acting.max_learner_steps is None and acting.max_seconds is None:
        raise CallboardError(
            "a run without actors makes no environment steps that would end it: set max_learner_steps or max_seconds"
        )
    if not acting.actors and acting.inference == "central":
        raise CallboardError("central inference is for actors, and there are 0: leave inference out")
    if not acting.actors and isinstance(acting.agent, Agent) and acting.agent.setting_of_actors():
        raise CallboardError(f"agent.{acting.agent.setting_of_actors()} is for actors, and there are 0: leave it out")
    if server.policy_server is not None and recording.record_episodes:
        raise CallboardError("what a policy server's clients play is not recorded: leave record_episodes out")
    if parse_record_infos(recording.record_infos) and not recording.record_episodes:
        raise CallboardError("record_infos are infos of the episodes that are recorded: set record_episodes to true")
    if recording.record_limit != RecordingPart.record_limit and not recording.record_episodes:
        raise CallboardError("record_limit is of the episodes that are recorded: set record_episodes to true")
    for name in ("render", "training_video_every"):
        if getattr(acting, name) is not None and (not acting.actors or server.policy_server is not None):
            raise CallboardError(f"{name} is for environments that actors of the run step: leave it out")
    if acting.replay_shards > acting.actors and not recording.dataset:
        raise CallboardError(
            f"each of {acting.replay_shards} replay shards needs an actor that writes to it: set replay_shards to "
            f"at most {acting.actors}"
        )
    if acting.min_actors is not None:
        _check_actors_that_come_and_go(acting, server, recording, acting.min_actors)
    if acting.inference == "local" and acting.inference_nodes > 1:
        raise CallboardError(
            f"{acting.inference_nodes} inference nodes are for central inference: leave inference_nodes out, or "
            "set inference to central"
        )
    if acting.inference_nodes > max(1, acting.actors):
        raise CallboardError(
            f"each of {acting.inference_nodes} inference nodes needs an actor that it acts for: set "
            f"inference_nodes to at most {acting.actors}"
        )


def _check_actors_that_come_and_go(
    acting: ActingPart, server: ServerPart, recording: RecordingPart, least: int
) -> None:
    text = f"actors {least}..{acting.actors}"
    if not 1 <= least <= acting.actors:
        raise CallboardError(f"min_actors must be from 1 to {acting.actors}, the number of actors, not {least}")
    if server.policy_server is not None:
        raise CallboardError(f"{text}: the simulators of a policy server come and go anyway: give a number of actors")
    if acting.replay_shards > least and not recording.dataset:
        raise CallboardError(
            f"each of {acting.replay_shards} replay shards needs an actor that writes to it, and there may be "
            f"{least}: set replay_shards to at most {least}"
        )


def check_shares(acting: ActingPart) -> None:
    """Rejects environments in a list that would get no slot."""
    if not isinstance(acting.env, tuple):
        return
    weights = [entry.weight for entry in acting.env]
    counts = {"actors * envs_per_actor": acting.actors * acting.envs_per_actor} if acting.actors else {}
    if acting.evaluator:
        counts["evaluation_envs"] = acting.evaluation_batch()
    for setting, count in counts.items():
        missing = set(range(len(weights))) - set(environment_of_slots(weights, count).tolist())
        if missing:
            entry = acting.env[min(missing)]
            raise CallboardError(
                f"environment {environment_text(entry.name)!r} with weight {entry.weight:g} gets none of the "
                f"{count} slots: increase {setting}, or its weight"
            )


def check_devices(placement: PlacementPart, learners_here: int) -> None:
    """Rejects devices that `learners_here` learners on this machine cannot have."""
    devices = parse_devices(placement.learner_devices)
    count = devices.device_count()
    if placement.learners > 1 and count > 1 and devices.kind == "CPU":
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
    needed = len(devices.gpu_indices(gpus))
    if learners_here > 1 and devices.kind == "GPU":
        raise CallboardError(
            f"{learners_here} learners on one machine cannot all have {placement.learner_devices}: set "
            "learner_devices to the number of GPUs of each"
        )
    if learners_here * needed > gpus:
        raise CallboardError(
            f"{learners_here} learners on this machine need {learners_here * needed} GPUs, and it has {gpus}: lower "
            "learners or learner_devices"
        )


def check_evaluations(acting: ActingPart) -> None:
    """Rejects numbers of evaluations that do not fit each other, and settings that need an evaluator."""
    episodes, environments = acting.evaluation_episodes, acting.evaluation_batch()
    if acting.evaluator and episodes % environments:
        raise CallboardError(
            f"evaluation_episodes ({episodes}) must be a multiple of evaluation_envs ({environments}): every "
            "environment plays the same number of episodes; set evaluation_envs to null for the largest fitting number"
        )
    for name in ("stop_return", "patience", "video_every"):
        if getattr(acting, name) is not None and not acting.evaluator:
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


def check_run_conditions(acting: ActingPart, agent: str | None) -> None:
    """Rejects conditions on metrics that the run does not have.

    Args:
      acting: the settings of whatever plays, and the limits of the run.
      agent: name of the agent of an environment that has one; None if that is not known yet.
    """
    known = metrics_known(acting, agent)
    check_conditions(acting.stop_when, *known)
    conditions = [stage.when for stage in acting.curriculum if stage.when is not None]
    check_conditions(conditions, *known, "curriculum: when")


def metrics_known(acting: ActingPart, agent: str | None) -> tuple[str | None, dict[str, int], list[str]]:
    """Returns the arguments of `check_metric` after the name, which describe a run's metrics.

    Args:
      acting: the settings of whatever plays, and the limits of the run.
      agent: see `check_run_conditions`.
    """
    own = _own_metrics(acting) if agent else [*_own_metrics(acting), *_metrics_of_policies(acting)]
    return agent, node_counts(acting), own


def node_counts(acting: ActingPart) -> dict[str, int]:
    """Returns the number of nodes of each kind, of those that belong to a policy for each of them, at the most."""
    return {
        "coordinator": 1,
        "replay": acting.replay_shards,
        "learner": acting.learners,
        "inference": acting.inference_nodes if acting.inference == "central" else 0,
        "actor": acting.actors,
        "evaluator": int(acting.evaluator),
        "feeder": acting.replay_shards,
        "recorder": 1,
    }


def check_agent(acting: ActingPart, checkpoints: CheckpointsPart, layout: Layout, learners_here: int | None) -> None:
    """Rejects an agent that cannot learn with this layout and the settings of its run."""
    check_devices(acting, acting.learners if learners_here is None else learners_here)
    _check_replay(acting.agent, layout)
    acting.evaluation_policy_mode()
    acting.agent.check_steps("max_learner_steps", acting.max_learner_steps)
    if acting.min_actors is not None and acting.agent.make_replay(layout).pace is not None:
        raise CallboardError(
            f"{agent_name(acting.agent)} learns from the same number of sequences of every actor: set actors to a "
            f"number, not {acting.min_actors}..{acting.actors}"
        )
    acting.agent.check(layout)
    _check_publishing(acting.agent, checkpoints.publish_every_steps, layout)
    _check_goals(acting)
    check_own_optimizers(acting.agent)
    check_schedules(acting.agent, layout, acting.max_learner_steps)


def _check_replay(agent: Agent, layout: Layout) -> None:
    """Rejects an agent whose replay is none."""
    made = agent.make_replay(layout)
    missing = [part for part in _PARTS_OF_REPLAY if part not in dir(made)]
    if missing:
        raise CallboardError(
            f"{type(agent).__name__}.make_replay must return a replay, which has {', '.join(missing)}, not "
            f"{type_text(made)}; see `Replay` in replay/replay_protocol.py"
        )


def _check_publishing(agent: Agent, every: int, layout: Layout) -> None:
    """Rejects weights that come so seldom that actors which wait for them would stop."""
    if every == 1:
        return
    pace = agent.make_replay(layout).pace
    if pace is not None and every > pace.max_policy_lag + 1:
        raise CallboardError(
            f"publish_every_steps is {every}, but actors of {agent_name(agent)} wait for weights of the last "
            f"{pace.max_policy_lag + 1} learner step(s): leave it out"
        )


def _check_goals(acting: ActingPart) -> None:
    """Rejects an agent that relabels goals where no actor has an environment that computes rewards for them."""
    if not acting.agent.relabels_goals():
        return
    refused = {
        "central inference": acting.inference == "central",
        "a policy server": isinstance(acting.env, str) and acting.env.startswith(EXTERNAL_PREFIX),
        "several agents": acting.has_agents,
        "env_processes": acting.env_processes,
        "several environments in an actor": acting.envs_per_actor > 1 and len(environment_names(acting.env)) > 1,
    }
    for what, is_set in refused.items():
        if is_set:
            raise CallboardError(
                "agent.replay.hindsight computes rewards where an actor writes to replay, in the environment, which is "
                f"not there with {what}: set agent.replay.hindsight.goals to 0"
            )
    with contextlib.closing(make(acting.env, 1, [0], acting.options_of_env, range(1))) as batch:
        if batch.goal_rewards is None:
            raise CallboardError(
                "agent.replay.hindsight needs an environment with a method 'compute_reward' in the process that writes "
                f"to replay, and {environment_text(acting.env)} has none there: name another with env, or set "
                "agent.replay.hindsight.goals to 0"
            )
        if acting.actors:
            check_played_rewards(batch, environment_text(acting.env))


def _own_metrics(episodes: EpisodesPart) -> list[str]:
    """Returns the names of metrics that a run has besides the registered ones, see `check_conditions`."""
    names = [f"episode/{metric.name}" for metric in parse_episode_metrics(episodes.episode_metrics)]
    names += [f"evaluator/{name}" for name in names]
    names = [f"{name}{ending}" for name in names for ending in ("", "_min", "_max")]
    if episodes.callbacks:
        names += ["episode/*", "callbacks/*", "evaluator/callbacks/*"]
    return names


def _metrics_of_policies(environment: PoliciesPart) -> list[str]:
    """Returns the beginnings of the names of metrics that an environment with several agents has, likewise."""
    names = [*(environment.policies or (SHARED,)), "agent"]
    return [f"{beginning}{name}/*" for name in names for beginning in ("", "evaluator/")]
