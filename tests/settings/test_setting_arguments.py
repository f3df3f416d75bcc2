"""Settings that Python code gives to agents and experiments: the same conversion and checks as in YAML and options."""

# What type checkers refuse is tried here too.
# mypy: disable-error-code="call-arg, arg-type"

import copy
import dataclasses
import pickle

import cloudpickle
import pytest

from callboard.agents.ppo import Ppo
from callboard.agents.sac import Sac
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.settings import parse_experiment

CARTPOLE = {"env": "CartPole-v1"}


@pytest.mark.parametrize(
    "given, options",
    [
        ({"optimizer": {"learning_rate": 1e-3}}, ["--agent.optimizer.learning-rate", "1e-3"]),
        ({"optimizer": {"learning_rate": "1e-3"}}, ["--agent.optimizer.learning-rate", "1e-3"]),
        ({"optimizer": "sgd"}, ["--agent.optimizer", "sgd"]),
        (
            {"network": {"hidden_sizes": [64, 64], "shared": False, "popart": {"enabled": True}}},
            [
                *("--agent.network.hidden-sizes", "[64, 64]", "--agent.network.shared", "false"),
                *("--agent.network.popart.enabled", "true"),
            ],
        ),
        ({"epochs": "3", "batch_size": 64.0}, ["--agent.epochs", "3", "--agent.batch-size", "64"]),
        ({"clip": {"schedule": "linear", "start": 0.2}}, ["--agent.clip", "{schedule: linear, start: 0.2}"]),
    ],
)
def test_an_agent_takes_what_yaml_and_options_take(given, options):
    assert Ppo(**given) == parse_experiment("ppo", CARTPOLE, options).agent


@pytest.mark.parametrize("agent", ["ppo", Ppo, Ppo(), {"name": "ppo"}])
def test_an_experiment_takes_an_agent_by_name_by_class_or_itself(agent):
    experiment = Experiment(
        agent, max_steps="100", evaluate_every=1e3, stop_when=["actor/episode_return > 1"], **CARTPOLE
    )
    options = ["--max-steps", "100", "--evaluate-every", "1000", "--stop-when", "[actor/episode_return > 1]"]
    assert experiment == parse_experiment("ppo", CARTPOLE, options)
    assert isinstance(experiment.max_steps, int) and isinstance(experiment.evaluate_every, int)


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: Ppo(learning_rate=3e-4),
            "unknown argument 'learning_rate'; did you mean 'optimizer={",
        ),
        (lambda: Sac(lr=3e-4), "did you mean 'actor_optimizer={\"learning_rate\": ...}' or 'critic_optimizer="),
        (lambda: Ppo(gamma=0.9), "did you mean 'discount'?"),
        (lambda: Ppo(discout=0.9), "did you mean 'discount'?"),
        (lambda: Ppo(zzzz=1), "unknown argument 'zzzz'; help(Ppo) lists all"),
        (lambda: Ppo(optimizer=3), "agent.optimizer is a group of settings, not 3; set one of them by its name"),
        (lambda: Ppo(optimizer="addam"), "unknown optimizer 'addam'; did you mean 'adam'?"),
        (lambda: Ppo(network={"hidden_size": [64]}), "did you mean 'agent.network.hidden_sizes'?"),
        (lambda: Ppo(epochs="many"), "agent.epochs must be a whole number of at least 1, not 'many'"),
        (lambda: Experiment("ppoo", **CARTPOLE), "unknown agent 'ppoo'; did you mean 'ppo'?"),
        (
            lambda: Experiment({"name": "ppo", "clp": 0.3}, **CARTPOLE),
            "unknown key 'agent.clp'; did you mean 'agent.clip'",
        ),
        (lambda: Experiment({"clip": 0.3}, **CARTPOLE), "agent must be an agent such as Ppo(), its class or its name"),
        (lambda: Experiment(3, **CARTPOLE), "agent must be an agent such as Ppo(), its class or its name, not 3"),
        (lambda: Experiment(int, **CARTPOLE), "agent must be an agent such as Ppo(), its class or its name"),
        (lambda: Experiment(Ppo), 'name an environment: Experiment(agent, env="CartPole-v1")'),
        (lambda: Experiment(Ppo, overwrite=True, **CARTPOLE), "did you mean 'run(experiment, overwrite=...)'?"),
        (lambda: Experiment(Ppo, max_step=10, **CARTPOLE), "unknown argument 'max_step'; did you mean 'max_steps'?"),
        (
            lambda: Experiment(Ppo, learning_rate=1, **CARTPOLE),
            "did you mean 'Ppo(optimizer={\"learning_rate",
        ),
        (lambda: Experiment(Ppo, max_steps="many", **CARTPOLE), "max_steps must be a whole number from 1"),
        (lambda: Experiment(Ppo, env_options=[1], **CARTPOLE), "env_options must be settings by name"),
        (lambda: Experiment(Ppo, env=3), "env must be a name, a class or a function"),
        (lambda: Experiment(Ppo, callbacks=object(), **CARTPOLE), "callbacks must be package.module:Class, an object"),
    ],
)
def test_mistakes_are_one_line(make, message):
    with pytest.raises(CallboardError) as caught:
        make()
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [Ppo(optimizer={"learning_rate": 0.1}), Experiment("ppo", seed=3, **CARTPOLE)])
def test_what_was_converted_can_be_pickled_copied_and_changed(value):
    for again in (pickle.loads(pickle.dumps(value)), cloudpickle.loads(cloudpickle.dumps(value))):
        assert again == value and type(again) is type(value)
    assert copy.copy(value) == copy.deepcopy(value) == dataclasses.replace(value) == value


def test_a_class_that_was_pickled_by_value_is_still_that_class():
    @dataclasses.dataclass(frozen=True)
    class Costs:
        start: float
        sizes: tuple[int, ...] = dataclasses.field(default_factory=lambda: (1, 2))

    @dataclasses.dataclass(frozen=True)
    class Mine(Ppo):
        cost: float = 0.5
        costs: Costs = Costs(0.1)

    received = pickle.loads(cloudpickle.dumps(Mine(cost=0.3)))
    assert received == Mine(cost=0.3) and received.costs.sizes == (1, 2)
    assert dataclasses.replace(received, clip=0.1).cost == 0.3
    assert Mine(costs={"start": 0.2}).costs == Costs(0.2)
    start, sizes = dataclasses.fields(Costs)
    assert start.default is start.default_factory is sizes.default is dataclasses.MISSING

    @dataclasses.dataclass(frozen=True)
    class Later(Mine):
        more: int = 1

    assert Later(more=2).optimizer == Ppo().optimizer
