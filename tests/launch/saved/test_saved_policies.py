"""The policies that a run has saved."""

import numpy as np
import pytest
from untrained_runs import write_run

from callboard.errors import CallboardError
from callboard.launch.run_directory.chosen_weights import chosen_checkpoint
from callboard.launch.run_directory.policy_weights import read_policy
from callboard.launch.saved.saved_policies import policy_file, restored_policy, saved_spec


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An experiment and its directory, with checkpoints of two steps."""
    return write_run(tmp_path_factory.mktemp("run"), steps=(5, 12))


def test_weights_are_named_best_latest_or_by_their_step(run):
    _, directory = run
    assert policy_file(directory, "best") == directory.best_policy
    assert policy_file(directory, "latest") == directory.checkpoints / "000000000012" / "policy.npz"
    assert policy_file(directory, "5") == directory.checkpoints / "000000000005" / "policy.npz"
    with pytest.raises(CallboardError, match="has no checkpoint 6; choose from best, latest, 5, 12"):
        policy_file(directory, "6")


def test_of_several_policies_those_checkpoints_are_offered_that_all_have(run, tmp_path):
    _, directory = run
    _, other = write_run(tmp_path / "run", steps=(12, 20), best=False)
    for one, checkpoint, why in ((other, "best", ", since it was never evaluated"), (directory, "20", "")):
        with pytest.raises(CallboardError, match=f"has no checkpoint {checkpoint}{why}; choose from latest, 12$"):
            policy_file(one, checkpoint, [directory, other])


def test_a_run_without_weights_has_to_be_trained(tmp_path):
    _, directory = write_run(tmp_path / "run", best=False)
    with pytest.raises(CallboardError, match="best, since it was never evaluated; train it for longer"):
        policy_file(directory, "best")


@pytest.mark.parametrize(
    ("checkpoint", "damaged", "message"),
    [
        ("best", "best.npz", "best.npz is damaged; replace it by a copy, or choose from latest, 5, 12$"),
        ("", "best.npz", "best.npz is damaged; replace it by a copy, or choose from latest, 5, 12$"),
        (
            "5",
            "000000000005",
            "has a checkpoint 5 that is damaged; replace it by a copy, or choose from best, latest, 12$",
        ),
    ],
)
@pytest.mark.parametrize("set_aside", [False, True])
def test_damaged_weights_are_not_said_to_be_missing(checkpoint, damaged, message, set_aside, tmp_path):
    _, directory = write_run(tmp_path / "run", steps=(5, 12))
    path = directory.checkpoints / damaged
    (path / "policy.npz" if path.is_dir() else path).write_bytes(b"PK")
    if set_aside:
        path.rename(path.with_name(f"damaged-{path.name}"))
    if set_aside and not checkpoint:
        notes = []
        assert chosen_checkpoint(directory, "", notes.append, "runs/x") == "latest"
        assert notes == ["runs/x has damaged best weights: takes the latest"]
        return
    with pytest.raises(CallboardError, match=message):
        policy_file(directory, checkpoint)


def test_the_only_weights_may_be_damaged(tmp_path):
    _, directory = write_run(tmp_path / "run", steps=(5,), best=False)
    (directory.checkpoints / "000000000005" / "policy.npz").write_bytes(b"PK")
    with pytest.raises(CallboardError, match="has a checkpoint 5 that is damaged; replace it by a copy$"):
        policy_file(directory, "5")


def test_a_policy_has_the_weights_of_its_file_and_the_spec_of_its_environment(run):
    experiment, directory = run
    spec = saved_spec(directory)
    assert spec == experiment.layout().spec
    policy = restored_policy(experiment, experiment.acting_layout(spec), directory.best_policy)
    for variable, value in zip(policy.variables, read_policy(directory.best_policy).values, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_a_spec_that_is_missing_or_damaged(tmp_path):
    _, directory = write_run(tmp_path / "run")
    directory.environment.write_text("{")
    with pytest.raises(CallboardError, match=r"environment.json cannot be read: .*; replace it by a copy, or resume"):
        saved_spec(directory)
    directory.environment.unlink()
    assert saved_spec(directory) is None
