"""QMIX and VDN: their loss against a loop over numbers, what they refuse, and runs."""

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from small_worlds import SPEC, layout_of
from team_worlds import ACTIONS, GRU, MEMBERS, random_sample, small, team_spec

from callboard.agents.policies.qmix_policy import QmixState
from callboard.agents.qmix import Qmix, Vdn
from callboard.data import Sample
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.run import run
from callboard.settings.nested_settings import with_values

LARGEST = max(ACTIONS.values())
BOX = SPEC._replace(action=dm_specs.BoundedArray((1,), np.float32, -1, 1))


@pytest.fixture
def float64():
    tf.keras.backend.set_floatx("float64")
    yield
    tf.keras.backend.set_floatx("float32")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def member_values(weights: list[np.ndarray], inputs: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values of one member's actions: a layer of ReLUs, a GRU, a linear layer; and the GRU's next state."""
    dense, dense_bias, kernel, recurrent, bias, out, out_bias = weights
    features = np.maximum(inputs @ dense + dense_bias, 0) @ kernel + bias[0]
    update, reset, candidate = np.split(features, 3)
    own_update, own_reset, own_candidate = np.split(hidden @ recurrent + bias[1], 3)
    update = sigmoid(update + own_update)
    hidden = update * hidden + (1 - update) * np.tanh(candidate + sigmoid(reset + own_reset) * own_candidate)
    return hidden @ out + out_bias, hidden


def mixed(mixer: Any, values: list[float], state: np.ndarray) -> float:
    """Figure 2 of the paper; VDN's sum if there is no mixer."""
    if mixer is None:
        return sum(values)

    def layers(weights: list[np.ndarray]) -> np.ndarray:
        inputs = state
        for kernel, bias in zip(weights[::2], weights[1::2], strict=True):
            inputs = np.maximum(inputs, 0) if inputs is not state else inputs
            inputs = inputs @ kernel + bias
        return inputs

    weights, bias, output_weights, output_bias = map(layers, mixer)
    hidden = bias.copy()
    for index, value in enumerate(values):
        hidden += value * np.abs(weights[index * len(bias) :][: len(bias)])
    hidden = np.where(hidden > 0, hidden, np.exp(hidden) - 1)
    return hidden @ np.abs(output_weights) + output_bias[0]


def numbers(values: Any) -> tuple[list[list[np.ndarray]], Any]:
    """The weights of a `TeamValues`: of its networks by member, and of its mixer, None for VDN's."""
    networks = [
        [variable.numpy() for variable in network.trainable_variables] for network in values.network.networks.values()
    ]
    networks = networks * MEMBERS if len(networks) == 1 else networks
    if not values.mixer.variables:
        return networks, None
    parts = [getattr(values.mixer, f"_{part}") for part in ("weights", "bias", "output_weights", "output_bias")]
    return networks, [[variable.numpy() for variable in part.variables] for part in parts]


class LoopedLoss:
    """The loss of a batch in float64; called with other online weights, targets and burn-in stay as they are."""

    def __init__(self, agent: Qmix, sample: Sample, online: Any, target: Any):
        self.agent = agent
        self.sample = sample
        self.target = target
        self.states = [self._burned_in(b, online[0]) for b in range(agent.batch_size)]
        states_of_target = [self._burned_in(b, target[0]) for b in range(agent.batch_size)]
        self.best = [self._best(b, online[0], self.states[b], states_of_target[b]) for b in range(agent.batch_size)]

    def __call__(self, online: Any) -> tuple[float, float]:
        """Returns the loss and the fraction of valid transitions."""
        agent, record, total, valid = self.agent, self.sample.record, 0.0, 0
        for b in range(agent.batch_size):
            q, _ = self._unrolled(b, online[0], self.states[b], range(agent.burn_in, len(record.first)))
            for t in range(agent.burn_in, len(record.reward)):
                target = self._target(b, t)
                if target is not None:
                    taken = [q[t - agent.burn_in][m][record.action[name][t, b]] for m, name in enumerate(ACTIONS)]
                    value = self._total(online[1], b, t, taken)
                    total += (target - value) ** 2 / 2
                    valid += 1
        return total / agent.batch_size, valid / (agent.batch_size * agent.trace_length)

    def _total(self, mixer: Any, b: int, t: int, values: list[float]) -> float:
        observation = self.sample.record.observation
        present = observation["present"][t, b]
        if "state" in observation:
            state = observation["state"][t, b]
        else:
            own = [self._own(name)[t, b] for name in ACTIONS]
            state = np.concatenate([*own, present])
        return mixed(mixer, [value if here else 0.0 for value, here in zip(values, present, strict=True)], state)

    def _own(self, name: str) -> np.ndarray:
        part = self.sample.record.observation[name]
        return part["observation"] if isinstance(part, dict) else part

    def _unrolled(self, b: int, networks: Any, states: Any, rows: range) -> tuple[list[list[np.ndarray]], Any]:
        record, begin = self.sample.record, self.sample.state
        states = list(states)
        outputs: list[list[np.ndarray]] = []
        for t in rows:
            outputs.append([])
            for m, name in enumerate(ACTIONS):
                was_present = begin.previous_present[b, m] if t == 0 else record.observation["present"][t - 1, b, m]
                previous = begin.previous_action[b, m] if t == 0 else record.action[name][t - 1, b]
                begins = record.first[t, b] or not was_present
                action = np.zeros(LARGEST) if begins else np.eye(LARGEST)[previous]
                inputs = [self._own(name)[t, b].astype(float), action]
                if self.agent.network.shared:
                    inputs.insert(0, np.eye(MEMBERS)[m])
                hidden = np.zeros(GRU) if begins else states[m]
                values, states[m] = member_values(networks[m], np.concatenate(inputs), hidden)
                outputs[-1].append(values)
        return outputs, states

    def _burned_in(self, b: int, networks: Any) -> Any:
        return self._unrolled(b, networks, self.sample.state.core[b], range(self.agent.burn_in))[1]

    def _best(self, b: int, networks: Any, states: Any, states_of_target: Any) -> list[float]:
        """The target network's value of the team's best action at each timestep."""
        rows = range(self.agent.burn_in, len(self.sample.record.first))
        q, _ = self._unrolled(b, networks, states, rows)
        q_target, _ = self._unrolled(b, self.target[0], states_of_target, rows)
        found = []
        for t in rows:
            values = []
            for m, (name, number) in enumerate(ACTIONS.items()):
                part = self.sample.record.observation[name]
                mask = part["action_mask"][t, b] if isinstance(part, dict) else np.ones(number)
                legal = [a for a in range(number) if mask[a]]
                best = legal[int(np.argmax(q[t - rows[0]][m][legal]))]
                values.append(q_target[t - rows[0]][m][best])
            found.append(self._total(self.target[1], b, t, values))
        return found

    def _target(self, b: int, t: int) -> float | None:
        agent, record = self.agent, self.sample.record
        total, discount, end = 0.0, 1.0, t
        while end < min(t + agent.n_step, len(record.reward)) and discount > 0:
            lost = record.first[end + 1, b] and record.discount[end, b] != 0
            if record.last[end, b] or lost:
                break
            total += discount * agent.reward_scale * record.reward[end, b]
            discount *= agent.discount * record.discount[end, b]
            end += 1
        if end == t:
            return None
        return total + discount * self.best[b][end - agent.burn_in]


@pytest.mark.parametrize(
    "fields, state",
    [
        ({}, True),
        ({"n_step": 3, "reward_scale": 2.0}, False),
        ({"mixer": "vdn", "n_step": 2}, True),
        pytest.param({"network.shared": False, "burn_in": 0, "hypernetwork_size": 0}, True, marks=pytest.mark.slow),
    ],
    ids=["qmix", "observations", "vdn", "separate"],
)
def test_the_loss_and_its_gradient_are_those_of_the_paper(float64, fields, state):
    agent = small(**fields)
    layout = layout_of(team_spec(state))
    # Masks differ in what they hide, not in what members see.
    agent.check(layout)
    networks = agent.make_networks(layout)
    rng = np.random.default_rng(1)
    for variable in networks.variables:
        variable.assign(rng.normal(size=variable.shape))
    sample = random_sample(agent, state=state)
    expected = LoopedLoss(agent, sample, numbers(networks.online), numbers(networks.target))
    with tf.GradientTape() as tape:
        loss, metrics, priorities = agent.loss(networks, tree.map_structure(tf.constant, sample))
    of_loops, valid = expected(numbers(networks.online))
    assert float(loss) == pytest.approx(of_loops, rel=1e-7)
    assert float(metrics["valid_fraction"]) == pytest.approx(valid)
    assert 0.2 < valid < 0.95 and priorities is None
    # By differences in a random direction: gradients do not flow into targets or the burn-in.
    variables = networks.online.trainable_variables
    gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    for number in range(3):
        direction = [np.random.default_rng(number).normal(size=variable.shape) for variable in variables]
        slope = sum(float(np.sum(a * b)) for a, b in zip(direction, gradients, strict=True))
        sides = []
        for step in (1e-5, -1e-5):
            for variable, along in zip(variables, direction, strict=True):
                variable.assign_add(step * along)
            sides.append(expected(numbers(networks.online))[0])
            for variable, along in zip(variables, direction, strict=True):
                variable.assign_sub(step * along)
        assert (sides[0] - sides[1]) / 2e-5 == pytest.approx(slope, rel=1e-4)


@pytest.mark.slow("daily")
def test_masks_hide_actions_from_targets_and_absent_members_have_no_part_in_the_loss(float64):
    agent = small(burn_in=0, **{"network.core": "none"})
    networks = agent.make_networks(layout_of(team_spec()))
    sample = random_sample(agent)._replace(state=QmixState((), *random_sample(agent).state[1:]))
    observation = sample.record.observation

    def gradients() -> list[Any]:
        with tf.GradientTape() as tape:
            loss = agent.loss(networks, tree.map_structure(tf.constant, sample)).loss
        return [loss, *tape.gradient(loss, networks.online.trainable_variables)]

    before = gradients()
    # What an absent member observes has no part; it is not the state.
    absent = observation["present"][..., 1] == 0
    assert absent.any() and not absent.all()
    observation["middle"][absent] = 100
    for one, other in zip(before, gradients(), strict=True):
        np.testing.assert_array_equal(one, other)


class Turns(gymnasium.Env):
    """Members whose legal actions alternate, one of which leaves and comes back; it counts what is not legal."""

    wrong = 0

    def __init__(self) -> None:
        number = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        own = gymnasium.spaces.Dict(observation=number, action_mask=gymnasium.spaces.MultiBinary(2))
        present = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(a=own, b=own, present=present)
        self.action_space = gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(2), b=gymnasium.spaces.Discrete(2))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._time = 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        legal = self._legal()
        Turns.wrong += sum(not legal[action[member]] for member in "ab" if member == "a" or self._time % 3)
        self._time += 1
        return self._observation(), 1.0, self._time == 7, False, {}

    def _legal(self) -> list[int]:
        return [1, 0] if self._time % 2 else [1, 1]

    def _observation(self) -> Any:
        own = {"observation": np.full(1, self._time / 7, np.float32), "action_mask": np.array(self._legal(), np.int8)}
        return {"a": own, "b": own, "present": np.array([1, self._time % 3 > 0], np.float32)}


@pytest.mark.slow
def test_a_run_trains_a_team_with_masks_and_members_that_come_and_go(tmp_path):
    options = {"max_steps": 300, "envs_per_actor": 2, "evaluator": False}
    agent = small(**{"replay.min_size": 20, "replay.samples_per_insert": 4, "batch_size": 4})
    experiment = Experiment(agent=agent, env=Turns, run_dir=tmp_path / "run", **options)
    outcome = run(experiment, "inline")
    assert outcome.exit_code == 0
    assert Turns.wrong == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["learner_steps"] > 10


@pytest.mark.parametrize(
    "fields, layout, message",
    [
        ({}, {"spec": BOX}, "^qmix needs a dictionary"),
        ({"period": 7}, {}, r"agent.period must be at most agent.trace_length \(6\), not 7"),
        ({"replay.size": 3, "replay.min_size": 2}, {}, "a replay of 3 items .* smaller than a batch of 4"),
        ({"network.torso": "nature"}, {}, "torso 'nature' is for images"),
        ({"network.heads_by": "agent"}, {}, "agent.network.heads_by is 'agent', and the observation has the parts"),
        ({"network.normalize_observations": True}, {}, "qmix neither normalizes observations nor has torsos"),
        ({}, {"max_steps": 15}, "15 in 2 environments make 0 sequences of 8 .* agent.replay.min_size is 10"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(fields, layout, message):
    small().check(layout_of(team_spec()))
    with_values(small(), {"network.heads_by": "member"}).check(layout_of(team_spec()))
    with pytest.raises(CallboardError, match=message) as raised:
        with_values(small(), fields).check(layout_of(**{"spec": team_spec(), **layout}))
    assert "\n" not in str(raised.value)


def test_an_unknown_mixer_is_refused():
    with pytest.raises(CallboardError, match="^agent.mixer must be qmix or vdn, not 'sum'$"):
        Qmix(mixer="sum")


def test_vdn_is_refused_by_its_own_name():
    with pytest.raises(CallboardError, match="^vdn needs a dictionary"):
        Vdn().check(layout_of(BOX))
