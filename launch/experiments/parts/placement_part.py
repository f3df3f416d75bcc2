"""Nodes and their devices, limits, evaluations, the policy server, and the weights to begin with."""

import dataclasses
from typing import Literal

from ....settings.setting_types import FiniteFloat
from ...processes.devices import GpuUse
from .quantities import (
    ActorEnvironmentCount,
    ActorRange,
    EnvironmentCount,
    GpuGigabytes,
    NodeCount,
    Seconds,
    Seed,
    StepCount,
    ThreadCount,
)


@dataclasses.dataclass(frozen=True)
class LimitsPart:
    """The limits of a run: when it ends.

    Attributes:
      max_steps: environment steps after which the run ends; it exceeds them by less than one timestep of every actor.
      max_learner_steps: learner steps after which the run ends, exactly, see docs/stopping.md; a multiple of the
        agent's `updates_per_call`, where it has that.  None for no limit.
      max_seconds: seconds after which the run ends, counted over all resumes while its coordinator runs; the final
        evaluation and the last checkpoint come after them.  None for no limit.
      stop_return: the run ends once an evaluation's mean return reaches this value; None for never.
      stop_when: conditions, any of which ends the run: `METRIC >= NUMBER`, or with `>`, `<=`, `<`; a list, or separated
        by commas.  docs/metrics.md lists the metrics.
      patience: the run ends once this many evaluations in a row had no higher mean return than the best before them;
        None for never.
    """

    max_steps: StepCount = 1_000_000
    max_learner_steps: StepCount | None = None
    max_seconds: Seconds | None = None
    stop_return: FiniteFloat | None = None
    stop_when: str | tuple[str, ...] = ()
    patience: EnvironmentCount | None = None


_MOST_ENVS = 20
"""Most environments of an evaluation by default."""


@dataclasses.dataclass(frozen=True)
class EvaluationPart:
    """Evaluations, and pictures of episodes.

    Attributes:
      evaluator: whether an evaluator node runs during training, and evaluates the final policy once a limit such as
        `max_steps` is reached.
      evaluate_every: environment steps between two evaluations.
      evaluation_episodes: number of episodes per evaluation, the same in every environment of the evaluator.
      evaluation_envs: number of environments that the evaluator steps as a batch; a divisor of evaluation_episodes.
        None for the largest up to 20.
      evaluation_mode: `greedy` takes the policy's best actions, `sampled` samples them from the policy, as actors do.
        Agents that learn action values have `evaluation_epsilon` instead.
      video_every: number of evaluations after each of which an episode is recorded, in `videos/` and in TensorBoard;
        None for no videos.
      training_video_every: number of episodes of the first environment of which one is recorded while it trains, in
        `videos/` and in TensorBoard; None for no such videos.
      render: `human` shows the first environment in a window while it trains, on the machine of the first actor; None
        for no window.
      evaluation_timeout: seconds after which an evaluation is abandoned.
    """

    evaluator: bool = True
    evaluate_every: StepCount = 20_000
    evaluation_episodes: EnvironmentCount = 100
    evaluation_envs: EnvironmentCount | None = None
    evaluation_mode: Literal["greedy", "sampled"] = "greedy"
    video_every: EnvironmentCount | None = None
    training_video_every: EnvironmentCount | None = None
    render: Literal["human"] | None = None
    evaluation_timeout: Seconds = 1800.0

    def evaluation_batch(self, episodes: int | None = None) -> int:
        """Returns the number of environments that play whole episodes at a time, the same number each.

        Args:
          episodes: number of episodes; None for those of an evaluation during the run.
        """
        if episodes is None:
            if self.evaluation_envs is not None:
                return self.evaluation_envs
            episodes = self.evaluation_episodes
        most = min(episodes, self.evaluation_envs or _MOST_ENVS)
        return max(count for count in range(1, most + 1) if episodes % count == 0)


@dataclasses.dataclass(frozen=True)
class ServerPart:
    """The policy server, at which external simulators connect.

    Attributes:
      policy_server: address `HOST:PORT` at which simulators connect, in place of actors, see
        docs/guides/external_simulators.md; `actors * envs_per_actor` episodes can be open at a time.  None for no
        server.
      spaces: path of a JSON file with the spaces of those simulators, in place of `env`; the run has then no evaluator.
      policy_server_silence: seconds without a request after which a simulator's episode is cut off.
      policy_server_token_file: file with the token that simulators send; None makes one, `policy_server_token` in the
        run directory.
      policy_server_certificate: PEM file of a certificate, with which the server speaks HTTPS; None for HTTP.
      policy_server_key: PEM file of its private key; None if the certificate's file holds it.
    """

    policy_server: str | None = None
    spaces: str | None = None
    policy_server_silence: Seconds = 60.0
    policy_server_token_file: str | None = None
    policy_server_certificate: str | None = None
    policy_server_key: str | None = None


@dataclasses.dataclass(frozen=True)
class WarmStartPart:
    """The weights that a run begins with, and those that it does not train.

    Attributes:
      init_from: another run whose weights a new run begins with: `RUN`, `RUN@latest`, `RUN@best` or `RUN@STEP`, where
        RUN is a run directory, a path or a URL, and STEP a learner step; see docs/guides/warm_start.md.
      init_parts: only these parts of the network, such as `torso/*`; one pattern or several, in a list or separated by
        commas.  All parts by default.
      freeze: parts of the network that are not trained, given as for `init_parts`.
    """

    init_from: str | None = None
    init_parts: str | tuple[str, ...] = ()
    freeze: str | tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PlacementPart:
    """The seed, the nodes of each kind and their devices.

    Attributes:
      seed: seed of all randomness (environments, exploration, initial weights).  A restarted actor and a resumed run
        continue with new episodes and new noise; evaluations always start with the same ones.
      actors: number of actor nodes; with `--launcher hosts` and `ray` also the fewest and the most of them, such as
        `2..20`: actors then join and leave while the run continues.
      envs_per_actor: number of environments that one actor steps as a batch; 0 for that of the agent: 1 for SAC and
        agents that extend it, 16 for others.
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
      gpu_memory: GB of each of its GPUs, at least 0.1, that a learner, an inference node or a policy server may use;
        None for as much as it needs.
      tf32: whether learners, inference nodes and policy servers compute products and convolutions of float32 on GPUs
        with the 10 bits of mantissa of TF32, which is faster on GPUs since Ampere.
      jit_compile: whether XLA compiles the learner's step, for one device of one learner, see docs/learners.md.
      min_actors: number of actors below which the run waits; None if their number is fixed.  `actors 2..20` sets it.
    """

    seed: Seed = 1
    actors: ActorRange = 2
    envs_per_actor: ActorEnvironmentCount = 0
    inference: Literal["local", "central"] = "local"
    inference_nodes: NodeCount = 1
    replay_shards: NodeCount = 1
    learners: NodeCount = 1
    learner_devices: int | str = 1
    learner_threads: ThreadCount = 0
    gpu_memory: GpuGigabytes | None = None
    tf32: bool = False
    jit_compile: bool = False
    min_actors: NodeCount | None = None

    @property
    def gpu_use(self) -> GpuUse:
        """How the processes of nodes that use GPUs do so."""
        return GpuUse(self.gpu_memory, self.tf32)
