"""What a closer look at an environment finds: episodes, determinism, values, and pictures."""

import functools

import gymnasium
import imageio.v3 as imageio
import numpy as np
import pytest

from callboard.environments import made_to_draw
from callboard.environments.checks import examination
from callboard.environments.checks.examination import Examination, examine_environment
from callboard.errors import CallboardError


class Walk(gymnasium.Env):
    """Counts steps; episodes of `length` steps, which are truncated or terminate."""

    observation_space = gymnasium.spaces.Dict(
        {"time": gymnasium.spaces.Box(0, 100, (1,), np.float32), "kind": gymnasium.spaces.Discrete(3)}
    )
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, length=5, terminates=False, reward=1.0, chance=False, render_mode=None):
        self.length, self.terminates, self.reward, self.chance = length, terminates, reward, chance
        self.render_mode = render_mode

    def seen(self):
        chance = np.random.default_rng().random() if self.chance and self.time == 3 else 0
        return {"time": np.array([self.time + chance], np.float32), "kind": 2}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def step(self, action):
        self.time += 1
        ends = self.time == self.length
        return self.seen(), self.reward, ends and self.terminates, ends and not self.terminates, {}

    def render(self):
        return np.full((4, 6, 3), self.time, np.uint8)


def examined(warnings=None, **options):
    warnings = [] if warnings is None else warnings
    picture = options.pop("picture", None)
    subject = Examination(functools.partial(Walk, **options), batch_size=1, steps=5, play_seconds=0.05, picture=picture)
    (found,) = examine_environment(subject, lambda phase: None, warnings.append)
    return found


@pytest.mark.parametrize("terminates", [False, True])
def test_episodes_rewards_and_observations_are_summed_up(terminates):
    warnings = []
    found = examined(warnings, terminates=terminates)
    assert found["mean_length"] == 5.0 and found["returns"] == [5.0, 5.0, 5.0] and found["rewards"] == [0.0, 1.0]
    assert found["episodes"] == found["terminated" if terminates else "truncated"] == found["steps"] // 5
    assert found["observed"] == {"kind": [2.0, 2.0], "time": [0.0, 5.0]}
    assert found["spaces"][""]["observation"] == {"kind": "3 choices", "time": "float32 (1,), from 0 to 100"}
    assert found["deterministic"] and found["steps_per_second"] > 0 and not warnings


def test_chance_that_has_no_seed_is_found_with_its_step():
    warnings = []
    found = examined(warnings, chance=True)
    assert found["difference"] == "with the same seed and actions, observations at 'time' differ after step 3"
    assert len(warnings) == 1 and warnings[0].endswith(f"is not deterministic: {found['difference']}")


def test_each_of_many_steps_has_the_time_of_a_step(monkeypatch):
    monkeypatch.setattr(examination, "_RENEWAL_SECONDS", 0.001)
    phases = []
    examine_environment(Examination(Walk, play_seconds=0.05), phases.append, lambda text: None)
    played = phases[max(index for index, phase in enumerate(phases) if phase == "reset") :]
    assert played.count("step") > 2


def test_episodes_without_an_end_or_a_reward_are_reported():
    warnings = []
    assert examined(warnings, length=-1)["episodes"] == 0
    assert "no episode has ended within" in warnings[-1] and "TimeLimit" in warnings[-1]
    examined(warnings, reward=0.0)
    assert "random actions have earned no reward in" in warnings[-1]


@pytest.mark.slow("daily")
def test_a_picture_shows_it_after_some_steps(tmp_path):
    found = examined(picture=str(tmp_path / "walk.png"))
    assert (imageio.imread(found["picture"]) == 4).all(), "ten timesteps later, in the second episode"
    with pytest.raises(CallboardError, match="walk.png cannot be written: No such file or directory"):
        examined(picture=str(tmp_path / "none" / "walk.png"))


@pytest.mark.slow("daily")
def test_agents_are_looked_at_by_name():
    pytest.importorskip("mpe2")
    subject = Examination("pettingzoo:mpe.simple_spread_v3", {"max_cycles": 4}, steps=5, play_seconds=0.05)
    (found,) = examine_environment(subject, lambda phase: None, pytest.fail)
    assert set(found["spaces"]) == set(found["observed"]) == {"agent_0", "agent_1", "agent_2"}
    assert found["mean_length"] == 4.0 and found["truncated"] == found["episodes"] > 0 and found["deterministic"]


@pytest.mark.parametrize("has_pictures", [True, False])
def test_a_factory_that_passes_options_on_is_made_without_those_that_are_refused(tmp_path, has_pictures):
    class Strict(Walk):
        def __init__(self, length=5):
            super().__init__(length, render_mode="rgb_array")

    def passes_on(**options):
        return (Walk if has_pictures else Strict)(**options)

    picture = str(tmp_path / "picture.png")
    examine_environment(Examination(passes_on, play_seconds=0.05, picture=picture), lambda phase: None, pytest.fail)
    assert imageio.imread(picture).shape == (4, 6, 3)


def test_environments_are_made_to_draw_with_the_options_that_they_take():
    tried = []

    def make_with(options):
        tried.append(options)
        if options:
            raise TypeError
        return "made"

    assert made_to_draw(make_with) == "made"
    assert tried == [{"render_mode": "rgb_array", "vectorized": False}, {"render_mode": "rgb_array"}, {}]
    tried.clear()
    assert made_to_draw(make_with, alone=False) == "made" and len(tried) == 2
