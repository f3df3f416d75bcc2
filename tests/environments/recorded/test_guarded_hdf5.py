"""HDF5 files of strangers: no other file is read, nothing is waited for, and what is not stored is not allocated."""

import json
import os
import shutil

import numpy as np
import pytest
from recorded_sets import CARTPOLE, cartpole_episode, write

from callboard.environments.recorded import open_data
from callboard.errors import CallboardError

pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sets") / "intact-v0", CARTPOLE, [cartpole_episode(7, 3)])


@pytest.fixture
def data(intact, tmp_path):
    """The files of a data set of one episode of three actions, which is in the main file itself."""
    shutil.copytree(intact, tmp_path / "set-v0")
    folder = tmp_path / "set-v0" / "data"
    with h5py.File(folder / "parts/00000.hdf5") as part, h5py.File(folder / "main_data.hdf5", "w") as main:
        part.copy("0", main, "episode_0")
    return folder


def read(data):
    found = open_data(str(data))
    return list(found.episodes(range(found.total_episodes)))


def refused(data, problem):
    with pytest.raises(CallboardError, match=problem) as caught:
        read(data)
    assert "\n" not in str(caught.value)


def test_an_episode_in_the_main_file_is_read(data):
    (episode,) = read(data)
    assert episode.length == 3 and episode.observation.shape == (4, 4)


@pytest.mark.parametrize(
    "link",
    [
        lambda data: h5py.ExternalLink(str(data / "parts/00000.hdf5"), "0"),
        lambda data: h5py.ExternalLink("parts/../../private.hdf5", "0"),
        lambda data: h5py.SoftLink("/other"),
    ],
)
def test_a_link_to_an_episode_elsewhere_is_not_followed(data, link):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        main.move("episode_0", "other")
        main["episode_0"] = link(data)
    refused(data, "link to something else than parts.* is not followed")


@pytest.mark.parametrize("link", [h5py.ExternalLink("parts/00000.hdf5", "0/rewards"), h5py.SoftLink("/episode_0/x")])
def test_a_link_to_an_array_elsewhere_is_not_followed(data, link):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        main.move("episode_0/rewards", "episode_0/x")
        main["episode_0/rewards"] = link
    refused(data, "rewards.* is a link, and is not followed")


def test_bytes_of_another_file_are_not_read(data):
    secret = data / "secret"
    secret.write_bytes(b"a key of the user" * 9)
    with h5py.File(data / "main_data.hdf5", "a") as main:
        del main["episode_0/rewards"]
        main["episode_0"].create_dataset("rewards", (3,), "f8", external=[(str(secret), 0, 24)])
    refused(data, "rewards takes its elements from another file")


def test_a_virtual_data_set_is_not_read(data):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        layout = h5py.VirtualLayout((4, 4), "f4")
        layout[:] = h5py.VirtualSource("parts/00000.hdf5", "0/observations", shape=(4, 4))
        del main["episode_0/observations"]
        main["episode_0"].create_virtual_dataset("observations", layout)
    refused(data, "observations takes its elements from another file")


@pytest.mark.parametrize("chunks", [{"chunks": (2**16,)}, {"chunks": (2**16,), "compression": "gzip"}])
def test_what_is_declared_but_not_stored_is_not_allocated(data, chunks):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        del main["episode_0/rewards"]
        main["episode_0"].create_dataset("rewards", (4 * 10**9,), "f8", **chunks)
    refused(data, "rewards declares 32,000,000,000 bytes, which the file does not hold")


@pytest.mark.parametrize("name", ["metadata.json", "main_data.hdf5", "parts/00000.hdf5"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_regular_file_is_neither_read_nor_waited_for(intact, tmp_path, name, kind):
    shutil.copytree(intact, tmp_path / "set-v0")
    file = tmp_path / "set-v0" / "data" / name
    file.rename(tmp_path / "moved")
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(tmp_path / "moved")
    refused(tmp_path / "set-v0", "no regular file" if kind == "pipe" else "symbolic link")


def test_parts_that_are_a_link_are_not_followed(intact, tmp_path):
    shutil.copytree(intact, tmp_path / "set-v0")
    parts = tmp_path / "set-v0" / "data" / "parts"
    parts.rename(tmp_path / "moved")
    parts.symlink_to(tmp_path / "moved")
    refused(tmp_path / "set-v0", "parts is a symbolic link")


def test_huge_metadata_are_not_read(data):
    os.truncate(data / "metadata.json", 10 * 2**30)
    refused(data, "metadata.json has more than 67,108,864 bytes")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"total_episodes": -1}, "total_episodes in metadata.json is -1"),
        ({"total_episodes": 2}, "count 2 episodes, and main_data.hdf5 holds 1"),
        ({"total_steps": float("inf")}, "Infinity is no number"),
        ({"total_steps": "3"}, "total_steps in metadata.json is '3'"),
        ({"data_format": "arrow"}, "only 'hdf5' is read"),
        ({"action_space": json.dumps({"type": "Discrete", "n": 10**18, "dtype": "int64"})}, "choices are not from 1"),
        ({"action_space": json.dumps({"type": "Text", "max_length": 10**9})}, "'Text' is not supported"),
        (
            {"observation_space": json.dumps({"type": "Box", "dtype": "float32", "shape": [10**6] * 3})},
            "elements, more than",
        ),
    ],
)
def test_metadata_that_cannot_be_used_are_refused(data, change, problem):
    file = data / "metadata.json"
    found = json.loads(file.read_text())
    file.write_text(json.dumps({**found, **change}))
    refused(data, problem)


@pytest.mark.parametrize("change", [{"callboard": [1]}, {"callboard": {"environment_options": "x"}}, {"env_spec": [2]}])
def test_entries_about_the_environment_may_be_anything(data, change):
    from callboard import dataset_info

    file = data / "metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert dataset_info(data).environment is None


def test_the_environment_that_metadata_name_is_not_made(data, tmp_path):
    mark = tmp_path / "mark"
    file = data / "metadata.json"
    found = json.loads(file.read_text())
    spec = {
        "id": "Harmless-v0",
        "entry_point": "os:mkdir",
        "kwargs": {"path": str(mark)},
        "reward_threshold": None,
        "nondeterministic": False,
        "max_episode_steps": None,
        "order_enforce": True,
        "disable_env_checker": True,
        "additional_wrappers": [],
        "vector_entry_point": None,
    }
    for left_out in ("observation_space", "action_space"):
        without = {key: value for key, value in found.items() if key not in (left_out, "callboard")}
        file.write_text(json.dumps({**without, "env_spec": json.dumps(spec)}))
        refused(data, f"metadata.json has no {left_out}, and the environment .* is not made")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "array", "problem"),
    [
        ("observations", np.zeros((3, 4), np.float32), r"needs \(4, 4\).*: the last observation is missing"),
        ("observations", np.arange(20, dtype=np.float32).reshape(4, 5), r"shape \(4, 5\), and needs \(4, 4\)"),
        ("observations", np.full((4, 4), np.nan, np.float32), "the observation of step 0 is nan"),
        ("observations", np.full((4, 4), np.inf, np.float32), "the observation of step 0 is inf"),
        ("observations", np.full((4, 4), b"text"), "is of type"),
        ("rewards", np.zeros(9), "terminations is .*needs 9 bools, as rewards"),
        ("rewards", np.array([0, np.nan, 0]), "the reward of step 1 is nan"),
        ("rewards", np.full(3, 1e308), "the reward of step 0 is inf"),
        ("rewards", np.zeros(0), r"rewards has the shape \(0,\)"),
        ("actions", np.array([0, 7, 0]), "the action is 7, which is outside of its space, 0 to 1: .* or the action"),
        ("actions", np.array([0.0, 0.5, 0.0]), "actions is of type float64"),
        ("actions", np.zeros(4, np.int64), r"actions has the shape \(4,\), and needs \(3,\)"),
        ("terminations", np.array([True, False, False]), "it ends at step 0 of 3, and continues"),
        ("truncations", np.array([False, True, True]), "it ends at step 1 of 3, and continues"),
        ("terminations", np.array([0, 0, 2]), "terminations holds other numbers than 0 and 1"),
        ("terminations", np.array([0.1, 0.2, 0.3]), "terminations is float64"),
        ("truncations", None, "truncations is missing"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(data, name, array, problem):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        del main[f"episode_0/{name}"]
        if array is not None:
            main[f"episode_0/{name}"] = array
    refused(data, problem)


def test_wrong_numbers_of_actions_do_not_speak_of_observations(data):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        main["episode_0/actions"][1] = -1
    with pytest.raises(CallboardError) as caught:
        read(data)
    assert "observation" not in str(caught.value)


def test_observations_outside_of_their_bounds_are_reported_once_and_read(data, caplog):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        main["episode_0/observations"][1:3, 0] = 30.0
    found = open_data(str(data))
    found.check()
    (record,) = caplog.records
    assert "gives 30 in its observation, outside of the bounds of its space, -4.8 to 4.8" in record.message
    assert str(data) in record.message and read(data)[0].observation[1, 0] == 30.0
