"""Evaluations of earlier runs: which weights, which settings, which episodes."""

import re

import numpy as np
import pytest
from untrained_runs import write_run

from callboard.agents.apex import Apex
from callboard.agents.impala import Impala
from callboard.agents.policies.joint_policy import JointPolicy
from callboard.environments.multi_agent.policy_view import OneAgentView
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.acting.acting_environments import make_environments
from callboard.launch.pictures.live_view import LiveView
from callboard.launch.trained.evaluation import evaluate_run, play_episodes, with_evaluation_settings


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An experiment and its directory, with checkpoints of two steps."""
    return write_run(tmp_path_factory.mktemp("run"), steps=(5, 12))


def test_settings_that_are_left_out_stay_as_they_are():
    experiment = Experiment(Apex(), "CartPole-v1", seed=3)
    assert with_evaluation_settings(experiment) == experiment
    changed = with_evaluation_settings(experiment, epsilon=0.0, seed=0)
    assert (changed.agent.evaluation_epsilon, changed.seed) == (0.0, 0)
    assert with_evaluation_settings(Experiment(Impala(), "A"), "sampled").evaluation_policy_mode() == "sample"


@pytest.mark.parametrize(
    "agent, settings, message",
    [
        (Impala(), {"epsilon": 0.1}, "Impala takes no epsilon"),
        (Apex(), {"epsilon": 1.5}, "epsilon must be a number from 0 to 1, not 1.5"),
        (Apex(), {"epsilon": "high"}, "epsilon must be a number from 0 to 1, not 'high'"),
        (Apex(), {"epsilon": float("nan")}, "epsilon must be a number from 0 to 1, not nan"),
        (Apex(), {"mode": "sampled"}, "Apex has no distribution to sample actions from"),
        (Impala(), {"mode": "best"}, "mode must be greedy or sampled, not 'best'"),
        (Impala(), {"seed": -1}, "seed must be a whole number from 0 to 2,147,483,647, not -1"),
        (Impala(), {"seed": 2**31}, "not 2147483648"),
    ],
)
def test_settings_that_the_agent_lacks_or_that_are_out_of_range_are_refused(agent, settings, message):
    with pytest.raises(CallboardError, match=re.escape(message)):
        with_evaluation_settings(Experiment(agent, "CartPole-v1"), **settings)


@pytest.mark.slow("daily")
def test_as_many_environments_play_as_divide_the_episodes_and_the_same_ones_again(run):
    experiment, directory = run
    for episodes, environments in ((4, 2), (3, 1)):
        result = evaluate_run(experiment, directory, episodes, "best", 0, print)
        assert len(result.episodes) == episodes
        assert {episode.env for episode in result.episodes} == set(range(environments))
        assert all(episode.length == 7 for episode in result.episodes)
        assert (result.policy, result.video, result.video_episodes) == (directory.best_policy, None, [])


def test_episode_metrics_and_the_task_of_evaluations(tmp_path):
    settings = {"env_options": {"length": 9}, "episode_metrics": "length,place:sum", "evaluation_task": {"length": 2}}
    experiment = Experiment(Impala(), "own_callbacks:Walk", evaluation_envs=2, **settings)
    played = play_episodes(experiment, StepsRight(), 4, lambda text: None)
    assert [(episode.length, episode.episode_return) for episode in played.episodes] == [(2, 1.0)] * 4
    assert (
        played.metrics["evaluator/episode/length"] == 2.0 and played.metrics["evaluator/episode/place_sum_max"] == 3.0
    )


class StepsRight:
    """A policy that always walks to the right."""

    def make(self, experiment, count):
        environment = make_environments(experiment, "evaluator", 0, count)
        return environment, JointPolicy(OneAgentView(), {"": lambda timestep: (np.ones(count, np.int32), ())})


@pytest.mark.slow("daily")
def test_a_number_of_steps_instead_of_episodes(run):
    experiment, directory = run
    played = evaluate_run(experiment, directory, 1, "best", 0, print, steps=31)
    # Two environments, whose episodes have seven steps and then one that is ignored.
    assert played.steps == 32 and played.reward == 32.0
    assert [episode.length for episode in played.episodes] == [7, 7, 7, 7]
    played = evaluate_run(experiment, directory, 1, "best", 0, print, steps=1)
    assert (played.episodes, played.steps, played.reward) == ([], 1, 1.0)


def test_live_in_a_window(run, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    experiment, directory = run
    shown = []
    monkeypatch.setattr(LiveView, "show", lambda view, frame: shown.append(frame.shape))
    played = evaluate_run(experiment, directory, 2, "best", 0, print, live=True)
    assert [episode.length for episode in played.episodes] == [7, 7]
    assert shown == [(400, 600, 3)] * (2 * 8)


def test_a_window_needs_a_display(run, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CallboardError, match='render="human" needs a display, and there is none here'):
        evaluate_run(*run, 2, "best", 0, print, live=True)
