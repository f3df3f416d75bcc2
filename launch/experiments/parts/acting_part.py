"""The part of an experiment that acting needs: the layout of its batches, and the settings of its players."""

import dataclasses
from typing import TypeVar

from ....agents.agent import Agent, Mode
from ....data import Layout
from ....environments import spec as environment_spec
from ....errors import CallboardError
from ....specs import EnvironmentSpec
from ...processes.devices import parse_devices
from .environment_part import EpisodesPart, PoliciesPart
from .placement_part import EvaluationPart, LimitsPart, PlacementPart

NO_STEP_LIMIT = 2**40
"""`Layout.max_steps` of a run without actors, which makes no environment step."""


@dataclasses.dataclass(frozen=True)
class LayoutPart(LimitsPart, PlacementPart, PoliciesPart):
    """The settings that a layout follows from."""

    def layout(self, spec: EnvironmentSpec | None = None) -> Layout:
        """Returns the layout of the run, without its record and state; see `acting_layout`."""
        return self.acting_layout(spec)._replace(
            replicas=self.learners * parse_devices(self.learner_devices).device_count(), learners=self.learners
        )

    def acting_layout(self, spec: EnvironmentSpec | None = None) -> Layout:
        """Returns the layout for acting only, on a machine that need not have the learner's devices.

        Args:
          spec: spec of the environment; None makes the environment once.
        """
        return Layout(
            spec=environment_spec(self.env, self.options_of_env) if spec is None else spec,
            envs_per_actor=self.envs_per_actor,
            actors=max(1, self.actors),
            shards=self.replay_shards,
            replicas=1,
            seed=self.seed,
            max_steps=self.max_steps if self.actors else NO_STEP_LIMIT,
            learners=1,
            max_learner_steps=self.max_learner_steps,
        )

    def part_done(self, environment_steps: int, learner_steps: int, seconds: float = 0.0) -> float:
        """Returns the part of the run that is done, from 0 to 1, by the limit that will end it first so far."""
        limits = (
            (environment_steps, self.max_steps if self.actors else None),
            (learner_steps, self.max_learner_steps),
            (seconds, self.max_seconds),
        )
        return min(1.0, max(done / limit for done, limit in limits if limit is not None))


Playing = TypeVar("Playing", bound="ActingPart")
"""A part with whatever plays, or an experiment."""


# The parts of the layout are named again for the order of the fields.
@dataclasses.dataclass(frozen=True)
class ActingPart(EpisodesPart, LayoutPart, LimitsPart, EvaluationPart, PlacementPart, PoliciesPart):
    """The settings of whatever plays: environments, policies and their place, tasks, and how they are evaluated."""

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
                + ("" if self.agent.evaluation_rate() is None else ", and set agent.evaluation_epsilon")
            )
        return mode

    def for_policy(self: Playing, agent: Agent, layout: Layout) -> Playing:
        """Returns the part as the nodes of one of several policies see it.

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
