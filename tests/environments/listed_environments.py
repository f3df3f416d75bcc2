"""One scripted environment that goes through a list of cases, behind every adapter of an interface.

Each reset begins the next case, numbered from 1.  Case `n` of an environment of length `L` ends after `L` steps, as
`ENDS[(n - 1) % 4]` says; the observation is `[case, steps in it]`, and each step earns 1.
"""

import dm_env
import gymnasium
import numpy as np
from dm_env import specs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from callboard import environments
from callboard.environments import make_policy_batches, parse_mapping
from callboard.environments.adapters.dm_env_adapter import DmEnvBatch
from callboard.environments.adapters.envpool import EnvPoolVector
from callboard.environments.adapters.gymnasium_batch import GymnasiumBatch
from callboard.environments.adapters.gymnasium_vector_batch import GymnasiumVectorBatch
from callboard.environments.adapters.old_gym import OldGym, as_gymnasium
from callboard.environments.adapters.single_environments import Singles, make_batch
from callboard.environments.multi_agent.joint_batch import JointBatch

ENDS = ("truncated", "terminated", "both", "truncated")
LENGTHS = (1, 2, 3)
AGENTS = ("a", "b")


class Cases:
    """The script; `begun` counts resets, `acted` steps, and `options` are those of each reset."""

    def __init__(self, length):
        self.length, self.begun, self.acted, self.options = length, 0, 0, []

    def begin(self, options=None):
        self.begun, self.time = self.begun + 1, 0
        self.options.append(options)
        return self.observation

    def act(self):
        """Returns (observation, terminated, truncated)."""
        assert self.time < self.length, "a step after the end of the episode"
        self.time, self.acted = self.time + 1, self.acted + 1
        end = ENDS[(self.begun - 1) % 4] if self.time == self.length else ""
        return self.observation, end in ("terminated", "both"), end in ("truncated", "both")

    @property
    def observation(self):
        return np.array([self.begun, self.time], np.float64)


class Listed(gymnasium.Env):
    observation_space = spaces.Box(0, 999, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, cases):
        self.cases = cases

    def reset(self, *, seed=None, options=None):
        return self.cases.begin(options), {"case": self.cases.begun}

    def step(self, action):
        observation, terminated, truncated = self.cases.act()
        return observation, 1.0, terminated, truncated, {"case": self.cases.begun}


class OldListed:
    """The interface of Gym, whose time limit does not hide that the episode is done."""

    observation_space, action_space = Listed.observation_space, Listed.action_space

    def __init__(self, cases):
        self.cases = cases

    def reset(self):
        return self.cases.begin()

    def step(self, action):
        observation, terminated, truncated = self.cases.act()
        return observation, 1.0, terminated or truncated, {"TimeLimit.truncated": truncated and not terminated}

    def close(self):
        pass


class DmListed(dm_env.Environment):
    def __init__(self, cases):
        self.cases = cases

    def reset(self):
        return dm_env.restart(self.cases.begin())

    def step(self, action):
        observation, terminated, truncated = self.cases.act()
        make = dm_env.termination if terminated else dm_env.truncation if truncated else dm_env.transition
        return make(1.0, observation)

    def observation_spec(self):
        return specs.Array((2,), np.float64)

    def action_spec(self):
        return specs.DiscreteArray(2)


class Pool:
    """The interface of EnvPool: the step after the last one of an episode begins the next one."""

    observation_space, action_space = Listed.observation_space, Listed.action_space

    def __init__(self, cases):
        self.cases = cases
        self.over = [False] * len(cases)

    def __len__(self):
        return len(self.cases)

    def reset(self):
        self.over = [False] * len(self.cases)
        return np.stack([one.begin() for one in self.cases]), {"env_id": np.arange(len(self.cases))}

    def step(self, actions):
        rows = [
            (one.begin(), False, False) if was_over else one.act()
            for one, was_over in zip(self.cases, self.over, strict=True)
        ]
        observations, terminated, truncated = (np.array(column) for column in zip(*rows, strict=True))
        rewards = np.where(self.over, np.float32(0), np.float32(1))
        self.over = list(terminated | truncated)
        return observations, rewards, terminated, truncated, {}


class DmAgents(dm_env.Environment):
    """Two agents that share a case, and its reward."""

    def __init__(self, cases):
        self.cases = cases

    def reset(self):
        return dm_env.TimeStep(dm_env.StepType.FIRST, None, None, dict.fromkeys(AGENTS, self.cases.begin()))

    def step(self, actions):
        observation, terminated, truncated = self.cases.act()
        kind = dm_env.StepType.LAST if terminated or truncated else dm_env.StepType.MID
        rewards = dict.fromkeys(AGENTS, 0.5)
        return dm_env.TimeStep(kind, rewards, 0.0 if terminated else 1.0, dict.fromkeys(AGENTS, observation))

    def observation_spec(self):
        return {agent: specs.Array((2,), np.float64) for agent in AGENTS}

    def action_spec(self):
        return {agent: specs.DiscreteArray(2) for agent in AGENTS}

    def reward_spec(self):
        return {agent: specs.Array((), np.float64) for agent in AGENTS}


class ParallelAgents:
    """The same in PettingZoo's parallel interface."""

    metadata: dict = {}
    possible_agents = list(AGENTS)

    def __init__(self, cases):
        self.cases = cases

    @property
    def unwrapped(self):
        return self

    def observation_space(self, agent):
        return Listed.observation_space

    def action_space(self, agent):
        return Listed.action_space

    def reset(self, seed=None, options=None):
        self.agents = list(AGENTS)
        return dict.fromkeys(AGENTS, self.cases.begin(options)), {}

    def step(self, actions):
        observation, terminated, truncated = self.cases.act()
        self.agents = [] if terminated or truncated else list(AGENTS)
        values = (observation, 0.5, terminated, truncated, {})
        return tuple(dict.fromkeys(AGENTS, value) for value in values)

    def close(self):
        pass


class RllibAgents:
    """The same in RLlib's interface."""

    possible_agents = list(AGENTS)
    observation_spaces = dict.fromkeys(AGENTS, Listed.observation_space)
    action_spaces = dict.fromkeys(AGENTS, Listed.action_space)

    def __init__(self, cases):
        self.cases = cases

    def reset(self, *, seed=None, options=None):
        return dict.fromkeys(AGENTS, self.cases.begin(options)), {}

    def step(self, actions):
        observation, terminated, truncated = self.cases.act()
        ends = {"__all__": terminated}, {"__all__": truncated}
        return dict.fromkeys(AGENTS, observation), dict.fromkeys(AGENTS, 0.5), *ends, {}


def turns(cases):
    """The same in PettingZoo's interface for turns: each step of the script is the turn of one agent."""
    from pettingzoo import AECEnv

    class Turns(AECEnv):
        metadata = {"name": "turns", "is_parallelizable": False}
        possible_agents = list(AGENTS)
        render_mode = None

        def observation_space(self, agent):
            return Listed.observation_space

        def action_space(self, agent):
            return Listed.action_space

        def observe(self, agent):
            return self.observation

        def reset(self, seed=None, options=None):
            self.observation = cases.begin(options)
            self.agents = list(AGENTS)
            self.agent_selection = AGENTS[0]
            self.rewards = dict.fromkeys(AGENTS, 0.0)
            self._cumulative_rewards = dict.fromkeys(AGENTS, 0.0)
            self.terminations, self.truncations = dict.fromkeys(AGENTS, False), dict.fromkeys(AGENTS, False)
            self.infos = {agent: {} for agent in AGENTS}

        def step(self, action):
            if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
                self._was_dead_step(action)
                return
            self._cumulative_rewards[self.agent_selection] = 0.0
            self.observation, terminated, truncated = cases.act()
            self.rewards = dict.fromkeys(AGENTS, 0.5)
            self.terminations = dict.fromkeys(AGENTS, terminated)
            self.truncations = dict.fromkeys(AGENTS, truncated)
            self.agent_selection = AGENTS[AGENTS.index(self.agent_selection) - 1]
            self._accumulate_rewards()

    return Turns()


def _vector(cases, mode, wrapper=lambda env: env, **options):
    made = SyncVectorEnv([lambda one=one: Listed(one) for one in cases], autoreset_mode=mode, **options)
    return GymnasiumVectorBatch(wrapper(made), range(len(cases)))


def _joint(create):
    def made(cases):
        rest = iter(cases)
        mapping = parse_mapping(None, AGENTS, {"p": None})
        batches = make_policy_batches(lambda: create(next(rest)), len(cases), range(len(cases)), None, mapping, ["p"])
        return JointBatch(batches, ["p"])

    return made


SAME_STEP = {
    "same step": lambda cases: _vector(cases, AutoresetMode.SAME_STEP),
    "same step, not copied": lambda cases: _vector(cases, AutoresetMode.SAME_STEP, copy=False),
    "same step, wrapped": lambda cases: _vector(cases, AutoresetMode.SAME_STEP, RecordEpisodeStatistics),
}
ADAPTERS = {
    "single": lambda cases: GymnasiumBatch([Listed(one) for one in cases], range(len(cases))),
    "old Gym": lambda cases: GymnasiumBatch([OldGym(as_gymnasium(OldListed(one))) for one in cases], range(len(cases))),
    "dm_env": lambda cases: DmEnvBatch([DmListed(one) for one in cases]),
    "next step": lambda cases: _vector(cases, AutoresetMode.NEXT_STEP),
    "EnvPool": lambda cases: GymnasiumVectorBatch(EnvPoolVector("Listed", Pool(cases)), range(len(cases))),
    "dm_env agents": _joint(DmAgents),
    "parallel agents": _joint(ParallelAgents),
    "agents by turns": _joint(turns),
    "RLlib agents": _joint(RllibAgents),
    **SAME_STEP,
}


def sync_vector(batch_size, lengths, mode):
    """A factory for the environments of a worker, which are no objects of this process."""
    return SyncVectorEnv([lambda one=one: Listed(Cases(one)) for one in lengths], autoreset_mode=mode)


def _in_worker(mode):
    def made(cases):
        options = {"lengths": [one.length for one in cases], "mode": mode, "env_python": "same"}
        return environments.make("listed_environments:sync_vector", len(cases), range(len(cases)), options)

    return made


IN_WORKERS = {
    "same step in a worker": _in_worker(AutoresetMode.SAME_STEP.value),
    "next step in a worker": _in_worker(AutoresetMode.NEXT_STEP.value),
}


def in_processes(cases):
    return make_batch(lambda index: Listed(cases[index]), range(len(cases)), Singles(processes=True), "Listed")
