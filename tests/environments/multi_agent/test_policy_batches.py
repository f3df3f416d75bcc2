"""Environments with several agents as batches per policy: every timestep and every valid transition."""

import numpy as np
import pytest
from dm_env import specs
from scripted_agents import SPEC, ScriptedAgents, batches_of, seen

from callboard.environments import make_policy_batches, parse_mapping
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec
from callboard.transitions import valid_transitions

ABSENT = (0, 0, 1, True, True)


def rows(timesteps):
    """One list to each slot: (observation, reward, discount, first, last)."""
    return [
        [
            (one.observation[slot, 0], one.reward[slot], one.discount[slot], one.first[slot], one.last[slot])
            for one in timesteps
        ]
        for slot in range(len(timesteps[0].reward))
    ]


def slot_count(batches, policy):
    return batches.batch_size * len(batches.slots[policy].agents)


def played(batches, count, policy="p", action=0):
    """The timesteps of `count` steps after a reset, in which every slot takes the action `action`."""
    timesteps = [batches.reset()[policy]]
    for _ in range(count):
        actions = {policy: np.full(slot_count(batches, policy), action, np.int32) for policy in batches.slots}
        timesteps.append(batches.step(actions)[policy])
    return timesteps


def valid(timesteps):
    """Which transitions are valid, one list to each slot."""
    first, last, discount = (
        np.stack([getattr(one, name) for one in timesteps]) for name in ("first", "last", "discount")
    )
    return valid_transitions(first, last, discount[1:]).T.tolist()


def test_one_agent_terminates_and_the_other_is_cut_off():
    episode = [
        {"a": seen(1), "b": seen(11)},
        {"a": seen(2, 5), "b": seen(12, 6)},
        {"a": seen(3, 7, "terminated"), "b": seen(13, 8)},
        {"b": seen(14, 9)},
        {"b": seen(15, 10, "truncated")},
    ]
    timesteps = played(batches_of(ScriptedAgents(episode, episode)), 6)
    assert rows(timesteps) == [
        [
            (1, 0, 1, True, False),
            (2, 5, 1, False, False),
            (3, 7, 0, False, True),
            ABSENT,
            ABSENT,
            (1, 0, 1, True, False),
            (2, 5, 1, False, False),
        ],
        [
            (11, 0, 1, True, False),
            (12, 6, 1, False, False),
            (13, 8, 1, False, False),
            (14, 9, 1, False, False),
            (15, 10, 1, False, True),
            (11, 0, 1, True, False),
            (12, 6, 1, False, False),
        ],
    ]
    assert valid(timesteps) == [
        [True, True, False, False, False, True],
        [True, True, True, True, False, True],
    ]


def test_an_agent_that_appears_later_and_one_that_disappears():
    episode = [
        {"a": seen(1)},
        {"a": seen(2, 5), "b": seen(11, 99)},
        {"b": seen(12, 6)},
        {"a": seen(4, 99), "b": seen(13, 7)},
        {"a": seen(5, 8), "b": seen(14, 9, "terminated")},
    ]
    timesteps = played(batches_of(ScriptedAgents(episode, episode)), 5)
    assert rows(timesteps) == [
        # It disappears for one step, then appears again; its episode ends with the environment's.
        [
            (1, 0, 1, True, False),
            (2, 5, 1, False, False),
            ABSENT,
            (4, 0, 1, True, False),
            (5, 8, 1, False, True),
            (1, 0, 1, True, False),
        ],
        [
            ABSENT,
            (11, 0, 1, True, False),
            (12, 6, 1, False, False),
            (13, 7, 1, False, False),
            (14, 9, 0, False, True),
            ABSENT,
        ],
    ]
    assert valid(timesteps) == [[True, False, False, True, False], [False, True, True, True, False]]


def test_an_agent_that_ended_may_begin_again():
    episode = [
        {"a": seen(1)},
        {"a": seen(2, 3, "terminated")},
        {"a": seen(3, 99)},
        {"a": seen(4, 5, "truncated")},
        {"a": seen(5, 99)},
        {"a": seen(6, 7)},
    ]
    timesteps = played(batches_of(ScriptedAgents(episode, agents=("a",))), 5)
    assert rows(timesteps) == [
        [
            (1, 0, 1, True, False),
            (2, 3, 0, False, True),
            (3, 0, 1, True, False),
            (4, 5, 1, False, True),
            (5, 0, 1, True, False),
            (6, 7, 1, False, True),
        ]
    ]
    assert valid(timesteps) == [[True, False, True, False, True]]


def test_an_agent_that_appears_at_the_end_has_no_transition(caplog):
    episode = [{"a": seen(1)}, {"a": seen(2, 3, "terminated"), "b": seen(9, 99, "terminated")}]
    timesteps = played(batches_of(ScriptedAgents(episode, episode)), 2)
    assert [record.getMessage() for record in caplog.records] == [
        "agent 'b' gets the reward 99 where it appears, which is for none of its actions: it is ignored"
    ]
    assert rows(timesteps)[1] == [ABSENT, (9, 0, 1, True, True), ABSENT]
    assert valid(timesteps)[1] == [False, False]


def test_environments_begin_episodes_at_their_own_time():
    short = [{"a": seen(1)}, {"a": seen(2, 1, "terminated")}]
    long = [{"a": seen(5)}, {"a": seen(6, 2)}, {"a": seen(7, 3, "truncated")}]
    batches = batches_of(
        ScriptedAgents(short, short, short, agents=("a",)), ScriptedAgents(long, long, agents=("a",)), seeds=[7, 8]
    )
    timesteps, executed = [batches.reset()["p"]], []
    for _ in range(4):
        timesteps.append(batches.step({"p": np.zeros(2, np.int32)})["p"])
        executed.append((batches.executed, batches.executed_by))
    assert rows(timesteps) == [
        [
            (1, 0, 1, True, False),
            (2, 1, 0, False, True),
            (1, 0, 1, True, False),
            (2, 1, 0, False, True),
            (1, 0, 1, True, False),
        ],
        [
            (5, 0, 1, True, False),
            (6, 2, 1, False, False),
            (7, 3, 1, False, True),
            (5, 0, 1, True, False),
            (6, 2, 1, False, False),
        ],
    ]
    assert executed == [(2, {"p": 2}), (1, {"p": 1}), (1, {"p": 1}), (1, {"p": 1})]
    assert [environment.seeds for environment in batches.environments] == [[7, None, None], [8, None]]


def test_slots_are_environment_major_and_actions_reach_their_agents():
    episode = [{agent: seen(0) for agent in "abc"}] * 3
    environments = [ScriptedAgents(episode, agents=("a", "b", "c")) for _ in range(2)]
    batches = batches_of(*environments, mapping={"b": "q", "*": "p"}, policies=("p", "q"))
    assert batches.slots["p"].agents == ("a", "c") and batches.slots["q"].agents == ("b",)
    assert (slot_count(batches, "p"), slot_count(batches, "q"), batches.batch_size) == (4, 2, 2)
    batches.reset()
    timesteps = batches.step({"p": np.array([1, 2, 3, 4], np.int32), "q": np.array([5, 6], np.int32)})
    assert [environment.taken for environment in environments] == [
        [{"a": 1, "b": 5, "c": 2}],
        [{"a": 3, "b": 6, "c": 4}],
    ]
    assert timesteps["p"].reward.shape == (4,) and timesteps["q"].reward.shape == (2,)
    assert batches.executed_by == {"p": 4, "q": 2}


def test_an_agent_is_absent_from_the_slots_of_other_policies():
    episode = [{"a": seen(1)}, {"a": seen(2, 5, "terminated")}]
    order = ["q", "p", "q"]
    calls = []

    def alternate(agent, episode, rng):
        calls.append((agent, episode))
        return order[episode]

    batches = batches_of(
        ScriptedAgents(episode, episode, episode, agents=("a",)), mapping=alternate, policies=("p", "q")
    )
    timesteps, used = [batches.reset()], [(batches.use("p"), batches.use("q"))]
    for _ in range(5):
        # A policy that is not used may be left out.
        actions = {policy: np.zeros(1, np.int32) for policy in "pq" if batches.use(policy)}
        timesteps.append(batches.step(actions))
        used.append((batches.use("p"), batches.use("q")))
    shown, ended = (1, 0, 1, True, False), (2, 5, 0, False, True)
    assert rows([one["p"] for one in timesteps]) == [[ABSENT, ABSENT, shown, ended, ABSENT, ABSENT]]
    assert rows([one["q"] for one in timesteps]) == [[shown, ended, ABSENT, ABSENT, shown, ended]]
    assert calls == [("a", 0), ("a", 1), ("a", 2)]
    assert used == [(False, True)] * 2 + [(True, False)] * 2 + [(False, True)] * 2
    assert [episode.policies for episode in batches.take_episodes()] == [{"a": "q"}, {"a": "p"}, {"a": "q"}]


def test_episodes():
    first = [{"a": seen(1)}, {"a": seen(2, 5), "b": seen(3, 99)}, {"a": seen(2, 1.5), "b": seen(3, -2, "terminated")}]
    second = [{"a": seen(1)}, {"a": seen(2, 4, "truncated")}]
    batches = batches_of(ScriptedAgents(first, second), ScriptedAgents(second, second))
    played(batches, 1)
    assert [tuple(episode) for episode in batches.take_episodes()] == [(1, 1, {"a": 4.0}, {"a": "p"}, None)]
    assert batches.take_episodes() == []
    batches.step({"p": np.zeros(4, np.int32)})
    assert [tuple(episode) for episode in batches.take_episodes()] == [
        (0, 2, {"a": 6.5, "b": -2.0}, {"a": "p", "b": "p"}, None)
    ]


def test_an_episode_has_the_task_with_which_it_began():
    episode = [{"a": seen(1)}, {"a": seen(2, 4, "truncated")}]
    batches = batches_of(ScriptedAgents(episode, episode))
    batches.set_task("easy")
    batches.reset()
    batches.set_task("hard")
    for _ in range(3):
        batches.step({"p": np.zeros(2, np.int32)})
    assert [episode.task for episode in batches.take_episodes()] == ["easy", "hard"]


def test_infos():
    episode = [{"a": seen(1)}, {"a": seen(2), "b": seen(11)}, {"a": seen(3), "b": seen(12)}]
    batches = batches_of(ScriptedAgents(episode, episode))
    assert batches.infos is None
    batches.keep_infos()
    infos = []
    batches.reset()
    for _ in range(3):
        infos.append(batches.infos["p"])
        batches.step({"p": np.zeros(2, np.int32)})
    assert [([dict(x) for x in one.followed], [dict(x) for x in one.begun]) for one in infos] == [
        ([{}, {}], [{"n": 1}, {}]),
        ([{"n": 2}, {}], [{}, {"n": 11}]),
        ([{"n": 3}, {"n": 12}], [{}, {}]),
    ]


def test_later_steps_do_not_change_a_timestep():
    class Overwriting(ScriptedAgents):
        buffer = np.zeros(1, np.float32)

        def _next(self):
            self.buffer += 1
            return {agent: step._replace(observation=self.buffer) for agent, step in super()._next().items()}

    batches = batches_of(Overwriting([{"a": seen(0)}] * 3, agents=("a",)))
    timesteps = played(batches, 2)
    assert [one.observation.item() for one in timesteps] == [1, 2, 3]
    for name in ("reward", "discount", "first", "last"):
        assert len({id(getattr(one, name)) for one in timesteps}) == 3


def test_absent_agents_have_a_mask_of_ones():
    masked = {
        "observation": specs.BoundedArray((2,), np.int8, 0, 1),
        "action_mask": specs.BoundedArray((3,), np.int8, 0, 1),
    }
    spec = EnvironmentSpec(masked, specs.DiscreteArray(3))
    step = seen(0)._replace(observation={"observation": [1, 1], "action_mask": [0, 1, 0]})
    environment = ScriptedAgents([{"b": step}] * 2, specs={"a": spec, "b": spec})
    observation = batches_of(environment).reset()["p"].observation
    assert observation["observation"].tolist() == [[0, 0], [1, 1]] and observation["observation"].dtype == np.int8
    assert observation["action_mask"].tolist() == [[1, 1, 1], [0, 1, 0]] and observation["action_mask"].dtype == np.int8


def test_the_rest_of_the_interface_is_that_of_a_batch():
    environments = [ScriptedAgents([{"a": seen(1)}]) for _ in range(2)]
    batches = batches_of(*environments)
    batches.set_task(3)
    assert [one.tasks for one in environments] == [[3], [3]]
    assert batches.frames_per_second == 5.0 and (batches.render() == 7).all()
    assert batches.environments == tuple(environments)
    batches.close()
    batches.close()
    assert [one.closed for one in environments] == [1, 1]


def test_environments_must_have_the_same_agents():
    with pytest.raises(CallboardError, match="^environments 0 and 1 have different agents: a, b, and a, c; name all"):
        batches_of(ScriptedAgents(), ScriptedAgents(agents=("a", "c")))


def test_actions_of_a_wrong_shape_are_an_error():
    batches = batches_of(ScriptedAgents([{"a": seen(1)}] * 2))
    batches.reset()
    with pytest.raises(ValueError, match=r"actions of shape \(1,\), expected \(2,\)"):
        batches.step({"p": np.zeros(1, np.int32)})


AGENTS = ("a", "b", "c")


def random_episode(rng):
    """An episode in which agents appear, disappear, end and return at random; observations are unique numbers."""
    length = int(rng.integers(1, 8))
    steps = []
    for _ in range(length + 1):
        chosen = [agent for agent in AGENTS if rng.random() < 0.7]
        ends = ["" if rng.random() < 0.7 else ("terminated", "truncated")[rng.integers(2)] for _ in chosen]
        steps.append(
            {
                agent: seen(int(rng.integers(1, 2**20)), float(rng.integers(9)), end)
                for agent, end in zip(chosen, ends, strict=True)
            }
        )
    return steps


def transitions_of(episode, actions, policies):
    """The valid transitions of an episode: agents that are present, and not at their end, in two steps in a row.

    Returns, by policy, a list of (agent, observation, action, reward, discount, next observation).
    """
    found = {"p": [], "q": []}
    for time, (before, after) in enumerate(zip(episode, episode[1:], strict=False)):
        began = set()
        for agent, step in before.items():
            over = step.terminated or step.truncated
            if agent in after and not over:
                result = after[agent]
                numbers = (step.observation.item(), actions[time][agent], result.reward, 1 - result.terminated)
                found[policies[agent]].append((agent, *numbers, result.observation.item()))
            began.add(agent)
    return found


@pytest.mark.slow("daily")
@pytest.mark.parametrize("seed", range(5))
def test_random_episodes_give_the_transitions_of_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    scripts = [[random_episode(rng) for _ in range(60)] for _ in range(3)]
    environments = [ScriptedAgents(*script, agents=AGENTS) for script in scripts]
    mapping = {"a": "p", "b": {"p": 1, "q": 2}, "c": {"q": 1, "p": 1}}
    batches = batches_of(*environments, mapping=mapping, policies=("p", "q"), seeds=[3, 4, 5])
    timesteps, actions = [batches.reset()], []
    executed = {"p": 0, "q": 0}
    for _ in range(150):
        chosen = {policy: rng.integers(0, 100, slot_count(batches, policy)).astype(np.int32) for policy in "pq"}
        actions.append(chosen)
        timesteps.append(batches.step(chosen))
        executed = {policy: executed[policy] + count for policy, count in batches.executed_by.items()}
    episodes = batches.take_episodes()
    shown = {"p": [], "q": []}
    for policy, slots in batches.slots.items():
        of_policy = [one[policy] for one in timesteps]
        for slot, transitions in enumerate(valid(of_policy)):
            env, agent = divmod(slot, len(slots.agents))
            for time, is_valid in enumerate(transitions):
                if is_valid:
                    now, after = of_policy[time], of_policy[time + 1]
                    assert not after.first[slot]
                    shown[policy].append(
                        (
                            env,
                            slots.agents[agent],
                            now.observation[slot, 0],
                            actions[time][policy][slot],
                            after.reward[slot],
                            after.discount[slot],
                            after.observation[slot, 0],
                        )
                    )
    expected = {"p": [], "q": []}
    for env, (script, environment) in enumerate(zip(scripts, environments, strict=True)):
        taken = iter(environment.taken)
        own = [episode for episode in episodes if episode.env == env]
        # The last episode has not ended when the loop does.
        for script_episode, episode in zip(script, own, strict=False):
            assert episode.length == len(script_episode) - 1
            its_actions = [next(taken) for _ in range(episode.length)]
            policies = {agent: episode.policies.get(agent) for agent in AGENTS}
            for policy, found in transitions_of(script_episode, its_actions, policies).items():
                expected[policy] += [(env, *transition) for transition in found]
    for policy in "pq":
        assert len(expected[policy]) > 100
        # All of the expected ones are shown, and the others are those of episodes that have not ended.
        missing = list(shown[policy])
        for transition in expected[policy]:
            missing.remove(transition)
        assert len(missing) < 3 * len(AGENTS) * 8
        assert len(shown[policy]) <= executed[policy]


def test_environments_are_made_from_a_factory():
    mapping = parse_mapping(None, ("0", "1"), {"p": None})
    batches = make_policy_batches("scripted_agents:Counting", 2, [5, 6], {}, mapping, ["p"], agent_index=True)
    assert [environment.seed for environment in batches.environments] == [5, 6]
    observation = batches.reset()["p"].observation
    assert observation["observation"].tolist() == [[0, 0], [1, 0]] * 2
    assert observation["agent_index"].tolist() == [[1, 0], [0, 1]] * 2
    batches.close()


def test_agents_of_one_policy_need_equal_specs():
    other = EnvironmentSpec(specs.Array((2,), np.float32), SPEC.action)
    environment = ScriptedAgents(specs={"a": SPEC, "b": other})
    with pytest.raises(
        CallboardError,
        match=r"^policy 'p' cannot play for both 'a' and 'b', whose spaces differ: float32\(1,\) with 100 discrete "
        r"actions, and float32\(2,\) with 100 discrete actions; name a policy for each, or set agent_padding$",
    ):
        batches_of(environment)
