"""Builds the parts of an actor node: environments, policy actors, and recorders of episodes."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....agents.agent import Agent, Mode
from ....agents.policies.acting import BatchPolicy
from ....environments import BatchedEnvironment, environment_seeds, environment_text
from ....environments.batches.episode_metrics import parse_episode_metrics
from ....environments.multi_agent.policy_view import PolicyView
from ....environments.recorded import EpisodeRecorder, parse_record_infos
from ....environments.recorded.chosen_infos import ChosenInfos
from ...experiments.checked_run import Run
from ...experiments.parts.acting_part import ActingPart
from ..episodes.callback_calls import CallbackCalls, callback_run
from ..episodes.episode_sender import EpisodeSender
from ..episodes.episode_watch import WatchedEnvironment
from ..node import NodeContext, NodeHandle
from ..progress import MarkedEnvironment
from ..reports.reporting import Reporter
from .acting_environments import make_view
from .compiled_policies import acting_policies
from .fixed_policies import make_fixed_policies
from .opponents import Opponents
from .policy_actors import LocalPolicyActor, PolicyActor, RemotePolicyActor


class ActorEnvironments(NamedTuple):
    """The environments of an actor."""

    batch: BatchedEnvironment
    """The batch that the actor steps."""
    view: PolicyView
    """How the policies see it."""
    watched: WatchedEnvironment | None = None
    """Collects metrics of episodes, and calls the callbacks; None if there are neither."""
    calls: CallbackCalls | None = None
    """The callbacks; None as above."""


class ActorHandles(NamedTuple):
    """Handles of the nodes that an actor calls, by policy, see `ActorNode`."""

    learners: Mapping[str, NodeHandle]
    replays: Mapping[str, Sequence[NodeHandle]]
    inference: Mapping[str, NodeHandle]
    recorders: Mapping[str, NodeHandle]


class PreparedActor(NamedTuple):
    """The parts of an actor node."""

    environments: ActorEnvironments
    """Its batch of environments."""
    actors: dict[str, PolicyActor]
    """The actors of the policies that learn, by name, which also write records."""
    fixed: dict[str, BatchPolicy]
    """The policies that do not learn, by name."""
    opponents: Opponents
    """Gets the weights of those."""
    recorders: dict[str, EpisodeRecorder]
    """The recorders of episodes, by policy."""


def prepare_actor(
    context: NodeContext,
    reporter: Reporter,
    run: Run,
    index: int,
    incarnation: int,
    trained: Mapping[str, Agent],
    handles: ActorHandles,
) -> PreparedActor:
    """Builds the parts of an actor; weights and connections to replay follow.

    The arguments that are not listed are those of `ActorNode`.

    Args:
      reporter: has the state of the run.
      incarnation: number of earlier incarnations of the actor.
      trained: the agents of policies that other runs have trained, by policy.
      handles: the nodes that it calls.
    """
    plan, progress = run.plan(), context.progress
    first_slot, count = index * run.placement.envs_per_actor, run.placement.envs_per_actor
    progress.works_slowly("building networks")
    networks = make_fixed_policies(run.acting, plan, trained, _training_mode)
    variables = {name: policy.variables for name, (policy, _) in networks.items()}
    opponents = Opponents(list(handles.learners.values()), variables, context)
    fixed = acting_policies(plan, networks, run.placement.seed, first_slot, count, incarnation)
    progress.works_slowly("making environments")
    environments = make_actor_environments(context, reporter, run, index, incarnation, opponents.choose)
    infos = None
    if run.recording.record_infos:
        environments.batch.keep_infos()
        # What is missing in the environments of one actor is missing in those of others, too.
        notify = logging.info if index else context.notify
        names = parse_record_infos(run.recording.record_infos)
        infos = ChosenInfos(names, environment_text(run.environment.env), notify)
    progress.works_slowly("building networks")

    def make_actor(name: str) -> PolicyActor:
        policy_run = run.of_policy(name)
        if name in handles.inference:
            return RemotePolicyActor(policy_run, index, incarnation, context, handles.inference[name])
        return LocalPolicyActor(
            policy_run,
            index,
            incarnation,
            context,
            handles.learners[name],
            reporter.replay_handle(handles.replays[name]),
            reporter.learners_of(name, while_others_learn=True),
            _goal_rewards(policy_run.agent, environments.batch),
        )

    def make_recorder(name: str) -> EpisodeRecorder:
        layout = run.of_policy(name).layout
        seeds: list[int | None] = [None] * layout.envs_per_actor
        if environments.batch.has_own_seeds and len(plan.mapping.policies_of) == 1:
            # A seed with which nothing is played again is none; that of several agents is not theirs alone.
            seeds = list(environment_seeds(run.placement.seed, "actor", first_slot, len(seeds), incarnation))
        sender = EpisodeSender(context, handles.recorders[name])
        return EpisodeRecorder(layout.spec, seeds, sender, context.notify, infos=infos)

    return PreparedActor(
        environments,
        {name: make_actor(name) for name in run.policies},
        fixed,
        opponents,
        {name: make_recorder(name) for name in handles.recorders},
    )


def make_actor_environments(
    context: NodeContext,
    reporter: Reporter,
    run: Run,
    index: int,
    incarnation: int,
    choose: Callable[[str, np.random.Generator], str] = lambda policy, rng: policy,
) -> ActorEnvironments:
    """Makes the environments of an actor: with pictures, callbacks and metrics of episodes where those are wanted.

    The arguments that are not listed are those of `prepare_actor`.

    Args:
      choose: returns the member of a policy of snapshots to play with, see `MemberMapping`.
    """
    plan, count = run.plan(), run.placement.envs_per_actor
    first_slot = index * count
    # All actors see the same kind of environment: one of them is enough on the screen.
    warn = logging.warning if index else context.notify

    def make(acting: ActingPart) -> tuple[BatchedEnvironment, PolicyView]:
        return make_view(acting, "actor", first_slot, count, plan, choose, incarnation, warn)

    if index or (run.evaluation.render is None and run.evaluation.training_video_every is None):
        batch, view = make(run.acting)
    else:
        # Takes long to import.
        from ...pictures.training_pictures import made_with_pictures, with_pictures

        batch, view = made_with_pictures(run.acting, make)
        batch = with_pictures(
            batch, run.acting, run.directory, lambda: reporter.state.environment_steps, context.notify
        )
    if not run.episodes.watches_episodes:
        return ActorEnvironments(MarkedEnvironment(batch, context.progress), view)
    calls = CallbackCalls(run.episodes.callbacks, callback_run(context.name, run, reporter))
    notify = (lambda text: None) if index else context.notify
    metrics = parse_episode_metrics(run.episodes.episode_metrics)
    watched = WatchedEnvironment(batch, metrics, calls, first_slot, notify)
    return ActorEnvironments(MarkedEnvironment(watched, context.progress), view, watched, calls)


def _goal_rewards(agent: Agent, batch: BatchedEnvironment) -> Any:
    """Returns the environments' rewards for other goals, if the agent needs them; None for all others."""
    if not agent.relabels_goals():
        return None
    batch.keep_infos()
    return batch.goal_rewards


def _training_mode(agent: Agent) -> Mode:
    """Returns how a fixed policy acts in training: with random actions if its agent learns a distribution of them."""
    return "sample" if "sample" in agent.modes() else "evaluate"
