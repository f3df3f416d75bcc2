"""Metrics of episodes: how they are written, and what becomes of the infos of an episode's steps."""

import numpy as np
import pytest
from informed_environments import error_of

from callboard.environments.batches.episode_metrics import EpisodeMetric, EpisodeMetrics, parse_episode_metrics


def test_metrics_are_written_as_keys_with_options():
    expected = (EpisodeMetric("distance"), EpisodeMetric("speed", summed=True), EpisodeMetric("a.b", histogram=True))
    assert parse_episode_metrics("distance, speed:sum, a.b:histogram") == expected
    assert parse_episode_metrics(["distance:final", "speed:sum", "a.b:histogram"]) == expected
    assert parse_episode_metrics("x,x:sum:histogram")[1] == EpisodeMetric("x", True, True)
    assert [metric.name for metric in expected] == ["distance", "speed_sum", "a.b"]
    assert parse_episode_metrics(()) == ()


@pytest.mark.parametrize(
    "text, says",
    [
        ("a,,b", "'' names no key"),
        ("a:summ", "unknown option of the episode metric 'a': 'summ'; did you mean 'sum'?"),
        ("a:sum:final", "is either the sum or the final value"),
        ("a,b,a", "the episode metric 'a' is named twice"),
        ("a.", "'a.' names no key"),
    ],
)
def test_wrong_metrics_are_refused(text, says):
    assert says in error_of(lambda: parse_episode_metrics(text))


def accumulate(texts, infos):
    metrics = EpisodeMetrics(parse_episode_metrics(texts), 2)
    metrics.begin(1)
    for info in infos:
        metrics.add(1, info)
    return metrics


def test_final_and_summed_values():
    infos = [{"x": 1, "parts": {"y": 2.0}}, {"x": np.float32(2.5)}, {"parts": {"y": True}, "a.b": np.array([7])}]
    metrics = accumulate("x,x:sum,parts.y:sum,a.b,z", infos)
    assert metrics.end(1) == {"x": 2.5, "x_sum": 3.5, "parts.y_sum": 3.0, "a.b": 7.0}
    assert metrics.end(0) == {}
    metrics.begin(1)
    assert metrics.end(1) == {}


def test_a_key_that_never_appears_is_named_once():
    metrics = accumulate("sucess,x", [{"success": 1.0, "x": 1}])
    assert metrics.describe_missing() == "no info so far has the episode metric 'sucess'; did you mean 'success'?"
    assert metrics.describe_missing() == ""
    assert accumulate("x", [{"x": 0.0}]).describe_missing() == ""


def test_a_value_that_is_no_number_is_refused():
    for value in ("text", np.array([1.0, 2.0]), [1]):
        says = error_of(lambda value=value: accumulate("x", [{"x": value}]))
        assert "the episode metric 'x' is a" in says and "not a number: leave it out" in says
    assert accumulate("x", [{"x": None}]).end(1) == {}
