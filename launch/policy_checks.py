"""Checks of the policies of an experiment, before anything starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..data import Layout
from ..environments import environment_text
from ..errors import CallboardError
from .policy_settings import SHARED, check_policies

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


def check_all_policies(experiment: Experiment, learners_here: int | None) -> Layout:
    """Rejects an experiment with several agents that cannot work.

    Args:
      experiment: the experiment.
      learners_here: see `Experiment.check`.

    Returns:
      The layout of the first policy that learns.

    Raises:
      CallboardError: names the problem, in one line.
    """
    check_policies(experiment.policies or {SHARED: experiment.agent}, experiment.trained)
    plan, evaluated = experiment.plan(), experiment.plan(evaluation=True)
    assert plan is not None and evaluated is not None
    for name in plan.policies:
        if name not in {**plan.slots, **evaluated.slots}:
            raise CallboardError(
                f"no agent of the environment gets the policy {name!r}; name it in mapping, or leave it out"
            )
    layouts = {}
    for name, agent in plan.learning.items():
        if name not in plan.slots:
            raise CallboardError(
                f"the policy {name!r} is to learn, and no agent gets it in training; name it in mapping"
            )
        layouts[name] = layout = experiment.policy_layout(plan, name)
        with _naming(name):
            experiment.for_policy(agent, layout).check_agent(layout, learners_here)
    return next(iter(layouts.values()))


@contextlib.contextmanager
def _naming(policy: str) -> Iterator[None]:
    """Adds the name of a policy to errors about its agent."""
    try:
        yield
    except CallboardError as error:
        raise CallboardError(f"the policy {policy!r}: {error}") from error
