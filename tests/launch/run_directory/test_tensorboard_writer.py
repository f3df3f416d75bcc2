"""TensorBoard starts, and shows what a run has written for it: queried through its own server."""

import json
import pathlib
import re
import urllib.parse
import urllib.request

import pytest

from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.metrics import MetricsWriter

ROW = {"time": 1e9, "elapsed_seconds": 1.0, "environment_steps": 0, "episode/eaten": 2.0, "replay/inserted_0": 7}
SETTINGS = {"agent": "ppo", "agent.discount": "0.99", "agent.network.hidden_sizes": "[64, 64]", "evaluator": "true"}


@pytest.fixture(scope="module")
def fetch(tmp_path_factory):
    """Returns a function that requests a path of a TensorBoard of three rows below its data."""
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    writer = MetricsWriter(directory, settings=SETTINGS)
    for steps in (0, 100, 200):
        histograms = {"episode/eaten": [1.0, 2.0, 3.0]}
        writer.write({**ROW, "environment_steps": steps, "POLICY/learner/final": 1}, histograms=histograms)
    writer.close()
    from tensorboard import program

    # As the command starts it, but in this process, which has imported TensorFlow.
    server = program.TensorBoard()
    server.configure(logdir=str(directory.tensorboard), port=0, reload_interval=0)
    address = server.launch()

    def get(path, data=None, **query):
        url = f"{address}data/plugin/{path}?{urllib.parse.urlencode(query)}"
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"} if body else {})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    return get


@pytest.mark.slow
def test_tensorboard_shows_the_curve_and_the_distribution_of_a_metric(fetch):
    assert [value for _, _, value in fetch("scalars/scalars", run=".", tag="episode/eaten")] == [2.0, 2.0, 2.0]
    assert [step for _, step, _ in fetch("scalars/scalars", run=".", tag="episode/eaten")] == [0, 100, 200]
    assert list(fetch("histograms/tags")["."]) == ["episode/eaten_distribution"]
    assert len(fetch("histograms/histograms", run=".", tag="episode/eaten_distribution")) == 3


@pytest.mark.slow
def test_tensorboard_shows_no_bookkeeping(fetch):
    assert list(fetch("scalars/tags")["."]) == ["episode/eaten"]


@pytest.mark.slow("daily")
def test_tensorboard_shows_the_settings(fetch):
    assert "| agent.discount | `0.99` |" in _text(fetch)
    experiment = fetch("hparams/experiment", {"experimentName": ""})
    shown = {one["name"]: one for one in experiment["hparamInfos"]}
    assert set(shown) == set(SETTINGS)
    assert shown["agent.discount"]["type"] == "DATA_TYPE_FLOAT64"
    assert shown["evaluator"]["type"] == "DATA_TYPE_BOOL"


def _text(fetch):
    (event,) = fetch("text/text", run=".", tag="settings", markdown="false")
    return event["text"]


def test_the_package_that_tensorboard_needs_is_pinned():
    root = pathlib.Path(__file__).parents[3]
    assert re.search(r'"setuptools>=\d+,<81"', (root / "pyproject.toml").read_text(encoding="utf-8"))
