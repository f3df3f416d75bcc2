"""The environment of an experiment, the policies of its agents, and tasks, callbacks and metrics of its episodes."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

from ....agents import Agent
from ....callbacks import Callbacks
from ....environments import ONLY_AGENT, WeightedEnvironment, agent_specs, is_multi_agent
from ....environments import spec as environment_spec
from ....environments.batches.episode_metrics import parse_episode_metrics
from ....settings.callback_settings import check_callbacks, overridden
from ....settings.setting_types import texts_of
from ....specs import EnvironmentSpec
from ..curriculum import Stage, depends_on_episodes


@dataclasses.dataclass(frozen=True)
class AgentPart:
    """The agent of an experiment.

    Attributes:
      agent: the agent and its hyperparameters, also as in YAML, such as `{"name": "ppo", "clip": 0.3}`; or its class or
        its name, with default hyperparameters.
    """

    agent: Agent


@dataclasses.dataclass(frozen=True)
class EpisodesPart:
    """Tasks, callbacks and metrics of episodes.

    Attributes:
      episode_metrics: metrics of episodes from the environment's infos, a list or separated by commas: `distance` for
        the last value of an episode, `distance:sum` for the sum over its steps, `distance:histogram` also for the
        distribution.  See docs/guides/callback.md.
      callbacks: classes of callbacks, `package.module:Class`, a list or separated by commas; in YAML with arguments as
        `{name: package.module:Class, argument: value}`.  See docs/guides/callback.md.
      curriculum: stages of the environments' tasks, see docs/guides/curriculum.md; a list of `{task: ..., steps: ...}`
        or `{task: ..., when: METRIC >= NUMBER}`.
      evaluation_task: the task of the environments in evaluations; None for their own.
    """

    episode_metrics: str | tuple[str, ...] = ()
    callbacks: str | tuple[str | dict[str, Any] | Callbacks, ...] | Callbacks = ()
    curriculum: tuple[Stage, ...] = ()
    evaluation_task: Any = None

    @property
    def watches_episodes(self) -> bool:
        """Whether actors keep metrics of episodes besides return and length."""
        methods = ("on_episode_start", "on_episode_step", "on_episode_end")
        return (
            bool(parse_episode_metrics(self.episode_metrics))
            or depends_on_episodes(self.curriculum)
            or any(overridden(kind, *methods) for kind in check_callbacks(self.callbacks))
        )


@dataclasses.dataclass(frozen=True)
class EnvironmentPart:
    """The environment of an experiment.

    Attributes:
      env: name of the environment, see `callboard list environments`, or in Python the class or function that makes
        it; or a list of environments with equal spaces, such as
        `[{name: A, weight: 2}, {name: B, options: {size: 5}}]`, which share the slots in proportion to their weights.
      env_options: keyword arguments of the environment, or of all environments in a list.
      env_wrappers: wrappers of single Gymnasium environments, the innermost first: names of `gymnasium.wrappers` or
        `package.module:Class`, a list or separated by commas; in YAML with arguments as `{name: ..., argument: value}`;
        in Python also classes.  Evaluations leave out those that change rewards.  The wrapper of masks in `info`, see
        docs/environments.md, is also for vector environments and those of PettingZoo.
      env_processes: whether each environment has a process of its own (Gymnasium's AsyncVectorEnv), for single
        Gymnasium environments that take milliseconds per step, see docs/environments.md.
      env_previous_inputs: whether observations also contain the previous action and its reward, as the parts
        `previous_action` and `previous_reward`; for agents without the setting `network.previous_inputs`.
      check_env: whether an environment of one's own is tried in a process of its own before the run: made, reset,
        stepped and closed.  Those of known libraries are not.
      env_python: the interpreter under which the environments are stepped, in a worker process of each actor and
        evaluator: the path of a Python of version 3.9 or newer, or of a virtual environment, `uv:` and packages for one
        that uv makes, or `same` for this interpreter; None for no worker.  See docs/guides/env_python.md.
    """

    env: str | Callable[..., Any] | Sequence[str | WeightedEnvironment] = ""
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    env_wrappers: str | tuple[str | dict[str, Any], ...] = ()
    env_processes: bool = False
    env_previous_inputs: bool = False
    check_env: bool = True
    env_python: str | None = None

    @property
    def has_agents(self) -> bool:
        """Whether the environment has several agents."""
        return is_multi_agent(self.env, {**self.env_options, **self.python_of_env})

    @property
    def python_of_env(self) -> dict[str, Any]:
        """The option `env_python` of the environment, if it is set."""
        return {"env_python": self.env_python} if self.env_python is not None else {}

    @property
    def options_of_env(self) -> dict[str, Any]:
        """The options that the environment is made with: `env_options`, and those of settings of their own."""
        return {
            **self.env_options,
            **({"env_wrappers": self.env_wrappers} if self.env_wrappers else {}),
            **self.python_of_env,
            **({"env_processes": True} if self.env_processes else {}),
            **({"env_previous_inputs": True} if self.env_previous_inputs else {}),
        }


@dataclasses.dataclass(frozen=True)
class PoliciesPart(EnvironmentPart, AgentPart):
    """The environment's agents, and the policies that act for them.

    Attributes:
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
    """

    policies: dict[str, Any] = dataclasses.field(default_factory=dict)
    mapping: str | dict[str, Any] | Callable[..., Any] | None = None
    evaluation_mapping: str | dict[str, Any] | Callable[..., Any] | None = None
    train: str | tuple[str, ...] = ()
    agent_groups: dict[str, Any] = dataclasses.field(default_factory=dict)
    agent_index: bool = False
    agent_padding: bool = False
    agent_state: Literal["observations", "observations_and_actions", "environment"] | None = None

    def agent_specs(self) -> dict[str, EnvironmentSpec]:
        """Returns the spec of each agent of the environment, by making one; if it has one, that agent has no name."""
        if not self.has_agents:
            return {ONLY_AGENT: environment_spec(self.env, self.options_of_env)}
        return agent_specs(self.env, self.options_of_env, self.agent_options)

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
