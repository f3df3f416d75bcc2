"""An experiment: everything that defines a run."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Interval

from ...agents import Agent
from ...agents.agent import Mode
from ...agents.agent_names import agent_name
from ...agents.registry import made_agent
from ...callbacks import Callbacks
from ...data import Layout
from ...environments import ONLY_AGENT, WeightedEnvironment, agent_specs, is_multi_agent, named_factory, read_mixture
from ...environments import spec as environment_spec
from ...environments.batches.episode_metrics import parse_episode_metrics
from ...environments.external.recorded_spaces import RECORDED_PREFIX
from ...environments.external.simulators import PREFIX
from ...environments.recorded.recorded_data import parse_sources
from ...errors import CallboardError
from ...settings.callback_settings import callback_settings, check_callbacks, overridden
from ...settings.named_objects import pickled_with_program, unpickle_with_program
from ...settings.nested_settings import declared_fields, nested_values, values_of
from ...settings.setting_arguments import argument_text, check_argument_names, convert_arguments
from ...settings.setting_types import FiniteFloat, texts_of
from ...specs import EnvironmentSpec
from ..processes.devices import device_count
from .curriculum import Stage, depends_on_episodes
from .policy_settings import made_policies, parse_policies

# Higher numbers fit no machine, and mistyped ones are rejected at once.
Seconds = Annotated[float, Interval(gt=0, le=10**8)]
Gigabytes = Annotated[float, Interval(gt=0, le=10**6)]
StepCount = Annotated[int, Interval(ge=1, le=2**62)]
NodeCount = Annotated[int, Interval(ge=1, le=10_000)]
ActorCount = Annotated[int, Interval(ge=0, le=10_000)]
EnvironmentCount = Annotated[int, Interval(ge=1, le=1_000_000)]
CheckpointCount = Annotated[int, Interval(ge=1, le=1_000_000)]
ThreadCount = Annotated[int, Interval(ge=0, le=1024)]
LogLevel = Literal["debug", "info", "warning", "warn", "error"]
Port = Annotated[int, Interval(ge=1, le=65535)]
Seed = Annotated[int, Interval(ge=0, le=2**31 - 1)]
_EVALUATION_ENVS = 20
NO_STEP_LIMIT = 2**40
"""`Layout.max_steps` of a run without actors, which makes no environment step."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything that defines a run, independent of the launcher.

    Attributes:
      agent: the agent and its hyperparameters; or its class or its name, with default hyperparameters.
      env: name of the environment, see `callboard list environments`, or in Python the class or function that makes
        it; or a list of environments with equal spaces, such as
        `[{name: A, weight: 2}, {name: B, options: {size: 5}}]`, which share the slots in proportion to their weights.
      env_options: keyword arguments of the environment, or of all environments in a list.
      env_wrappers: wrappers of single Gymnasium environments, the innermost first: names of `gymnasium.wrappers` or
        `package.module:Class`, a list or separated by commas; in YAML with arguments as `{name: ..., argument: value}`.
        Evaluations leave out those that change rewards.  The wrapper of masks in `info`, see docs/environments.md, is
        also for vector environments and those of PettingZoo.
      env_processes: whether each environment has a process of its own (Gymnasium's AsyncVectorEnv), for single
        Gymnasium environments that take milliseconds per step, see docs/environments.md.
      env_previous_inputs: whether observations also contain the previous action and its reward, as the parts
        `previous_action` and `previous_reward`; for agents without the setting `network.previous_inputs`.
      check_env: whether an environment of one's own is tried in a process of its own before the run: made, reset,
        stepped and closed.  Those of known libraries are not.
      policies: the policies of an environment with several agents, by name, see docs/guides/policies.md: in Python an
        agent, `RandomPolicy`, `TrainedPolicy` or `Snapshots`; in YAML settings such as `{}` for the run's agent,
        `{name: apex}`, `{name: random}`, `{weights: RUN@best}` or `{snapshots_of: NAME}`.  By default all agents of the
        environment share one policy, `shared`, which is the run's agent.
      mapping: which policy an agent of the environment gets for an episode: a table of patterns such as
        `{player_0: main, player_*: {main: 1, old: 3}}` with weights where there is a choice, or
        `package.module:function`; see docs/guides/policies.md.  By default the policy of the agent's own name, or the
        only one.
      evaluation_mapping: the mapping in evaluations; None for the same.
      train: names of the policies that learn, a list or separated by commas; by default all that are agents.
      agent_groups: agents of the environment that act as one, as names or patterns by the name of the group; see
        docs/guides/multi_agent.md.
      agent_index: whether observations contain which agent of the environment they are of, for shared policies.
      agent_padding: whether agents with different spaces get the same, so that they can share a policy: observations
        are padded with zeros, and discrete actions with ones that a mask forbids.
      agent_state: a `state` that observations also contain, for centralized critics: `observations` of all agents,
        `observations_and_actions`, or the `environment`'s own.  None for none.
      seed: seed of all randomness (environments, exploration, initial weights).  A restarted actor and a resumed run
        continue with new episodes and new noise; evaluations always start with the same ones.
      actors: number of actor nodes.
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
      episode_metrics: metrics of episodes from the environment's infos, a list or separated by commas: `distance` for
        the last value of an episode, `distance:sum` for the sum over its steps, `distance:histogram` also for the
        distribution.  See docs/guides/callback.md.
      callbacks: classes of callbacks, `package.module:Class`, a list or separated by commas; in YAML with arguments as
        `{name: package.module:Class, argument: value}`.  See docs/guides/callback.md.
      curriculum: stages of the environments' tasks, see docs/guides/curriculum.md; a list of `{task: ..., steps: ...}`
        or `{task: ..., when: METRIC >= NUMBER}`.
      evaluation_task: the task of the environments in evaluations; None for their own.
      init_from: another run whose weights a new run begins with: `RUN`, `RUN@latest`, `RUN@best` or `RUN@STEP`, where
        RUN is a run directory, a path or a URL, and STEP a learner step; see docs/guides/warm_start.md.
      init_parts: only these parts of the network, such as `torso/*`; one pattern or several, in a list or separated by
        commas.  All parts by default.
      freeze: parts of the network that are not trained, given as for `init_parts`.
      dataset: data sets of recorded episodes to learn from, see docs/guides/recorded_data.md: runs, paths, or names in
        Minari's folder, each with its share such as `PATH:0.3`; a list or separated by commas.  With `actors` 0 alone,
        and else beside what the actors play.
      record_episodes: whether whole training episodes are written to `episodes/` in the run directory, as a Minari data
        set; see docs/guides/recorded_data.md.
      record_infos: names of infos of the environment that are recorded with the episodes, such as `success,distance`;
        a list, or separated by commas.  `a.b` is the key `b` in a mapping `a`.
      record_limit: gigabytes of the data set beyond which no more episodes are recorded.
      publish_every_steps: learner steps between two versions of the weights that actors get; 1 for the newest whenever
        an actor needs weights.  More send fewer weights over the network, and let actors act with older ones.
      checkpoint_every: seconds between two checkpoints of the learner.
      checkpoint_every_steps: learner steps between two checkpoints, instead of `checkpoint_every` seconds; None for
        seconds.
      keep_checkpoints: number of the newest checkpoints that are kept, besides those that a `Session` saves.  Of 1,
        none is left if it is damaged.
      checkpoint_replay: whether replay is saved too, for restarted shards and for `--resume`; not for agents that only
        learn from new data (PPO).
      replay_checkpoint_every: seconds between two checkpoints of replay; another one follows at the end of the run.
      node_timeout: seconds that an environment step, a learner step, a forward pass, or a gap between heartbeats may
        take before the node is treated as dead; a call that compiles may take at least ten minutes.  Increase it for
        slower environments.
      log_level: the least important messages that nodes write to their logs in the run directory: `debug`, `info`,
        `warning` (or `warn`) or `error`.
      listen: the machines whose packets the ports of the run accept: `run` for those of the run, or `all`, see
        the page on security.
      loggers: where metrics also go, besides the run directory: `wandb`, `mlflow`, or `package.module:Class`; a list,
        or separated by commas.  See docs/guides/loggers.md.
      prometheus_port: port at which the coordinator serves the newest metrics for Prometheus; None for no server.
      prometheus_host: address at which it listens; `0.0.0.0` for all interfaces of its machine.
      policy_server: address `HOST:PORT` at which simulators connect, in place of actors, see
        docs/guides/external_simulators.md; `actors * envs_per_actor` episodes can be open at a time.  None for no
        server.
      spaces: path of a JSON file with the spaces of those simulators, in place of `env`; the run has then no evaluator.
      policy_server_silence: seconds without a request after which a simulator's episode is cut off.
      policy_server_token_file: file with the token that simulators send; None makes one, `policy_server_token` in the
        run directory.
      policy_server_certificate: PEM file of a certificate, with which the server speaks HTTPS; None for HTTP.
      policy_server_key: PEM file of its private key; None if the certificate's file holds it.
      run_dir: directory of everything that the run writes, a path or a URL (`s3://...`); None makes a new one under
        `runs/`.
    """

    agent: Agent
    env: str | Callable[..., Any] | Sequence[str | WeightedEnvironment] = ""
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    env_wrappers: str | tuple[str | dict[str, Any], ...] = ()
    env_processes: bool = False
    env_previous_inputs: bool = False
    check_env: bool = True
    policies: dict[str, Any] = dataclasses.field(default_factory=dict)
    mapping: str | dict[str, Any] | Callable[..., Any] | None = None
    evaluation_mapping: str | dict[str, Any] | Callable[..., Any] | None = None
    train: str | tuple[str, ...] = ()
    agent_groups: dict[str, Any] = dataclasses.field(default_factory=dict)
    agent_index: bool = False
    agent_padding: bool = False
    agent_state: Literal["observations", "observations_and_actions", "environment"] | None = None
    seed: Seed = 1
    actors: ActorCount = 2
    envs_per_actor: EnvironmentCount = 16
    inference: Literal["local", "central"] = "local"
    inference_nodes: NodeCount = 1
    replay_shards: NodeCount = 1
    learners: NodeCount = 1
    learner_devices: int | str = 1
    learner_threads: ThreadCount = 0
    evaluator: bool = True
    evaluate_every: StepCount = 20_000
    evaluation_episodes: EnvironmentCount = 100
    evaluation_envs: EnvironmentCount | None = None
    evaluation_mode: Literal["greedy", "sampled"] = "greedy"
    video_every: EnvironmentCount | None = None
    training_video_every: EnvironmentCount | None = None
    render: Literal["human"] | None = None
    evaluation_timeout: Seconds = 1800.0
    max_steps: StepCount = 1_000_000
    max_learner_steps: StepCount | None = None
    max_seconds: Seconds | None = None
    stop_return: FiniteFloat | None = None
    stop_when: str | tuple[str, ...] = ()
    patience: EnvironmentCount | None = None
    episode_metrics: str | tuple[str, ...] = ()
    callbacks: str | tuple[str | dict[str, Any] | Callbacks, ...] | Callbacks = ()
    curriculum: tuple[Stage, ...] = ()
    evaluation_task: Any = None
    init_from: str | None = None
    init_parts: str | tuple[str, ...] = ()
    freeze: str | tuple[str, ...] = ()
    dataset: str | tuple[str, ...] = ()
    record_episodes: bool = False
    record_infos: str | tuple[str, ...] = ()
    record_limit: Gigabytes = 10.0
    publish_every_steps: StepCount = 1
    checkpoint_every: Seconds = 30.0
    checkpoint_every_steps: StepCount | None = None
    keep_checkpoints: CheckpointCount = 2
    checkpoint_replay: bool = False
    replay_checkpoint_every: Seconds = 300.0
    node_timeout: Seconds = 300.0
    log_level: LogLevel = "info"
    listen: Literal["run", "all"] = "run"
    loggers: str | tuple[str, ...] = ()
    prometheus_port: Port | None = None
    prometheus_host: str = "127.0.0.1"
    policy_server: str | None = None
    spaces: str | None = None
    policy_server_silence: Seconds = 60.0
    policy_server_token_file: str | None = None
    policy_server_certificate: str | None = None
    policy_server_key: str | None = None
    run_dir: str | pathlib.Path | None = None

    if not TYPE_CHECKING:

        def __new__(cls, *arguments: Any, **named: Any) -> "Experiment":
            # Before the constructor of the dataclass, which knows no similar names.
            agent = arguments[0] if arguments else named.get("agent")
            check_argument_names(cls, named, _arguments_of_agent(agent))
            if (arguments or named) and len(arguments) < 2 and not {"env", "spaces", "dataset"} & set(named):
                raise CallboardError('name an environment: Experiment(agent, env="CartPole-v1")')
            return super().__new__(cls)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), pickled_with_program(dict(vars(self))))

    def __post_init__(self) -> None:
        if self.agent is not None:
            object.__setattr__(self, "agent", made_agent(self.agent))
        # Classes and functions become names, by which a resumed run finds them again.
        env: Any = self.env
        options: dict[str, Any] = {}
        if isinstance(env, list | tuple):
            object.__setattr__(self, "env", read_mixture(env))
        else:
            name, options = named_factory(env)
            object.__setattr__(self, "env", name)
        for field in ("mapping", "evaluation_mapping"):
            if callable(getattr(self, field)):
                object.__setattr__(self, field, named_factory(getattr(self, field))[0])
        convert_arguments(self)
        if options:
            object.__setattr__(self, "env_options", {**options, **self.env_options})
        self._fit_policy_server()
        callback_settings(self.callbacks)
        if self.policies and self.agent is not None:
            policies = parse_policies(self.policies, agent_name(self.agent), nested_values(values_of(self.agent)))
            object.__setattr__(self, "policies", made_policies(policies))

    def _fit_policy_server(self) -> None:
        """Sets the fields that follow from those of the policy server, and from data without an environment."""
        if self.spaces is not None and not self.env:
            # A resumed run may be started in another directory.
            object.__setattr__(self, "spaces", os.path.abspath(self.spaces))
            object.__setattr__(self, "env", f"{PREFIX}{self.spaces}")
        if self.dataset and not self.env:
            name = parse_sources([texts_of(self.dataset)[0], "others"])[0].name
            object.__setattr__(self, "env", RECORDED_PREFIX + (os.path.abspath(name) if os.path.exists(name) else name))
        if isinstance(self.env, str) and self.env.startswith((PREFIX, RECORDED_PREFIX)):
            # Nothing can be played here.
            object.__setattr__(self, "evaluator", False)
        if self.policy_server is not None and isinstance(self.actors, int):
            # Each simulator is an actor of its own, which waits for no other.
            object.__setattr__(self, "actors", self.actors * self.envs_per_actor)
            object.__setattr__(self, "envs_per_actor", 1)

    def agent_specs(self) -> dict[str, EnvironmentSpec]:
        """Returns the spec of each agent of the environment, by making one; if it has one, that agent has no name."""
        if not is_multi_agent(self.env, self.env_options):
            return {ONLY_AGENT: environment_spec(self.env, self.options_of_env)}
        return agent_specs(self.env, self.options_of_env, self.agent_options)

    @property
    def acting_nodes(self) -> int:
        """Number of actor nodes: a policy server stands for all actors."""
        return self.actors if self.policy_server is None else 1

    @property
    def trained(self) -> tuple[str, ...]:
        """The names in `train`."""
        return tuple(filter(None, texts_of(self.train)))

    @property
    def agent_options(self) -> dict[str, Any]:
        """How an environment with several agents is presented, see `environments.make_multi_agent`."""
        return {
            "groups": self.agent_groups,
            "agent_index": self.agent_index,
            "state": self.agent_state,
            "padding": self.agent_padding,
        }

    def for_policy(self, agent: Agent, layout: Layout) -> "Experiment":
        """Returns the experiment as the nodes of one of several policies see it.

        Args:
          agent: the policy's agent.
          layout: the policy's layout.
        """
        return dataclasses.replace(
            self,
            agent=agent.for_agents(layout.agents_per_env),
            envs_per_actor=layout.envs_per_actor,
            policies={},
            mapping=None,
            evaluation_mapping=None,
            train=(),
        )

    @property
    def options_of_env(self) -> dict[str, Any]:
        """The options that the environment is made with: `env_options`, and those of settings of their own."""
        return {
            **self.env_options,
            **({"env_wrappers": self.env_wrappers} if self.env_wrappers else {}),
            **({"env_processes": True} if self.env_processes else {}),
            **({"env_previous_inputs": True} if self.env_previous_inputs else {}),
        }

    @property
    def watches_episodes(self) -> bool:
        """Whether actors keep metrics of episodes besides return and length."""
        methods = ("on_episode_start", "on_episode_step", "on_episode_end")
        return (
            bool(parse_episode_metrics(self.episode_metrics))
            or depends_on_episodes(self.curriculum)
            or any(overridden(kind, *methods) for kind in check_callbacks(self.callbacks))
        )

    def evaluation_batch(self, episodes: int | None = None) -> int:
        """Returns the number of environments that play whole episodes at a time, the same number each.

        Args:
          episodes: number of episodes; None for those of an evaluation during the run.
        """
        if episodes is None:
            if self.evaluation_envs is not None:
                return self.evaluation_envs
            episodes = self.evaluation_episodes
        most = min(episodes, self.evaluation_envs or _EVALUATION_ENVS)
        return max(count for count in range(1, most + 1) if episodes % count == 0)

    def evaluation_policy_mode(self) -> Mode:
        """Returns the mode of the policy in evaluations.

        Raises:
          CallboardError: the agent has no such mode.
        """
        mode: Mode = "sample" if self.evaluation_mode == "sampled" else "evaluate"
        if mode not in self.agent.modes():
            name = type(self.agent).__name__
            raise CallboardError(
                f"{name} has no distribution to sample actions from: leave evaluation_mode at greedy"
                + (", and set agent.evaluation_epsilon" if hasattr(self.agent, "evaluation_epsilon") else "")
            )
        return mode

    def acting_layout(self, spec: EnvironmentSpec | None = None) -> Layout:
        """Returns the layout for acting only, on a machine that need not have the learner's devices.

        Args:
          spec: spec of the environment; None makes the environment once.
        """
        return dataclasses.replace(self, learners=1, learner_devices=1).layout(spec)

    def part_done(self, environment_steps: int, learner_steps: int, seconds: float = 0.0) -> float:
        """Returns the part of the run that is done, from 0 to 1, by the limit that will end it first so far."""
        limits = (
            (environment_steps, self.max_steps if self.actors else None),
            (learner_steps, self.max_learner_steps),
            (seconds, self.max_seconds),
        )
        return min(1.0, max(done / limit for done, limit in limits if limit is not None))

    def layout(self, spec: EnvironmentSpec | None = None) -> Layout:
        """Returns the layout of the run, without its record and state; see `acting_layout`."""
        return Layout(
            spec=environment_spec(self.env, self.options_of_env) if spec is None else spec,
            envs_per_actor=self.envs_per_actor,
            actors=max(1, self.actors),
            shards=self.replay_shards,
            replicas=self.learners * device_count(self.learner_devices),
            seed=self.seed,
            max_steps=self.max_steps if self.actors else NO_STEP_LIMIT,
            learners=self.learners,
            max_learner_steps=self.max_learner_steps,
        )


def _unpickled(kind: type[Experiment], pickled: bytes) -> Experiment:
    experiment = object.__new__(kind)
    for name, value in unpickle_with_program(pickled).items():
        object.__setattr__(experiment, name, value)
    return experiment


def _arguments_of_agent(agent: Any) -> dict[str, str]:
    """Returns how the hyperparameters of an agent are given, by flat name; empty if it is not an agent."""
    kind = agent if isinstance(agent, type) else type(agent)
    if not (issubclass(kind, Agent) and dataclasses.is_dataclass(kind)):
        return {}
    return {f"agent.{name}": f"{kind.__name__}({argument_text(name)})" for name in declared_fields(kind)}
