"""A run without a learner step does not block the next start, and what a new run replaces is removed."""

import json

import pytest

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.run import run
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.replaced_run import check_may_be_replaced, has_learned, remove_run
from callboard.settings.nested_settings import from_values


@pytest.fixture
def directory(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    directory.experiment.touch()
    return directory


def test_a_run_without_a_learner_step_has_learned_nothing(directory):
    assert not has_learned(directory)
    directory.counters.write_text(json.dumps({"actor/0#a": {"environment_steps": 64}}))
    directory.metrics.write_text("{}\n")
    assert not has_learned(directory)


@pytest.mark.parametrize(
    "counters", ['{"learner/0#a": {"learner_steps": 3}}', '{"learner/red/0#a": {"red/learner_steps": 3}}', "[1]", "{"]
)
def test_a_run_with_learner_steps_or_unreadable_counters_may_have_learned(directory, counters):
    directory.counters.write_text(counters)
    assert has_learned(directory)


@pytest.mark.parametrize(
    "written",
    [
        "checkpoints/000000000010/state",
        "checkpoints/best.npz",
        "policies/red/checkpoints/000000000010/state",
        "episodes/recorded-v0/data/main_data.hdf5",
        "policies/red/episodes/recorded-v0/data/main_data.hdf5",
    ],
)
def test_a_run_with_weights_or_episodes_has_learned(directory, written):
    path = directory.path / written
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert has_learned(directory)


def test_recorded_episodes_are_removed_and_other_data_sets_stay(directory):
    for name in ("recorded-v0", "mine-v0"):
        (directory.path / "episodes" / name / "data").mkdir(parents=True)
    remove_run(directory)
    assert [path.name for path in (directory.path / "episodes").iterdir()] == ["mine-v0"]


def test_what_the_user_has_put_beside_a_run_stays(directory):
    for name in ("notes.txt", "mine/data.bin", "checkpoints/000000000010/state", "logs/actor-0.log", "ended"):
        path = directory.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (directory.path / "elsewhere").mkdir()
    (directory.path / "elsewhere/kept").touch()
    directory.videos.symlink_to(directory.path / "elsewhere")
    remove_run(directory)
    assert sorted(path.name for path in directory.path.iterdir()) == ["elsewhere", "mine", "notes.txt"]
    assert (directory.path / "elsewhere/kept").exists()


def test_a_run_at_a_url_is_not_replaced(directory):
    with pytest.raises(CallboardError, match="cannot be replaced; remove it first"):
        check_may_be_replaced(RunDirectory(directory.path, url="s3://bucket/run"), "s3://bucket/run")


@pytest.mark.slow("daily")
def test_a_failed_start_does_not_block_the_corrected_one_and_a_run_is_replaced_on_request(tmp_path):
    path = tmp_path / "run"
    agent = from_values(Impala, {"network.hidden_sizes": (4,), "unroll_length": 4, "batch_size": 2})
    experiment = Experiment(
        agent, "CartPole-v1", run_dir=path, actors=1, envs_per_actor=2, max_steps=20, evaluator=False
    )
    directory = RunDirectory(path)
    directory.create()
    directory.experiment.write_text("left by a start that failed")
    directory.metrics.write_text('{"environment_steps": 1, "left": 1}\n')
    assert run(experiment, "inline").exit_code == 0
    assert "left" not in directory.metrics.read_text()
    with pytest.raises(CallboardError, match="there is already a run"):
        run(experiment, "inline")
    before = directory.metrics.read_text()
    assert run(experiment, "inline", overwrite=True).exit_code == 0
    rows = directory.metrics.read_text()
    assert not rows.startswith(before)
    assert json.loads(rows.splitlines()[-1])["environment_steps"] <= 28
