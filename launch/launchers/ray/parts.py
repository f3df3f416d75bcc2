"""Building blocks for custom training loops on Ray: servers of weights and replay, and tasks that act and learn.

They consist of the same components as the program graph, so every agent runs on them unchanged:

    parts = start_parts(Experiment(agent=Sac(), env="Pendulum-v1", actors=8, max_steps=30_000))
    tasks = [train.remote(parts), *(rollout.remote(parts, index) for index in range(8))]
    ray.get(tasks)

Import TensorFlow before `ray.init()`.  Transitions are sent in chunks to a Reverb server, never through Ray.
"""

import ray
import tensorflow as tf

from ....agents.acting import trace_layout
from ....errors import CallboardError
from ...experiment import Experiment
from ...nodes.devices import hide_gpus
from . import part_replay as replay
from . import part_servers as servers
from .part_clients import Parts, RemoteWeights, first_answer, replay_handle, tell_for_certain
from .part_rollout import Rollout
from .part_servers import Totals
from .part_training import StoppedBeforehand, Training, train_beside_the_first

__all__ = [
    "ParameterServer",
    "Parts",
    "Progress",
    "RemoteWeights",
    "ReplayServer",
    "Totals",
    "replay_handle",
    "rollout",
    "start_parts",
    "train",
]

ParameterServer = ray.remote(num_cpus=0, max_restarts=-1)(servers.ParameterServer)
Progress = ray.remote(num_cpus=0, max_restarts=-1)(servers.Progress)
ReplayServer = ray.remote(num_cpus=1, max_restarts=-1)(replay.ReplayServer)


def start_parts(experiment: Experiment) -> Parts:
    """Start the servers of an experiment on the Ray cluster that this process is connected to.

    The experiment's `actors` and `learners` are the numbers of tasks that will be started.  Its settings for
    evaluation, checkpoints and the run directory are not used; these are up to the custom loop.

    Raises:
      CallboardError: the experiment is not valid, or Ray does not start the servers.
    """
    layout = experiment.check(learners_here=0)
    if experiment.inference != "local":
        raise CallboardError("rollout tasks act by themselves: set inference to local, or take --launcher ray")
    agent = experiment.agent
    layout = trace_layout(agent, layout, agent.make_networks(layout))
    parts = Parts(
        experiment=experiment,
        layout=layout,
        weights=ParameterServer.remote(),
        replay=tuple(ReplayServer.remote(agent, layout) for _ in range(layout.shards)),
        progress=Progress.remote(experiment.max_steps),
    )
    # Replay servers take longer to start; tasks wait for them.
    first_answer(lambda: parts.weights.get_variables.remote(None), "the ParameterServer")
    first_answer(parts.progress.totals.remote, "Progress")
    return parts


# Each task has its own process, because TensorFlow's devices and threads can be set only once per process.
@ray.remote(num_cpus=1, max_calls=1, max_retries=3)
def rollout(parts: Parts, index: int, timesteps: int | None = None) -> int:
    """Step the environments of actor `index` with the newest weights, and write the timesteps to replay.

    Args:
      parts: the servers.
      index: from 0 to `experiment.actors - 1`; actors with different indices have different environments and
        exploration.
      timesteps: steps of the whole batch of environments after which the task ends; None continues until stopped.

    Returns:
      Environment steps since the task's last start.
    """
    _prepare_tensorflow()
    return Rollout(parts, index).run(timesteps)


# A restarted learner would start with new weights, so the task is not retried.
@ray.remote(num_cpus=1, max_calls=1, max_retries=0)
def train(parts: Parts, rank: int = 0, steps: int | None = None) -> int:
    """Learn from replay, and publish the weights.

    With several learners, each has a share of every batch, and all hold the same weights; the first one publishes them,
    and the others end with it.

    Args:
      parts: the servers.
      rank: rank of this learner, from 0 to `experiment.learners - 1`.
      steps: learner steps after which it ends and stops all tasks; None continues until stopped.

    Returns:
      Learner steps.
    """
    if rank > 0:
        return train_beside_the_first(parts, rank)
    try:
        return Training(parts, rank).run(steps)
    except StoppedBeforehand:
        return 0
    finally:
        tell_for_certain(parts.progress.end_learning.remote)
        tell_for_certain(parts.progress.stop.remote)


def _prepare_tensorflow() -> None:
    """Limit TensorFlow in this process to one thread, and hide the learners' GPUs from it."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hide_gpus()
