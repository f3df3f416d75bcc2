"""An experiment: everything that defines a run."""

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from ...agents import Agent
from ...agents.agent_names import agent_name
from ...agents.registry import made_agent
from ...environments import named_factory, named_wrappers, read_mixture
from ...environments.external.spaces_only import EXTERNAL_PREFIX, RECORDED_PREFIX
from ...environments.recorded.recorded_data import source_of
from ...environments.workers.interpreters import PYTHON, absolute_interpreter
from ...errors import CallboardError, check_type
from ...settings.callback_settings import callback_settings
from ...settings.named_objects import pickled_with_program, unpickle_with_program
from ...settings.nested_settings import declared_fields, nested_values, values_of
from ...settings.setting_arguments import argument_text, check_argument_names, convert_arguments
from ...settings.setting_types import texts_of
from .parts.acting_part import ActingPart
from .parts.output_part import CheckpointsPart, DirectoryPart, OutputPart, RecordingPart
from .parts.placement_part import ServerPart, WarmStartPart
from .parts.quantities import CountRange
from .policy_settings import TrainedPolicy, made_policies, parse_policies
from .warm_start_settings import absolute_source

_ARGUMENTS_OF_RUN = {name: f"run(experiment, {name}=...)" for name in ("launcher", "resume", "overwrite")}
"""Arguments of `run` and `Session` that are not part of an experiment, by name, as they are written."""


# Dataclasses order their fields from the last base to the first, so the agent and the environment come first.
@dataclasses.dataclass(frozen=True)
class Experiment(DirectoryPart, ServerPart, OutputPart, CheckpointsPart, RecordingPart, WarmStartPart, ActingPart):
    """Everything that defines a run, independent of the launcher: the sum of its parts, which document their fields.

    An experiment can be given wherever one of its parts is taken.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *arguments: Any, **named: Any) -> "Experiment":
            """Checks the names of arguments before the dataclass's own constructor, which knows no similar names."""
            agent = arguments[0] if arguments else named.get("agent")
            check_argument_names(cls, named, {**_arguments_of_agent(agent), **_ARGUMENTS_OF_RUN})
            if (arguments or named) and len(arguments) < 2 and not {"env", "spaces", "dataset"} & set(named):
                raise CallboardError('name an environment: Experiment(agent, env="CartPole-v1")')
            return super().__new__(cls)

    def __getstate__(self) -> bytes:
        return pickled_with_program(dict(vars(self)))

    def __setstate__(self, pickled: bytes) -> None:
        self._set(**unpickle_with_program(pickled))

    def __post_init__(self) -> None:
        if self.agent is not None:
            self._set(agent=made_agent(self.agent))
        options = self._name_objects()
        convert_arguments(self)
        if not self.envs_per_actor:
            # How many simulators a policy server has places for does not follow from its agent.
            own = self.agent is not None and self.policy_server is None
            self._set(envs_per_actor=(self.agent if own else Agent).default_envs_per_actor)
        actors: Any = self.actors
        if isinstance(actors, CountRange):
            self._set(min_actors=actors.ends[0], actors=actors.ends[1])
        if options:
            self._set(env_options={**options, **self.env_options})
        self._set(env_python=absolute_interpreter(self.env_python))
        if PYTHON in self.env_options:
            self._set(env_options={**self.env_options, PYTHON: absolute_interpreter(self.env_options[PYTHON])})
        self._fit_data_without_environment()
        self._fit_policy_server()
        callback_settings(self.callbacks)
        if self.policies and self.agent is not None:
            policies = parse_policies(self.policies, agent_name(self.agent), nested_values(values_of(self.agent)))
            self._set(policies=made_policies(policies))

    def _set(self, **values: Any) -> None:
        """Sets fields while the experiment is made; afterwards it is frozen."""
        vars(self).update(values)

    def _name_objects(self) -> dict[str, Any]:
        """Replaces classes and functions by names, by which a resumed run finds them, and returns options of `env`."""
        env: Any = self.env
        name, options = (read_mixture(env), {}) if isinstance(env, list | tuple) else named_factory(env)
        self._set(env=name)
        for field in ("mapping", "evaluation_mapping"):
            if callable(getattr(self, field)):
                self._set(**{field: named_factory(getattr(self, field))[0]})
        self._set(env_wrappers=named_wrappers(self.env_wrappers))
        return options

    def _fit_data_without_environment(self) -> None:
        """Names the spaces of simulators or of recorded episodes as the environment, where no other is named."""
        if self.spaces is not None and not self.env:
            # A resumed run may be started in another directory.
            spaces = os.path.abspath(self.spaces)
            self._set(spaces=spaces, env=f"{EXTERNAL_PREFIX}{spaces}")
        if self.dataset and not self.env:
            name = source_of(texts_of(self.dataset)[0]).name
            self._set(env=RECORDED_PREFIX + (os.path.abspath(name) if os.path.exists(name) else name))
        if isinstance(self.env, str) and self.env.startswith((EXTERNAL_PREFIX, RECORDED_PREFIX)):
            # Nothing can be played here.
            self._set(evaluator=False)

    def _fit_policy_server(self) -> None:
        """Makes each simulator of a policy server an actor of its own, which waits for no other."""
        if self.policy_server is not None and isinstance(self.actors, int):
            self._set(actors=self.actors * self.envs_per_actor, envs_per_actor=1)

    @property
    def acting_nodes(self) -> int:
        """Number of actor nodes: a policy server stands for all actors."""
        return self.actors if self.policy_server is None else 1

    def with_absolute_sources(self) -> "Experiment":
        """Returns the experiment with absolute paths of the runs that it takes weights from, `init_from` and policies.

        Nodes, and commands that read the experiment from its run directory, may have another working directory.
        """
        policies = {
            name: policy.with_absolute_path() if isinstance(policy, TrainedPolicy) else policy
            for name, policy in self.policies.items()
        }
        return dataclasses.replace(self, init_from=absolute_source(self.init_from), policies=policies)


def check_is_experiment(experiment: Any) -> None:
    """Raises `CallboardError` for an argument that is no experiment with an agent."""
    check_type("experiment", experiment, Experiment, "an Experiment, such as Experiment('ppo', env='CartPole-v1')")
    if experiment.agent is None:
        raise CallboardError("the experiment has no agent: name one, as in Experiment('ppo', env='CartPole-v1')")


def _arguments_of_agent(agent: Any) -> dict[str, str]:
    """Returns how the hyperparameters of an agent are given, by flat name; empty if it is not an agent."""
    kind = agent if isinstance(agent, type) else type(agent)
    if not (issubclass(kind, Agent) and dataclasses.is_dataclass(kind)):
        return {}
    return {f"agent.{name}": f"{kind.__name__}({argument_text(name)})" for name in declared_fields(kind)}
