"""SavedModels that are not what `callboard export` writes; what it writes is in test_policy_loading.py."""

import pytest
import tensorflow as tf
from dm_env import specs

from callboard.environments.batches.spec_files import format_spec
from callboard.errors import CallboardError
from callboard.launch.trained.export import is_export, read_export
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((2,), "float32"), specs.DiscreteArray(2))


def write(path, spec):
    (path / "assets.extra").mkdir(parents=True)
    (path / "assets.extra" / "environment.json").write_text(spec)
    return path


def test_a_spec_that_is_damaged_is_refused_in_one_line(tmp_path):
    with pytest.raises(CallboardError, match="environment.json cannot be read: [^\n]*; export the policy again$"):
        read_export(write(tmp_path / "model", "{"))


def test_a_model_that_is_damaged_is_refused_in_one_line(tmp_path):
    path = write(tmp_path / "model", format_spec(SPEC))
    (path / "saved_model.pb").write_bytes(b"\0damaged")
    assert is_export(path) and not is_export(tmp_path)
    with pytest.raises(CallboardError, match="the SavedModel .* cannot be read: [^\n]*; export the policy again$"):
        read_export(path)


def test_another_model_is_refused_in_one_line(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"))
    with pytest.raises(CallboardError, match="has no signatures serving_default and initial_state: export it again$"):
        read_export(write(tmp_path / "model", format_spec(SPEC)))
