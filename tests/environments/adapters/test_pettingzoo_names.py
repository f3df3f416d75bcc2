"""PettingZoo environments by name."""

import importlib.util
import sys

import numpy as np
import pytest

from callboard import environments
from callboard.environments import make_multi_agent, make_policy_batches, parse_mapping
from callboard.environments.adapters.pettingzoo_names import pettingzoo_names
from callboard.errors import CallboardError

installed = pytest.mark.skipif(
    importlib.util.find_spec("pettingzoo") is None or importlib.util.find_spec("mpe2") is None,
    reason="the extra pettingzoo is not installed",
)


def error_of(name, **options):
    with pytest.raises(CallboardError) as caught:
        make_multi_agent(name, 0, options)
    return str(caught.value)


def test_a_missing_package(monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "pettingzoo"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    error = error_of("pettingzoo:classic.connect_four_v3")
    assert error.startswith("environment 'pettingzoo:classic.connect_four_v3' needs the package 'pettingzoo' (")
    assert error.endswith("pip install 'callboard[pettingzoo]'")
    assert not [name for name in pettingzoo_names() if not name.startswith("pettingzoo:mpe.")]


@installed
def test_names():
    names = pettingzoo_names()
    assert (
        {"pettingzoo:mpe.simple_spread_v3", "pettingzoo:classic.tictactoe_v3"}
        <= set(names)
        <= set(environments.names())
    )
    assert not [name for name in names if "all_modules" in name]


@installed
@pytest.mark.parametrize(
    "name, message",
    [
        ("mpe.simple_spred_v3", "; did you mean 'pettingzoo:mpe.simple_spread_v3'?"),
        ("classic.connect_four_v2", "; did you mean 'pettingzoo:classic.connect_four_v3'?"),
        ("zzz", "; the families are atari, butterfly, classic, mpe, sisl"),
    ],
)
def test_unknown_names(name, message):
    assert error_of(f"pettingzoo:{name}") == f"unknown environment 'pettingzoo:{name}'{message}"


@installed
def test_options():
    name = "pettingzoo:mpe.simple_spread_v3"
    environment = make_multi_agent(name, 0, {"N": 2, "max_cycles": 5, "continuous_actions": True})
    assert environment.agents == ("agent_0", "agent_1")
    assert environment.specs["agent_0"].action.shape == (5,)
    assert error_of(name, max_cycle=3) == f"environment '{name}' has no option 'max_cycle'; did you mean 'max_cycles'?"
    assert error_of(name, local_ratio=3) == (
        f"environment '{name}' cannot be made: local_ratio is a proportion. Must be between 0 and 1."
    )


@pytest.mark.slow("daily")
@installed
@pytest.mark.parametrize(
    "game",
    ["mpe.simple_spread_v3", "mpe.simple_tag_v3", "classic.connect_four_v3", "classic.tictactoe_v3", "classic.rps_v2"],
)
def test_games_can_be_played(game):
    name = f"pettingzoo:{game}"
    environment = make_multi_agent(name, 0)
    agents = environment.agents
    mapping = parse_mapping(None, agents, dict.fromkeys(agents))
    batches = make_policy_batches(name, 2, [1, 2], {}, mapping, agents)
    rng = np.random.default_rng(0)
    timesteps = batches.reset()
    for _ in range(60):
        actions = {}
        for agent, timestep in timesteps.items():
            legal = np.ones((2, batches.slots[agent].spec.action.num_values))
            if isinstance(timestep.observation, dict):
                legal = timestep.observation["action_mask"]
            assert legal.any(axis=1).all()
            actions[agent] = np.array([rng.choice(np.flatnonzero(row)) for row in legal], np.int32)
        timesteps = batches.step(actions)
    assert len(batches.take_episodes()) >= 2
    batches.close()


@installed
def test_the_same_seeds_give_the_same_episodes():
    def episode(seed):
        environment = make_multi_agent("pettingzoo:mpe.simple_spread_v3", seed)
        return np.concatenate([step.observation for step in environment.reset(seed).values()])

    np.testing.assert_array_equal(episode(1), episode(1))
    assert (episode(1) != episode(2)).any()


@installed
@pytest.mark.parametrize("further", [{}, pytest.param({"env_python": "same"}, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [{"N": "x"}, {"N": 0}, {"local_ratio": 5}])
def test_values_of_options_that_an_environment_refuses(options, further):
    with pytest.raises(CallboardError, match="^environment 'pettingzoo:mpe.simple_spread_v3' cannot be made: "):
        make_multi_agent("pettingzoo:mpe.simple_spread_v3", 0, {**options, **further})
