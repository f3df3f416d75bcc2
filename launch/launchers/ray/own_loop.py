"""Single nodes of the program graph, for training loops written in Ray: its nodes in Ray actors and tasks.

    servers = start_servers(Experiment(agent=Sac(), env="Pendulum-v1", actors=8, max_steps=30_000))
    ray.get([train.remote(servers), *(rollout.remote(servers, index) for index in range(8))])

Import TensorFlow before `ray.init()`.  Transitions are sent in chunks to a Reverb server, never through Ray.
"""

import contextlib
import dataclasses
import functools
import math
import pathlib
import shutil
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import ray

from ....agents.agent import Policy
from ....agents.variables.weights import WeightClient, pack_weights
from ....environments import ONLY_AGENT
from ....errors import CallboardError
from ....replay import ReplayHandle
from ....runtime.deadlines import Deadline
from ...experiments.checked_run import Run
from ...experiments.experiment import Experiment
from ...experiments.new_or_resumed import find_run_directory
from ...experiments.run_checks import check_experiment
from ...experiments.run_files import begun
from ...node_rules import RULES, learner_rules
from ...nodes.acting.weight_store import ParameterServer
from ...nodes.node import NodeClient, Unreachable, fixed_address
from ...nodes.replay import ReplayNode
from ...run_directory.file_errors import file_error
from ...run_directory.policy_weights import load_weights, save_policy
from ...run_directory.remote_storage import is_url
from ...saved.warm_start import check_warm_start
from .node_actors import CALL_SECONDS, NodeHost, RayHandle, start_node
from .task_nodes import RolloutNode, TaskCoordinator, TrainingNode

_POLL_SECONDS = 0.05
_CHECK_SECONDS = 5.0
_LAST_STEPS_SECONDS = 5.0
_END_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Servers:
    """Arguments of every task.

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
                    server.client(RULES["replay"].grace).end()
        finally:
            for server in (*self.replay, self.coordinator, self.weights):
                ray.kill(server.actor)

    def replay_handle(self) -> ReplayHandle:
        """Returns a handle of the replay shards for writers and datasets in this process."""
        return ReplayHandle(
            lambda: [shard.address() for shard in self.replay],
            windows=functools.cache(lambda shard, timeout: NodeClient(self.replay[shard], timeout)),
        )

    def save_weights(self, path: str | pathlib.Path) -> None:
        """Writes the newest weights to an `.npz` file on this machine, with which `start_servers` can begin.

        Raises:
          CallboardError: there are no weights yet, or the file cannot be written.
        """
        policy = _policy(self.run)
        weights = WeightClient(self.weights.client(CALL_SECONDS), policy.variables)
        weights.fetch()
        if not weights.apply():
            raise CallboardError("there are no weights to save; wait until the learner has published some")
        try:
            save_policy(pathlib.Path(path), policy)
        except OSError as error:
            raise CallboardError(f"the weights could not be written to {path}: {file_error(error)}") from error


def start_servers(experiment: Experiment, resume: bool = False, restore: str | pathlib.Path | None = None) -> Servers:
    """Starts the servers of an experiment on the Ray cluster that this process is connected to.

    Args:
      experiment: what to run; `actors` is the number of rollouts, and the settings of evaluations are not used.
      resume: whether to continue the run in `experiment.run_dir`.
      restore: file of weights to begin with, such as a run's `best.npz`; a checkpoint in the run directory goes first.

    Raises:
      CallboardError: the experiment, its run directory or the file of weights is not valid.
    """
    experiment = experiment.with_absolute_sources()
    layout, _, agents = check_experiment(experiment, learners_here=0)
    if ONLY_AGENT not in agents:
        raise CallboardError("rollout tasks act with one policy in environments with one agent; use the launcher ray")
    check_warm_start(experiment, experiment.agent, layout, new=not resume)
    if experiment.inference != "local":
        raise CallboardError("rollout tasks act by themselves; set inference to local, or use the launcher ray")
    if is_url(experiment.run_dir):
        raise CallboardError(f"the run directory {experiment.run_dir} is a URL; set a path, or use the launcher ray")
    experiment = dataclasses.replace(experiment, evaluator=False, stop_return=None)
    run = Run(experiment, layout, find_run_directory(experiment, resume), start=uuid.uuid4().hex)
    saved = None
    if restore is not None:
        variables = _policy(run).variables
        load_weights(pathlib.Path(restore), variables)
        saved = (0, 0), pack_weights(variable.numpy() for variable in variables)
    with begun(run):
        shutil.rmtree(run.directory.temporary)
    # Each rollout may have a pending call.
    options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": min(16 + experiment.actors, 256)}
    coordinator = start_node(options, TaskCoordinator, "coordinator/0", rules=RULES["coordinator"], run=run)
    shared = {"rules": RULES["replay"], "run": run, "coordinator": coordinator}
    shards = range(layout.shards)
    replay = [start_node({**options, "num_cpus": 1}, ReplayNode, f"replay/{k}", shard=k, **shared) for k in shards]
    server: Any = ray.remote(**options)(ParameterServer)
    return Servers(run, coordinator, RayHandle("parameter server", server.remote(saved)), tuple(replay))


# Each task has its own process, because TensorFlow's devices and threads can be set only once per process.
@ray.remote(num_cpus=1, max_calls=1, max_retries=3)
def rollout(servers: Servers, index: int, steps: float = math.inf) -> int:
    """Steps the environments of actor `index` with the newest weights, and writes the records to replay.

    Args:
      servers: the servers.
      index: from 0 to `experiment.actors - 1`; actors with different indices have different environments and
        exploration.
      steps: environment steps after which the task ends; by default it continues until stopped.

    Returns:
      Environment steps since the task's last start.

    Raises:
      CallboardError: there is no such actor, or `steps` is not positive.
    """
    actors = servers.run.placement.actors
    if index not in range(actors):
        raise CallboardError(f"rollout {index!r} does not exist; the experiment has actors 0 to {actors - 1}")
    _check_steps(steps)
    host = NodeHost(f"actor/{index}")
    host.start(
        RolloutNode,
        RULES["actor"],
        index=index,
        limit=steps,
        run=servers.run,
        coordinator=servers.coordinator,
        learners={ONLY_AGENT: servers.weights},
        replays={ONLY_AGENT: servers.replay},
        inference={},
        recorders={},
    )
    _run(host, [servers.coordinator, *servers.replay])
    return host.node.environment_steps


# A learner that has lost its checkpoints would begin anew, so whether to start it again is up to the loop.
@ray.remote(num_cpus=1, max_calls=1, max_retries=0)
def train(servers: Servers, steps: float = math.inf, push_interval: float = 0.05) -> int:
    """Learns from replay, sends the weights to the parameter server, and writes checkpoints; then stops all tasks.

    The other learners of the experiment, if there are any, run in Ray actors with as many GPUs as this task has.

    Args:
      servers: the servers.
      steps: learner steps after which it ends; by default it continues until stopped.
      push_interval: seconds between two transfers of weights, at least 0.05.

    Returns:
      Learner steps.

    Raises:
      CallboardError: `steps` is not positive, or `push_interval` is too short.
    """
    _check_steps(steps)
    if not push_interval >= _POLL_SECONDS:
        raise CallboardError(f"push_interval must be at least {_POLL_SECONDS} seconds, not {push_interval}")
    gpus = len(ray.get_runtime_context().get_accelerator_ids().get("GPU", ()))
    host, actor = NodeHost("learner/0"), ray.remote(num_cpus=1, num_gpus=gpus, max_concurrency=4)(NodeHost)
    placement = servers.run.placement
    others = [RayHandle(name, actor.remote(name)) for name in (f"learner/{k}" for k in range(1, placement.learners))]
    try:
        peers = [fixed_address(address) for address in (host.address(), *(other.address() for other in others))]
        shared = {**vars(servers), "peers": peers, "limit": steps, "push_interval": push_interval}
        rules = [learner_rules(placement, rank) for rank in range(placement.learners)]
        # TensorFlow may block all Python threads of a process until it has connected to the other learners.
        started = [
            other.actor.start.remote(TrainingNode, rules[rank], rank=rank, **shared)
            for rank, other in enumerate(others, 1)
        ]
        host.start(TrainingNode, rules[0], rank=0, **shared)
        ray.get(started)
        _run(host, [servers.coordinator, *servers.replay, *others], host.node.push, _LAST_STEPS_SECONDS)
        if host.wait():
            host.node.end_learning()
        newest = host.node.get_variables(None)
        if newest is not None:
            servers.weights.call_until_answered("publish", *newest)
        return host.node.learner_steps
    finally:
        for other in others:
            ray.kill(other.actor)
        servers.coordinator.call_until_answered("request_stop", "the learner has ended", seconds=_END_SECONDS)


def _check_steps(steps: float) -> None:
    if not steps > 0:
        raise CallboardError(f"steps must be a number above 0, not {steps}")


def _run(
    host: NodeHost, others: Sequence[RayHandle], work: Callable[[], None] = lambda: None, patience: float = 0.0
) -> None:
    """Calls `work` while a node runs: to its end, or until tasks are stopped, after which it has some time to end.

    Args:
      host: host of the node.
      others: nodes that it needs; the error of one that has failed is raised.
      work: called again and again.
      patience: seconds that the node has to end by itself.
    """
    for other in others:
        other.call_until_answered("wait")
    next_check = Deadline(_CHECK_SECONDS)
    while not host.wait(_POLL_SECONDS):
        work()
        if host.node.reporter.state.stopping:
            host.wait(patience)
            break
        if next_check.has_passed:
            next_check.restart()
            for other in others:
                with contextlib.suppress(Unreachable):
                    other.client(CALL_SECONDS).wait()
    host.end()


def _policy(run: Run) -> Policy:
    agent = run.agent
    return agent.make_policy(agent.make_networks(run.layout), "train")
