"""The seed, the nodes of each kind and their devices."""

import dataclasses
from typing import Literal

from ...processes.devices import GpuUse
from .quantities import ActorRange, EnvironmentCount, Gigabytes, NodeCount, Seed, ThreadCount


@dataclasses.dataclass(frozen=True)
class PlacementPart:
    """The seed, the nodes of each kind and their devices.

    Attributes:
      seed: seed of all randomness (environments, exploration, initial weights).  A restarted actor and a resumed run
        continue with new episodes and new noise; evaluations always start with the same ones.
      actors: number of actor nodes; with `--launcher hosts` and `ray` also the fewest and the most of them, such as
        `2..20`: actors then join and leave while the run continues.
      envs_per_actor: number of environments that one actor steps as a batch.
      inference: where actions are computed: `local` in every actor, or `central` in inference nodes that serve several
        actors with one forward pass, see docs/inference.md.
      inference_nodes: number of inference nodes, which share the actors; only with central inference.
      replay_shards: number of replay servers.
      learners: number of learner nodes, which share each batch and make every step together.
      learner_devices: devices of each learner, which divide its share of the batch: a number of GPUs (1 uses the CPU if
        there is none), `all` GPUs, or names such as `CPU:0,CPU:1` and `GPU:1`; `GPU:0/2` is one GPU
        that is divided into two devices.
      learner_threads: number of TensorFlow threads of a learner that has its own process; 0 leaves the choice to
        TensorFlow.  A small network learns as fast with 1, which leaves the other cores to other nodes, see
        docs/learners.md.
      gpu_memory: GB of each of its GPUs that a learner, an inference node or a policy server may use; None for as much
        as it needs.
      tf32: whether learners, inference nodes and policy servers compute products and convolutions of float32 on GPUs
        with the 10 bits of mantissa of TF32, which is faster on GPUs since Ampere.
      jit_compile: whether XLA compiles the learner's step, for one device of one learner, see docs/learners.md.
      min_actors: number of actors below which the run waits; None if their number is fixed.  `actors 2..20` sets it.
    """

    seed: Seed = 1
    actors: ActorRange = 2
    envs_per_actor: EnvironmentCount = 16
    inference: Literal["local", "central"] = "local"
    inference_nodes: NodeCount = 1
    replay_shards: NodeCount = 1
    learners: NodeCount = 1
    learner_devices: int | str = 1
    learner_threads: ThreadCount = 0
    gpu_memory: Gigabytes | None = None
    tf32: bool = False
    jit_compile: bool = False
    min_actors: NodeCount | None = None

    @property
    def gpu_use(self) -> GpuUse:
        """How the processes of nodes that use GPUs do so."""
        return GpuUse(self.gpu_memory, self.tf32)
