"""Checks of the policies of an experiment, before anything starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..data import Layout
from ..environments import environment_text
from ..errors import CallboardError
from ..specs import EnvironmentSpec, describe
from .policy_plan import Layouts, PolicyPlan, make_plan
from .policy_settings import SHARED, Snapshots, check_policies

if TYPE_CHECKING:
    from .experiment import Experiment

_OF_SEVERAL_AGENTS = (
    "policies",
    "mapping",
    "evaluation_mapping",
    "train",
    "agent_groups",
    "agent_index",
    "agent_state",
)


def check_one_policy(experiment: Experiment) -> None:
    """Rejects settings that are for environments with several agents.

    Raises:
      CallboardError: names the first of them.
    """
    for name in _OF_SEVERAL_AGENTS:
        if getattr(experiment, name):
            raise CallboardError(
                f"{name} is for environments with several agents, and {environment_text(experiment.env)} has one; "
                "leave it out"
            )


def check_all_policies(
    experiment: Experiment, agents: Mapping[str, EnvironmentSpec], learners_here: int | None
) -> Layouts:
    """Rejects an experiment with several agents that cannot work.

    Args:
      experiment: the experiment.
      agents: spec of each agent of the environment.
      learners_here: see `Experiment.check`.

    Raises:
      CallboardError: names the problem, in one line.
    """
    check_policies(experiment.policies or {SHARED: experiment.agent}, experiment.trained)
    plan, evaluated = make_plan(experiment, agents), make_plan(experiment, agents, evaluation=True)
    for setting in ("env_wrappers", "env_processes"):
        if getattr(experiment, setting):
            raise CallboardError(f"{setting} is for environments with one agent; leave it out")
    for setting in ("init_from", "freeze"):
        if getattr(experiment, setting):
            raise CallboardError(
                f"{setting} is for environments with one agent; let a policy play with saved weights instead, as "
                "`{weights: RUN@best}`"
            )
    for name in plan.policies:
        if name not in {**plan.slots, **evaluated.slots}:
            raise CallboardError(
                f"no agent of the environment gets the policy {name!r}; name it in mapping, or leave it out"
            )
    _check_spaces(plan, evaluated)
    if experiment.evaluator and not any(name in evaluated.slots for name in plan.learning):
        raise CallboardError("no policy that learns plays in evaluations; name one in evaluation_mapping")
    layouts: dict[str, Layout] = {}
    for name, agent in plan.learning.items():
        if name not in plan.slots:
            raise CallboardError(
                f"the policy {name!r} is to learn, and no agent gets it in training; name it in mapping"
            )
        layouts[name] = layout = experiment.policy_layout(plan, name)
        with _naming(name, layout.agents_per_env):
            experiment.for_policy(agent, layout).check_agent(layout, learners_here)
    return Layouts(next(iter(layouts.values())), layouts, agents)


def _check_spaces(plan: PolicyPlan, evaluated: PolicyPlan) -> None:
    """Rejects agents whose spaces are not those for which their policy, or the policy of their snapshots, learns."""
    for slots_of in (plan.slots, evaluated.slots):
        for name, slots in slots_of.items():
            policy = plan.policies[name]
            learns = policy.snapshots_of if isinstance(policy, Snapshots) else name
            if learns not in plan.learning or learns not in plan.slots:
                continue
            spec = plan.slots[learns].spec
            if slots.spec != spec:
                texts = [f"{describe(one.observation)} with {describe(one.action)}" for one in (spec, slots.spec)]
                what = f"the snapshots {name!r}" if isinstance(policy, Snapshots) else f"the policy {name!r}"
                raise CallboardError(
                    f"{what} cannot play for {slots.agents[0]!r}: {learns!r} learns with {texts[0]}, and the agent has "
                    f"{texts[1]}; change the mapping"
                )


@contextlib.contextmanager
def _naming(policy: str, agents: int = 1) -> Iterator[None]:
    """Adds the name of a policy to errors about it, and for how many agents of an environment it plays."""
    try:
        yield
    except CallboardError as error:
        plays = f", which plays for {agents} agents of each environment" if agents > 1 else ""
        raise CallboardError(f"the policy {policy!r}{plays}: {error}") from error
