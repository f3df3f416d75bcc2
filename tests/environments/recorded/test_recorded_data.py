"""Reading: which data set a name means, shares, and data that do not fit."""

import numpy as np
import pytest
from dm_env import specs as dm_specs

from callboard import Experiment
from callboard.environments.recorded import EpisodeFiles, open_data, parse_sources
from callboard.environments.recorded.episode_feed import shares_of
from callboard.errors import CallboardError
from callboard.launch.experiments.recorded_sources import settings_of_recorded_data
from callboard.specs import EnvironmentSpec

pytest.importorskip("minari")

SPEC = EnvironmentSpec(
    {"a": dm_specs.Array((2,), np.float32), "b": dm_specs.Array((), np.float32)}, dm_specs.DiscreteArray(3, np.int32)
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    EpisodeFiles(folder / "run" / "episodes" / "recorded-v0", SPEC, {}, 1e9)
    return folder


def test_a_data_set_is_that_of_a_run_a_folder_or_a_name_in_minaris_folder(data, monkeypatch):
    run = data / "run"
    folder = run / "episodes" / "recorded-v0"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(run / "episodes"))
    for name in (str(run), str(folder), str(folder / "data"), "recorded-v0"):
        assert open_data(name).path == folder / "data", name
    with pytest.raises(CallboardError, match="there is no data set 'recorded-v1'"):
        open_data("recorded-v1")


def test_a_run_that_recorded_nothing_and_a_damaged_set_are_refused(tmp_path):
    (tmp_path / "experiment.yaml").write_text("")
    with pytest.raises(CallboardError, match="has recorded no episodes; run it with record_episodes"):
        open_data(str(tmp_path))
    for policy in ("prey", "hunters"):
        folder = tmp_path / "policies" / policy / "episodes" / "recorded-v0" / "data"
        folder.mkdir(parents=True)
        (folder / "metadata.json").write_text("{}")
    with pytest.raises(CallboardError, match="has a data set: name .*/policies/hunters or .*/policies/prey$"):
        open_data(str(tmp_path))
    (tmp_path / "metadata.json").write_text("{}")
    with pytest.raises(CallboardError, match="only .hdf5. is read"):
        open_data(str(tmp_path))


def test_shares(data):
    assert [tuple(one) for one in parse_sources(["a:b", "c:0.25", "d"])] == [("a:b", None), ("c", 0.25), ("d", None)]
    for wrong, problem in ((["a:0"], "between 0 and 1"), (["a:0.5", "b:0.4"], "add up to 1"), (["a:1", "b"], "less")):
        with pytest.raises(CallboardError, match=problem):
            parse_sources(wrong)
    one, other = open_data(str(data / "run")), open_data(str(data / "run"))
    one.total_steps, other.total_steps = 300, 100
    assert shares_of([one, other, one], [None, None, 0.2]) == pytest.approx([0.6, 0.2, 0.2])


def test_a_path_that_ends_with_a_colon_and_a_number_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ppo-12:30").mkdir()
    assert parse_sources(["ppo-12:30", "ppo-12:30:0.25"]) == [("ppo-12:30", None), ("ppo-12:30", 0.25)]


def test_the_only_data_set_may_have_a_share(data):
    dataset = f"{data / 'run'}:1"
    assert Experiment("bc", dataset=dataset, actors=0).env == f"recorded:{data / 'run'}"
    beside = Experiment("sac", env="CartPole-v1", dataset=dataset)
    assert settings_of_recorded_data(beside, beside) == {"dataset": (dataset,)}


@pytest.mark.parametrize(
    ("spec", "difference"),
    [
        (SPEC, None),
        (SPEC._replace(action=dm_specs.DiscreteArray(4, np.int32)), "action is choices among 3, and .* among 4"),
        (
            SPEC._replace(observation={**SPEC.observation, "b": dm_specs.Array((1,), np.float32)}),
            r"observation 'b' is float32\(\), and that of the environment is float32\(1,\)",
        ),
        (SPEC._replace(observation={"a": SPEC.observation["a"]}), "observation 'b' is .* is missing"),
    ],
)
def test_the_first_difference_of_data_that_do_not_fit_is_named(data, spec, difference):
    found = open_data(str(data / "run"))
    if difference is None:
        return found.require_fit(spec)
    with pytest.raises(CallboardError, match=difference):
        found.require_fit(spec)
