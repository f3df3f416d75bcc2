"""Checks of the policies of an experiment, before anything starts."""

import contextlib
import re
from collections.abc import Iterator, Mapping

from ...agents.agent_names import agent_name
from ...data import Layout
from ...environments import ONLY_AGENT, environment_text, is_multi_agent
from ...environments.multi_agent.policy_slots import EPISODES_TRIED, FunctionMapping
from ...errors import CallboardError, unknown
from ...specs import EnvironmentSpec, describe
from ..run_directory.metric_names import POLICY_METRICS
from .experiment_checks import check_agent, check_run_conditions, node_counts
from .parts.acting_part import ActingPart
from .parts.environment_part import PoliciesPart
from .parts.output_part import CheckpointsPart
from .parts.placement_part import WarmStartPart
from .policy_plan import Layouts, PolicyPlan, make_plan
from .policy_settings import SHARED, Snapshots, check_policies
from .stop_conditions import check_conditions, parse_conditions

_OF_SEVERAL_AGENTS = (
    "policies",
    "mapping",
    "evaluation_mapping",
    "train",
    "agent_groups",
    "agent_index",
    "agent_padding",
    "agent_state",
)
_OF_ONE_AGENT = ("init_from", "freeze")
_OF_EACH_POLICY = ("learner/", "replay/", "inference/")
"""Beginnings of the names of metrics that each policy has for itself."""
_OF_ALL_LEARNERS = ("learner/duplicate_items", "learner/steps_per_second", "learner/waiting_for_data")
"""Metrics that begin so, and are of the whole run."""
_OF_POLICY = tuple(
    metric.name.removeprefix("POLICY/") for metric in POLICY_METRICS if metric.name.startswith("POLICY/")
)


def check_number_of_agents(environment: PoliciesPart, warm_start: WarmStartPart) -> None:
    """Rejects settings that are for more agents than the environment has, or for fewer.

    Raises:
      CallboardError: names the first of them, or an environment with several agents in a list.
    """
    for entry in environment.env if isinstance(environment.env, tuple) else ():
        if is_multi_agent(entry.name, {**environment.env_options, **environment.python_of_env, **entry.options}):
            raise CallboardError(
                f"environments in a list have one agent each, and {environment_text(entry.name)} has several; make it "
                "the only one"
            )
    if environment.has_agents:
        for name in _OF_ONE_AGENT:
            if getattr(warm_start, name):
                raise CallboardError(
                    f"{name} is for environments with one agent; let a policy play with saved weights instead, as "
                    "`{weights: RUN@best}`"
                )
        return
    for name in _OF_SEVERAL_AGENTS:
        if getattr(environment, name):
            raise CallboardError(
                f"{name} is for environments with several agents, and {environment_text(environment.env)} has one; "
                "leave it out"
            )


def check_policies_learn(
    acting: ActingPart,
    checkpoints: CheckpointsPart,
    agents: Mapping[str, EnvironmentSpec],
    learners_here: int | None,
) -> Layouts:
    """Rejects an experiment whose policies cannot play or learn.

    Args:
      acting: the policies, their environment, and the nodes and limits of the run.
      checkpoints: how often weights are published.
      agents: spec of each agent of the environment.
      learners_here: see `run_checks.check_experiment`.

    Raises:
      CallboardError: names the problem, in one line.
    """
    check_policies(acting.policies or {SHARED: acting.agent}, acting.trained)
    plan, evaluated = make_plan(acting, agents), make_plan(acting, agents, evaluation=True)
    for name in plan.policies:
        if name not in {**plan.slots, **evaluated.slots}:
            raise CallboardError(
                f"no agent of the environment gets the policy {name!r}{_of_function(plan)}; name it in mapping, "
                "or leave it out"
            )
    _check_spaces(plan, evaluated)
    _check_conditions(acting, plan, evaluated)
    if acting.evaluator and not any(name in evaluated.slots for name in plan.learning):
        raise CallboardError("no policy that learns plays in evaluations; name one in evaluation_mapping")
    layouts: dict[str, Layout] = {}
    for name, agent in plan.learning.items():
        if name not in plan.slots:
            raise CallboardError(
                f"the policy {name!r} is to learn, and no agent gets it in training{_of_function(plan)}; name it in "
                "mapping"
            )
        layouts[name] = layout = plan.layout_in(acting, name)
        with _naming(name, layout.agents_per_env):
            check_agent(acting.for_policy(agent, layout), checkpoints, layout, learners_here)
    return Layouts(next(iter(layouts.values())), layouts, agents)


def _of_function(plan: PolicyPlan) -> str:
    """Returns the part of a message about what a mapping gives that says how it is known; empty for a table."""
    tried = isinstance(plan.mapping, FunctionMapping)
    return f" in the {EPISODES_TRIED} or more episodes for which the mapping was tried" if tried else ""


def _check_conditions(acting: ActingPart, plan: PolicyPlan, evaluated: PolicyPlan) -> None:
    """Rejects conditions on metrics of single policies and agents that can never hold."""
    if ONLY_AGENT in plan.learning:
        check_run_conditions(acting, agent_name(plan.learning[ONLY_AGENT]))
        return
    stages = [stage.when for stage in acting.curriculum if stage.when is not None]
    for setting, texts in (("stop_when", acting.stop_when), ("curriculum: when", stages)):
        for condition in parse_conditions(texts, setting):
            policy, _, metric = condition.metric.partition("/")
            if condition.metric.startswith(("agent/", *(f"evaluator/{name}/" for name in ("agent", *plan.policies)))):
                known = _metrics_of_agents(plan, evaluated)
                if condition.metric not in known:
                    raise unknown(
                        f"metric in {setting}",
                        condition.metric,
                        known,
                        'the page "Metrics" of the documentation lists all',
                    )
            if condition.metric.startswith(_OF_EACH_POLICY) and condition.metric not in _OF_ALL_LEARNERS:
                raise CallboardError(
                    f"{setting} {str(condition)!r} never holds: with several agents, metrics of learners, replay and "
                    f"inference nodes begin with the name of a policy, as {next(iter(plan.learning))}/"
                    f"{condition.metric} does"
                )
            if policy not in plan.policies:
                continue
            agent = plan.learning.get(policy)
            with _naming(policy):
                if agent is not None and metric.startswith(_OF_EACH_POLICY):
                    own = str(condition._replace(metric=metric))
                    check_conditions([own], agent_name(agent), node_counts(acting), setting=setting)
                elif re.sub(r"_\d+$", "", metric) not in _OF_POLICY:
                    raise unknown(
                        f"metric in {setting}", metric, _OF_POLICY, 'the page "Metrics" of the documentation lists all'
                    )


def _metrics_of_agents(plan: PolicyPlan, evaluated: PolicyPlan) -> list[str]:
    """Returns the names of the metrics of single agents, and of policies in evaluations."""
    agents = plan.mapping.policies_of
    return [
        *(f"agent/{agent}/episode_return" for agent in agents),
        *(f"evaluator/agent/{agent}/return" for agent in agents),
        *(f"evaluator/{policy}/{metric}" for policy in evaluated.slots for metric in ("return", "score")),
    ]


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
    """Adds the name of a policy, if it has one, to errors about it, and for how many agents it plays."""
    try:
        yield
    except CallboardError as error:
        if not policy:
            raise
        plays = f", which plays for {agents} agents of each environment" if agents > 1 else ""
        raise CallboardError(f"the policy {policy!r}{plays}: {error}") from error
