"""Parts for those who build their own loop on Ray: servers of weights and replay, and tasks that act and learn.

They are made of what the program graph is made of, so every agent runs on them as it is:

    parts = start_parts(Experiment(agent=Sac(), env="Pendulum-v1", actors=8, max_steps=30_000))
    tasks = [train.remote(parts), *(rollout.remote(parts, index) for index in range(8))]
    ray.get(tasks)

Import TensorFlow before `ray.init()`.  Transitions travel in chunks to a Reverb server, never through Ray.
"""

import ray
import tensorflow as tf

from ....agents.acting import trace_layout
from ....data import CallboardError
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
    """Starts the servers of an experiment on the Ray that this process is connected to.

    Of the experiment, `actors` and `learners` are the numbers of tasks that will be started; all that concerns
    evaluation, checkpoints and the run directory is left to the loop around.

    Raises:
      CallboardError: the experiment cannot work, or Ray does not start the servers.
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
    # Replay takes longer; tasks wait for it.
    first_answer(lambda: parts.weights.get_variables.remote(None), "the ParameterServer")
    first_answer(parts.progress.totals.remote, "Progress")
    return parts


# A task has its process for itself: TensorFlow's devices and threads are set once in a process.
@ray.remote(num_cpus=1, max_calls=1, max_retries=3)
def rollout(parts: Parts, index: int, timesteps: int | None = None) -> int:
    """Steps the environments of actor `index` with the newest weights, and writes what they show to replay.

    Args:
      parts: the servers.
      index: from 0 to `experiment.actors - 1`; actors with different ones have different environments and exploration.
      timesteps: steps of the whole batch of environments after which the task ends; None goes on until told to stop.

    Returns:
      Environment steps, since the task was started for the last time.
    """
    _prepare_tensorflow()
    return Rollout(parts, index).run(timesteps)


# A learner that began anew would begin with new weights, so it is not tried again.
@ray.remote(num_cpus=1, max_calls=1, max_retries=0)
def train(parts: Parts, rank: int = 0, steps: int | None = None) -> int:
    """Learns from replay, and publishes the weights.

    Where there are several learners each has a part of every batch, and all hold the same weights; the first publishes
    them, and the others end with it.

    Args:
      parts: the servers.
      rank: of this learner, from 0 to `experiment.learners - 1`.
      steps: learner steps after which it ends, and tells all tasks to stop; None goes on until told to.

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
    """Keeps TensorFlow in this process to one thread, and away from the learners' GPUs."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hide_gpus()
