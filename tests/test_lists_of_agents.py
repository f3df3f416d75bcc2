"""Lists of agents in the pages name those that have the setting, the mode or the action that they speak of."""

import contextlib
import pathlib
import re

import dm_env.specs
import numpy as np
import pytest
from small_worlds import SPEC, layout_of

from callboard.agents.agent_names import AGENTS
from callboard.agents.registry import agent_class
from callboard.errors import CallboardError
from callboard.settings.nested_settings import with_values

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
SHOWN = {"apex": "Ape-X", "drq": "DrQ", "td3_bc": "TD3+BC"}
NAMES = {SHOWN.get(name, name.upper()): name for name in AGENTS}
NAME = re.compile(
    "|".join(rf"(?<![\\w+-]){re.escape(name)}(?![\\w+-])" for name in sorted(NAMES, key=len, reverse=True))
)
WRAPPED = re.compile(r"\n *(?![|\n#`-])")
"""Ends of lines inside of paragraphs."""
CHOICE = dm_env.specs.DiscreteArray(3)
CHOICES = {"first": CHOICE, "second": CHOICE}
NUMBERS = dm_env.specs.BoundedArray((2,), np.float32, -1, 1)


def having(setting):
    """The agents that have a setting."""

    def has(agent):
        for part in setting.split("."):
            if not hasattr(agent, part):
                return False
            agent = getattr(agent, part)
        return True

    return {name for name in AGENTS if has(agent_class(name)())}


def taking(action):
    """The agents that take an action."""

    def takes(name):
        try:
            agent_class(name)().check(layout_of(SPEC._replace(action=action)))
        except CallboardError:
            return False
        return True

    return {name for name in AGENTS if takes(name)}


def decaying():
    agents = {name: agent_class(name)() for name in having("optimizer.learning_rate_decay")}
    return {name for name, agent in agents.items() if agent.optimizer.learning_rate_decay}


def changing(setting):
    return {name for name in AGENTS if setting in agent_class(name)().live}


def alone():
    return {name for name in AGENTS if agent_class(name)().default_envs_per_actor == 1}


def queued():
    """The agents that read from a queue."""

    def reads(name):
        agent = agent_class(name)()
        layouts = [layout_of(SPEC._replace(action=action)) for action in (CHOICE, NUMBERS)]
        layout = next((layout for layout in layouts if takes(agent, layout)), None)
        return layout is not None and agent.make_replay(layout).is_queue

    def takes(agent, layout):
        try:
            agent.check(layout)
        except CallboardError:
            return False
        return True

    return {name for name in AGENTS if reads(name)}


def learning_batch_normalization():
    """The agents that take a torso with batch normalization."""
    images = SPEC._replace(observation=dm_env.specs.BoundedArray((32, 32, 3), np.uint8, 0, 255))

    def learns(name):
        agent = with_values(agent_class(name)(), {"network.torso": "resnet8"})
        layout = layout_of(images._replace(action=NUMBERS if name in having("actor_optimizer") else CHOICE))
        with contextlib.suppress(CallboardError):
            agent.check(layout)
            return True
        return False

    return {name for name in AGENTS if learns(name)}


TEAMS = {"qmix", "vdn"}
LISTS = [
    ("stopping.md", "the default of", "has reached 0", decaying),
    ("learners.md", "(all agents but", ") makes N learner steps", lambda: AGENTS.keys() - having("updates_per_call")),
    (
        "evaluation.md",
        "as actors do, for",
        "An early greedy",
        lambda: {name for name in AGENTS if "sample" in agent_class(name)().modes()},
    ),
    ("concepts.md", "read from a queue (", ")", queued),
    ("replay.md", "**Queues** (", ")", queued),
    ("guides/external_simulators.md", "own actions alone (", ")", queued),
    ("evaluation.md", "rate of random actions, for", "A greedy policy", lambda: having("evaluation_epsilon")),
    ("evaluation.md", "--epsilon 0.01 ", "\n", lambda: having("evaluation_epsilon")),
    ("guides/network.md", "and its units (", ")", lambda: having("network.core")),
    ("guides/network.md", "log(1 + \\|r\\|) (", "; for others", lambda: having("network.previous_inputs")),
    ("guides/network.md", "a core each (", ")", lambda: having("network.shared") - TEAMS),
    ("guides/network.md", "of policy and value (", ")", lambda: having("network.head_sizes")),
    ("guides/network.md", "the head with action values (", ")", lambda: having("network.dueling")),
    ("guides/optimization.md", "`agent.optimizer` (of", "`actor_optimizer`", lambda: having("actor_optimizer")),
    ("guides/optimization.md", "| `epsilon` |", "|\n", lambda: changing("epsilon")),
    ("guides/optimization.md", "| `clip` |", "|\n", lambda: changing("clip")),
    ("guides/optimization.md", "| `entropy_cost` |", "|\n", lambda: changing("entropy_cost")),
    (
        "guides/optimization.md",
        "| `replay.importance_exponent` |",
        "|\n",
        lambda: changing("replay.importance_exponent"),
    ),
    ("guides/session.md", "`epsilon` of", "and `replay", lambda: changing("epsilon")),
    ("guides/session.md", "`clip` of", ",", lambda: changing("clip")),
    (
        "coming_from.md",
        "by default, 2 times 1 for",
        ".",
        alone,
    ),
    ("sac.md", "## One environment for each actor", "an actor steps one", alone),
    ("resnet.md", "regularizers of a torso of your own.", "learn in this way", learning_batch_normalization),
    ("ppo.md", "It is a setting of", ":", lambda: having("network.critic_state")),
    ("environments.md", "| agents | actions |\n", "\n\n", lambda: set(AGENTS)),
    (
        "environments.md",
        "|---|---|\n| IMPALA",
        "| all;",
        lambda: taking({"c": CHOICE, "n": NUMBERS}) - {"sac", "impala"},
    ),
    ("environments.md", "bounds of numbers may be infinite |\n|", "| all;", lambda: {"sac"}),
]


@pytest.mark.parametrize(("page", "begin", "end", "agents"), LISTS)
def test_a_list_of_agents_is_complete(page, begin, end, agents):
    text = WRAPPED.sub(" ", (DOCS / page).read_text())
    assert text.count(begin) == 1, f"{begin!r} is to be in {page} once"
    listed = text.partition(begin)[2].partition(end)[0]
    assert {NAMES[name] for name in NAME.findall(listed)} == agents()


def test_no_agent_acts_on_what_only_its_critic_sees():
    seen = {"own": SPEC.observation, "state": NUMBERS}
    for name in having("network.critic_state"):
        agent = with_values(agent_class(name)(), {"network.shared": False, "network.critic_state": "state"})
        assert set(agent.acting_spec(SPEC._replace(observation=seen)).observation) == {"own"}, name


def test_agents_without_all_actions_take_those_of_their_row():
    rows = dict(
        re.findall(
            r"^\| ([^|]+) \| (discrete ones|one [^|]+?)(?:; [^|]*)? \|$", (DOCS / "environments.md").read_text(), re.M
        )
    )
    named = {what: {NAMES[name] for name in NAME.findall(agents)} for agents, what in rows.items()}
    most = taking({"c": CHOICE, "n": NUMBERS})
    assert named["one `Box`"] == taking(NUMBERS) - taking(CHOICE)
    assert named["discrete ones"] == taking(CHOICES) - taking(NUMBERS) - TEAMS
    # DrQ does not take this observation, which is no image.
    assert named["one discrete choice, or one `Box`"] - {"drq"} == (taking(CHOICE) & taking(NUMBERS)) - most
