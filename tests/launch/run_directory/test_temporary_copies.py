"""Messages name the place that the user has named, not a temporary copy of it."""

import pytest
from untrained_runs import write_run

from callboard.errors import CallboardError, MissingPackage, named_as
from callboard.launch.experiments.settings import read_settings
from callboard.launch.run_directory.found_runs import files_of_run
from callboard.launch.run_directory.remote_storage import local_copy
from callboard.launch.saved.saved_policies import policy_file, saved_spec
from callboard.studies.comparison.run_results import read_results


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")[1]


def test_a_damaged_run_at_a_url(run):
    url = f"file://{run.path}"
    run.environment.write_text("{")
    run.best_policy.write_bytes(b"PK")
    for read, file in (
        (saved_spec, "environment.json"),
        (lambda copy: policy_file(copy, "best"), "checkpoints/best.npz"),
    ):
        with pytest.raises(CallboardError, match=f"^{url}/{file} ") as caught, local_copy(url) as copy:
            read(copy)
        assert "/callboard-" not in str(caught.value)


def test_damaged_settings_at_a_url(run):
    url = f"file://{run.path}"
    run.experiment.write_text("a: [")
    with pytest.raises(CallboardError, match=f"^{url}/experiment.yaml is not valid YAML"):
        read_settings(url)
    with pytest.raises(CallboardError, match=f"{url}/metrics.jsonl is damaged"), files_of_run(url) as (directory, _):
        raise CallboardError(f"{directory.metrics} is damaged")
    (left_out,) = read_results([url]).left_out
    assert left_out.startswith(f"{url} is left out: {url}/experiment.yaml is not valid YAML")


def test_an_error_keeps_its_class_and_details():
    with pytest.raises(MissingPackage, match="^runs/x needs the package") as caught, named_as("/tmp/copy", "runs/x"):
        raise MissingPackage("/tmp/copy", "package", "package")
    assert caught.value.package == "package"
    with pytest.raises(CallboardError) as other, named_as("/tmp/copy", "runs/x"):
        raise CallboardError("it fails", "in /tmp/copy/file")
    assert other.value.details == "in runs/x/file"
