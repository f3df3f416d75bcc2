"""Names of users that other libraries do not accept: runs with them are trained, saved, loaded, exported and served."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from callboard import Experiment, load_policy, run
from callboard.agents.ppo import Ppo
from callboard.cli.command import main
from callboard.environments.batches.encoding import EnvironmentEncoding
from callboard.environments.batches.episode_metrics import parse_episode_metrics
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.environments.multi_agent.agent_rewards import AgentRewards
from callboard.errors import CallboardError
from callboard.launch.nodes.episodes.callback_calls import _checked
from callboard.launch.serving.wire_format import WireFormat, parse_body
from callboard.studies.comparison.study_definition import cells_of, parse_study

NAMES = {
    "letters beyond ASCII": ["größe", "日本", "🎲"],
    "spaces and quotes": ["a b", "quo'te\"", " "],
    "separators": ["a/b", "a b", "c:d", "../up", "%s{0}", "-d"],
    "empty": ["", "a"],
    "very long": ["x" * 300, "x" * 299 + "y"],
    "control characters": ["esc\x1b[2J\n", "null\x00"],
}

ENVIRONMENT = """
import gymnasium
import numpy as np
from gymnasium import spaces

class Named(gymnasium.Env):
    def __init__(self, names):
        self.names = names
        self.observation_space = spaces.Dict({name: spaces.Box(-1, 1, (2,), np.float32) for name in names})
        self.action_space = spaces.Dict({name: spaces.Discrete(2) for name in names})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observation(), {}

    def step(self, action):
        self.time += 1
        return self._observation(), float(action[self.names[0]]), self.time == 5, False, {}

    def _observation(self):
        return {name: np.full(2, 0.1 * self.time, np.float32) for name in self.names}
"""


@pytest.mark.parametrize("names", NAMES.values(), ids=list(NAMES))
def test_parts_travel_over_the_wire(names):
    observation = spaces.Dict({name: spaces.Box(-1, 1, (2,), np.float32) for name in names})
    action = spaces.Dict({name: spaces.Discrete(2) for name in names})
    wire = WireFormat(EnvironmentEncoding(observation_encoding(observation), action_encoding(action)).spec())
    body = json.dumps({"observation": {name: [0.5, 0.25] for name in names}}).encode()
    fields, rest = parse_body(body, False, "")
    assert set(wire.observation(fields["observation"], rest)) == set(names)
    assert set(wire.format_action({name: np.zeros(1, np.int32) for name in names})) == set(names)
    with pytest.raises(CallboardError) as caught:
        wire.observation({}, rest)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("role", ["observation", "action"])
def test_a_name_that_is_no_text_is_refused_in_one_line(role):
    encode = observation_encoding if role == "observation" else action_encoding
    with pytest.raises(CallboardError, match=r"has the key 'a\\ud800', which is no text in UTF-8") as caught:
        encode(spaces.Dict({"a\ud800": spaces.Discrete(2)}))
    assert str(caught.value).isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("names", NAMES.values(), ids=list(NAMES))
def test_a_run_is_trained_saved_loaded_exported_and_evaluated(names, tmp_path, monkeypatch, capsys):
    (tmp_path / "named_environment.py").write_text(ENVIRONMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    agent = Ppo(unroll_length=8, batch_size=2, minibatches=1, epochs=1)
    options = {"env_options": {"names": names}, "actors": 1, "envs_per_actor": 2}
    directory = tmp_path / "größe ü'"
    settings = {"max_steps": 64, "evaluation_episodes": 2, "run_dir": str(directory)}
    assert run(Experiment(agent, env="named_environment:Named", **options, **settings), "inline").exit_code == 0
    policy = load_policy(f"{directory}@latest")
    observation = {name: np.zeros(2, np.float32) for name in names}
    action, _ = policy(observation)
    assert set(action) == set(names)
    assert main(["export", str(directory), str(tmp_path / "model"), "--checkpoint", "latest"]) == 0
    exported, _ = load_policy(str(tmp_path / "model"))(observation)
    assert set(exported) == set(names)
    assert main(["evaluate", str(directory), "--checkpoint", "latest", "--episodes", "2"]) == 0
    for command in (["ls", str(tmp_path)], ["compare", str(directory)]):
        assert main(command) == 0
    assert "\x1b[2J" not in capsys.readouterr().out


def test_names_of_agents_and_metrics_that_are_no_text_are_refused():
    for make in (
        lambda: AgentRewards("team", ["a\ud800", "b"]),
        lambda: parse_episode_metrics(["a\ud800"]),
        lambda: _checked({"a\ud800": 1.0}),
    ):
        with pytest.raises(CallboardError, match=r"'a\\ud800', which is no text in UTF-8: rename it"):
            make()


def test_a_name_in_a_study_that_is_too_long_for_a_directory_is_refused():
    study = {"agents": [{"agent": "ppo", "name": "日" * 86}], "environments": ["CartPole-v1"], "seeds": [1]}
    with pytest.raises(CallboardError, match=r"more than the 255 of file systems: give agent") as caught:
        cells_of(parse_study(study))
    assert str(caught.value).isprintable()
