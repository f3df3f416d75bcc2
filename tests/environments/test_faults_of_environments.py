"""Whatever an environment gives that is wrong, in whatever interface, is refused in one line that says what it is."""

import re

import numpy as np
import pytest
import scripted_faults as faulty

from callboard import environments
from callboard.agents.policies.acting import Stepper
from callboard.environments import AgentStep, MultiAgentEnvironment, make_policy_batches, parse_mapping
from callboard.environments.adapters.old_gym import OldGym
from callboard.environments.batches import encoding
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.environments.multi_agent.joint_batch import JointBatch
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec

SPEC = encoding.EnvironmentEncoding(observation_encoding(faulty.OBSERVATION), action_encoding(faulty.ACTION)).spec()


class OwnAgents(MultiAgentEnvironment):
    """Callboard's own interface for several agents, whose observations nothing has converted."""

    agents = faulty.AGENTS
    specs = dict.fromkeys(faulty.AGENTS, EnvironmentSpec(SPEC.observation, SPEC.action))

    def __init__(self, task=None):
        self._script = faulty.Script(task)

    def set_task(self, task):
        self._script.task = task

    def reset(self, seed=None):
        self.is_over = False
        return {"a": AgentStep(faulty.RIGHT), "b": AgentStep(self._script.begin())}

    def step(self, actions):
        return {"a": AgentStep(faulty.RIGHT), "b": AgentStep(*self._script.act())}


def single(create, *options):
    return environments.make(create, 1, [0], *options)


def agents(create, options=None):
    mapping = parse_mapping(None, faulty.AGENTS, {"p": None})
    return JointBatch(make_policy_batches(create, 1, [0], options, mapping, ["p"]), ["p"])


OLD = faulty.Old()
SAME = {"env_python": "same"}
ADAPTERS = {
    "single": lambda: single(faulty.Single),
    "old Gym": lambda: single(lambda: OLD, {"env_wrappers": OldGym.__name__}),
    "vector": lambda: environments.make(faulty.Vector, 2, [0, 1]),
    "dm_env": lambda: single(faulty.Dm),
    "parallel agents": lambda: agents(faulty.Parallel),
    "agents by turns": lambda: agents(faulty.turns),
    "RLlib agents": lambda: agents(faulty.Rllib),
    "dm_env agents": lambda: agents(faulty.DmAgents),
    "own agents": lambda: agents(OwnAgents),
    "single in a worker": lambda: single("scripted_faults:Single", SAME),
    "agents in a worker": lambda: agents("scripted_faults:Parallel", SAME),
    "dm_env in a worker": lambda: single("scripted_faults:Dm", SAME),
}


WORDS = {
    "shape": r"of shape \(3,\) at 'place'",
    "part": "without the part 'place'",
    "text": "at 'place' is of type <U1, not of numbers",
    "nothing": "at 'place'",
    "NaN": r"observation.*place.* (contains nan|is NaN)",
    "infinite": r"observation.*place.* (contains -inf|is infinite)",
    "choice": "at 'turn' is 4, which is outside of its space, 0 to 3",
    "fraction": "at 'turn' contains 1.5",
    "dtype": "at 'picture' contains 300, which uint8",
    "no action": "action mask that allows nothing",
    "mask size": r"of shape \(4,\) at 'action_mask'",
    "mask value": "an action mask contains -1: let it be 1",
    "text of numbers": r"at 'place' is of type <U\d+, not of numbers",
    "dates": "at 'place' (is of type (datetime64|<U)|that is not float32)",
    "reward NaN": "reward.* (nan|NaN)",
    "reward infinite": "reward.* inf",
    "reward text": r"reward.* ('1.5'|of shape \(2,\) and type <U3)",
    "reward nothing": r"reward.* (None|of shape \(2,\) and type object)",
    "reward array": r"reward.* (array|of shape \(2, 3\))",
    "terminated text": r"terminat.* ('no'|of shape \(2,\) and type <U5)",
    "truncated number": r"truncat.* (2: it must be True or False|of shape \(2,\) and type int64)",
    "terminated array": r"terminat.* (array|of shape \(2, 2\))",
    "discount text": "discount '1'",
    "discount nothing": "discount None",
    "discount NaN": "discount nan",
    "discount large": "discount 1.5",
}
ENDS_OF = {
    "old Gym": ("terminated text", "terminated array"),
    "dm_env": faulty.DISCOUNTS,
    "dm_env agents": faulty.DISCOUNTS,
    "dm_env in a worker": ("discount NaN", "discount large"),
}


def zeros(batch):
    return {"p": np.zeros(2, np.int32)} if isinstance(batch.spec.action, dict) else np.zeros(batch.batch_size, np.int32)


def error_of(batch, task):
    """The error of an environment with a fault, as it is while acting; "" if there is none."""
    try:
        OLD.set_task(task)
        if getattr(batch.environments[0].unwrapped, "_environment", None) is not OLD:
            batch.set_task(task)
        stepper = Stepper(batch)
        for _ in range(3):
            stepper.step(zeros(batch))
    except CallboardError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ADAPTERS)
def test_every_fault_in_every_call_is_refused_by_name(kind):
    batch = ADAPTERS[kind]()
    try:
        assert error_of(batch, None) == ""
        of_steps = (*faulty.OBSERVATIONS, *faulty.REWARDS, *ENDS_OF.get(kind, faulty.ENDS))
        for call, faults in ((0, faulty.OBSERVATIONS), (1, of_steps), (2, of_steps)):
            for fault in faults:
                error = error_of(batch, [fault, call])
                assert re.search(WORDS[fault], error) and "\n" not in error, (fault, call, error)
                assert "agent" not in kind or "agent 'b'" in error, (fault, call, error)
        # What is right again is taken.
        assert error_of(batch, None) == ""
    finally:
        batch.close()
