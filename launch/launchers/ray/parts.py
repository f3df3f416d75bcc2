"""The program graph in parts, for training loops written in Ray: its nodes in Ray actors and tasks.

    parts = start_parts(Experiment(agent=Sac(), env="Pendulum-v1", actors=8, max_steps=30_000))
    ray.get([train.remote(parts), *(rollout.remote(parts, index) for index in range(8))])

Import TensorFlow before `ray.init()`.  Transitions are sent in chunks to a Reverb server, never through Ray.
"""

import contextlib
import dataclasses
import math
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp
import ray
import tensorflow as tf

from ....agents.weights import WeightClient, pack_weights
from ....deadlines import Deadline
from ....errors import CallboardError
from ....replay import ReplayHandle
from ...experiment import Experiment, Run
from ...nodes.node import Unreachable
from ...nodes.replay import ReplayNode
from ...program import POLICIES, learner_policy
from ...run_directory.checkpoints import load_weights, save_policy
from ...run_directory.new_or_resumed import find_run_directory
from ...run_directory.remote_storage import is_url
from ...run_directory.run_files import begun
from ..addresses import FixedAddress
from .node_actors import CALL_SECONDS, NodeHost, RayHandle, start_node
from .parameter_server import ParameterServer
from .task_nodes import RolloutNode, TaskCoordinator, TrainingNode

_POLL_SECONDS = 0.2
_CHECK_SECONDS = 5.0
_LAST_STEPS_SECONDS = 5.0
_END_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Parts:
    """What every task needs.

    Attributes:
      run: the experiment, and the directory in which each node writes on its machine.
      coordinator: a `TaskCoordinator`, which counts steps, writes metrics and stops tasks.
      weights: a `ParameterServer`.
      replay: a `ReplayNode` per shard.
    """

    run: Run
    coordinator: RayHandle
    weights: RayHandle
    replay: tuple[RayHandle, ...]

    def status(self) -> dict[str, Any]:
        """Returns the newest metrics by name, and whether tasks are `stopping`."""
        return self.coordinator.call_until_answered("status")

    def stop(self) -> None:
        """Stops all tasks."""
        self.coordinator.call_until_answered("request_stop", "the loop has stopped it")

    def close(self) -> None:
        """Ends the servers, once all tasks have ended; replay and the coordinator write what they keep."""
        try:
            for server in (*self.replay, self.coordinator):
                with contextlib.suppress(Unreachable):
                    server.client(POLICIES["replay"].grace).end()
        finally:
            for server in (*self.replay, self.coordinator, self.weights):
                ray.kill(server.actor)

    def replay_handle(self) -> ReplayHandle:
        """Returns a handle of the replay shards for writers and datasets in this process."""
        return ReplayHandle(addresses=lambda: [shard.address() for shard in self.replay])

    def save_weights(self, path: str | pathlib.Path) -> None:
        """Writes the newest weights to an `.npz` file on this machine, with which `start_parts` can begin.

        Raises:
          CallboardError: there are no weights yet.
        """
        variables = _policy_variables(self.run)
        weights = WeightClient(self.weights.client(CALL_SECONDS), variables)
        weights.fetch()
        if not weights.apply():
            raise CallboardError("there are no weights to save; wait until the learner has published some")
        save_policy(pathlib.Path(path), variables)


def start_parts(experiment: Experiment, resume: bool = False, restore: str | pathlib.Path | None = None) -> Parts:
    """Starts the servers of an experiment on the Ray cluster that this process is connected to.

    Args:
      experiment: what to run; `actors` is the number of rollouts, and the settings of evaluations are not used.
      resume: whether to continue the run in `experiment.run_dir`.
      restore: file of weights to begin with, such as a run's `best.npz`; a checkpoint in the run directory goes first.

    Raises:
      CallboardError: the experiment, its run directory or the file of weights is not valid.
    """
    layout = experiment.check(learners_here=0)
    if experiment.inference != "local":
        raise CallboardError("rollout tasks act by themselves; set inference to local, or take --launcher ray")
    if is_url(experiment.run_dir):
        raise CallboardError(f"the run directory {experiment.run_dir} is a URL; take a path, or --launcher ray")
    experiment = dataclasses.replace(experiment, evaluator=False, stop_return=None)
    run = Run(experiment, layout, find_run_directory(experiment, resume))
    saved = None
    if restore is not None:
        variables = _policy_variables(run)
        load_weights(pathlib.Path(restore), variables)
        saved = (0, 0), pack_weights(variable.numpy() for variable in variables)
    with begun(run):
        shutil.rmtree(run.directory.temporary)
    # Each rollout may have a pending call.
    options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": min(16 + experiment.actors, 256)}
    coordinator = start_node(options, TaskCoordinator, "coordinator/0", policy=POLICIES["coordinator"], run=run)
    edges = {"policy": POLICIES["replay"], "run": run, "coordinator": coordinator}
    replay = [
        start_node({**options, "num_cpus": 1}, ReplayNode, f"replay/{shard}", shard=shard, **edges)
        for shard in range(layout.shards)
    ]
    weights: Any = ray.remote(ParameterServer)
    server = RayHandle("parameter server", weights.options(**options).remote(saved))
    return Parts(run, coordinator, server, tuple(replay))


# Each task has its own process, because TensorFlow's devices and threads can be set only once per process.
@ray.remote(num_cpus=1, max_calls=1, max_retries=3)
def rollout(parts: Parts, index: int, steps: int | None = None) -> int:
    """Steps the environments of actor `index` with the newest weights, and writes the records to replay.

    Args:
      parts: the servers.
      index: from 0 to `experiment.actors - 1`; actors with different indices have different environments and
        exploration.
      steps: environment steps after which the task ends; None continues until stopped.

    Returns:
      Environment steps since the task's last start.
    """
    limit = math.inf if steps is None else steps
    edges = {"run": parts.run, "coordinator": parts.coordinator, "learner": parts.weights, "replay": parts.replay}
    host = NodeHost()
    host.start(RolloutNode, f"actor/{index}", POLICIES["actor"], index=index, limit=limit, **edges)
    _run(host, [parts.coordinator, *parts.replay])
    return host.node.environment_steps


# A learner that has lost its checkpoints would begin anew, so whether to start it again is up to the loop.
@ray.remote(num_cpus=1, max_calls=1, max_retries=0)
def train(parts: Parts, steps: int | None = None, push_interval: float = 0.05) -> int:
    """Learns from replay, sends the weights to the parameter server, and writes checkpoints; then stops all tasks.

    The other learners of the experiment, if there are any, run in Ray actors with as many GPUs as this task has.

    Args:
      parts: the servers.
      steps: learner steps after which it ends; None continues until stopped.
      push_interval: seconds between two transfers of weights.

    Returns:
      Learner steps.
    """
    run, coordinator = parts.run, parts.coordinator
    options = {"num_gpus": len(ray.get_runtime_context().get_accelerator_ids().get("GPU", ())), "max_concurrency": 4}
    host, actor = NodeHost(), ray.remote(num_cpus=1)(NodeHost).options(**options)
    others = [RayHandle(f"learner/{rank}", actor.remote()) for rank in range(1, run.experiment.learners)]
    try:
        peers = [lp.Address("peer") for _ in range(run.experiment.learners)]
        addresses = [host.address(), *(other.address() for other in others)]
        for peer, address in zip(peers, addresses, strict=True):
            peer.bind(FixedAddress(address))
        starts = [host.start, *(other.client(_END_SECONDS).start for other in others)]
        for rank, start in enumerate(starts):
            start(
                TrainingNode,
                f"learner/{rank}",
                learner_policy(run.experiment, rank),
                run=run,
                rank=rank,
                peers=peers,
                coordinator=coordinator,
                replay=parts.replay,
                weights=parts.weights,
                limit=math.inf if steps is None else steps,
                push_interval=push_interval,
            )
        _run(
            host,
            [coordinator, *parts.replay, *others],
            host.node.push,
            min(push_interval, _POLL_SECONDS),
            _LAST_STEPS_SECONDS,
        )
        newest = host.node.get_variables(None)
        if newest is not None:
            parts.weights.call_until_answered("publish", *newest)
        return host.node.learner_steps
    finally:
        for other in others:
            ray.kill(other.actor)
        coordinator.call_until_answered("request_stop", "the learner has ended", seconds=_END_SECONDS)


def _run(
    host: NodeHost,
    servers: Sequence[RayHandle],
    work: Callable[[], None] = lambda: None,
    every: float = _POLL_SECONDS,
    patience: float = 0.0,
) -> None:
    """Runs a node until it has ended, or until `patience` seconds after tasks were stopped.

    Args:
      host: host of the node.
      servers: if one of them has failed for good, its error is raised.
      work: called while the node runs.
      every: seconds between two calls of `work`.
      patience: seconds.
    """
    for server in servers:
        server.call_until_answered("wait")
    end, next_check = Deadline(math.inf), Deadline(_CHECK_SECONDS)
    while not host.wait(every) and not end.has_passed:
        work()
        if host.node.reporter.state.stopping:
            end.restart(min(end.left, patience))
        if next_check.has_passed:
            next_check.restart(_CHECK_SECONDS)
            for server in servers:
                with contextlib.suppress(Unreachable):
                    server.client(CALL_SECONDS).wait()
    host.end()


def _policy_variables(run: Run) -> Sequence[tf.Variable]:
    agent = run.experiment.agent
    return agent.make_policy(agent.make_networks(run.layout), "train").variables
