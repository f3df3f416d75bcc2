"""HDF5 files of strangers: no other file is read, nothing is waited for, and what is not stored is not allocated."""

import io
import json
import os
import shutil
import zlib

import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image
from recorded_sets import CARTPOLE, cartpole_episode, write

from callboard.environments.recorded import EpisodeFiles, guarded_hdf5, open_data
from callboard.environments.recorded.dataset_summary import summarize
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


def write_pictures(data, **layout):
    """Gives the data set pictures of 32 x 32 as observations; returns the array with their files."""
    from minari.serialization import serialize_space

    file = data / "metadata.json"
    space = serialize_space(spaces.Box(0, 255, (32, 32, 3), np.uint8))
    file.write_text(json.dumps({**json.loads(file.read_text()), "observation_space": space}))
    with h5py.File(data / "main_data.hdf5", "a") as main:
        del main["episode_0/observations"]
        pictures = main["episode_0"].create_dataset("observations", (4,), h5py.vlen_dtype(np.uint8), **layout)
        for row in range(4):
            buffer = io.BytesIO()
            Image.fromarray(np.full((32, 32, 3), row, np.uint8)).save(buffer, "PNG")
            pictures[row] = np.frombuffer(buffer.getvalue(), np.uint8)


@pytest.mark.parametrize("layout", [{}, {"chunks": (3,)}, {"chunks": True}])
def test_files_of_pictures_are_read_one_by_one(data, layout):
    write_pictures(data, **layout)
    assert read(data)[0].observation[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_references_to_pictures_are_not_compressed(data):
    write_pictures(data, compression="gzip")
    refused(data, "observations is compressed: write pictures, which are compressed already, without")


@pytest.mark.parametrize("layout", [{}, {"chunks": (4,)}])
def test_pictures_that_share_one_file_count_as_often_as_they_are_read(data, layout, monkeypatch):
    write_pictures(data, **layout)
    with h5py.File(data / "main_data.hdf5", "a") as main:
        pictures = main["episode_0/observations"]
        buffer = np.append(pictures[0], np.zeros(2**16, np.uint8))
        pictures[0] = buffer
        main.flush()
        if layout:
            pictures.id.write_direct_chunk((0,), pictures.id.read_direct_chunk((0,))[1][:16] * 4)
        else:
            offset = pictures.id.get_offset()
    if not layout:
        with open(data / "main_data.hdf5", "r+b") as file:
            file.seek(offset)
            reference = file.read(16)
            file.seek(offset)
            file.write(reference * 4)
    assert len(read(data)) == 1
    monkeypatch.setattr(guarded_hdf5, "_MOST_BYTES", 3 * 2**16)
    refused(data, "its arrays have more than 196,608 bytes: divide it into shorter episodes")


def test_a_reference_that_names_a_huge_length_is_not_followed(data):
    write_pictures(data)
    with h5py.File(data / "main_data.hdf5", "a") as main:
        offset = main["episode_0/observations"].id.get_offset()
    with open(data / "main_data.hdf5", "r+b") as file:
        file.seek(offset)
        file.write(b"\xff\xff\xff\x7f")
    refused(data, "its arrays have more than 2,147,483,648 bytes")


@pytest.mark.parametrize("fletcher", [False, True])
def test_a_chunk_that_decompresses_to_more_than_it_declares_is_not_read(data, fletcher, monkeypatch):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        del main["episode_0/rewards"]
        rewards = main["episode_0"].create_dataset(
            "rewards", (3,), "f8", chunks=(3,), compression="gzip", shuffle=True, fletcher32=fletcher
        )
        rewards[:] = 1.0
    monkeypatch.setattr(guarded_hdf5, "_UNCHECKED_BYTES", 2**10)
    assert read(data)[0].reward.tolist() == [1.0] * 3
    with h5py.File(data / "main_data.hdf5", "a") as main:
        content = zlib.compress(bytes(24 + 2**14)) + bytes(4 * fletcher)
        main["episode_0/rewards"].id.write_direct_chunk((0,), content)
    refused(data, "rewards has a chunk that is too large when it is decompressed")
    with h5py.File(data / "main_data.hdf5", "a") as main:
        main["episode_0/rewards"].id.write_direct_chunk((0,), zlib.compress(bytes(24)) + bytes(2**12))
    refused(data, "rewards has a chunk that is too large when it is decompressed")


def test_a_chunk_of_lzf_is_small(data, monkeypatch):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        del main["episode_0/rewards"]
        main["episode_0"].create_dataset("rewards", data=np.ones(3), compression="lzf")
    assert read(data)[0].reward.tolist() == [1.0] * 3
    monkeypatch.setattr(guarded_hdf5, "_UNCHECKED_BYTES", 2**10)
    refused(data, "rewards has a chunk that is too large when it is decompressed")


@pytest.mark.parametrize("name", ["rewards", "observations"])
def test_what_is_converted_counts_with_its_new_size(data, name, monkeypatch):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        shape = main[f"episode_0/{name}"].shape
        del main[f"episode_0/{name}"]
        main[f"episode_0/{name}"] = np.zeros(shape, np.int8)
    monkeypatch.setattr(guarded_hdf5, "_MOST_BYTES", 4 * 3 + 3 + 3 + 4 * 16 + 8 * 3)
    assert len(read(data)) == 1
    monkeypatch.setattr(guarded_hdf5, "_MOST_BYTES", 4 * 3 + 3 + 3 + 4 * 16 + 8 * 3 - 1)
    refused(data, "its arrays have more than")


def test_episodes_that_share_their_actions_count_as_often_as_they_are_read(data, monkeypatch):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        for index in range(1, 50):
            main[f"episode_{index}"] = main["episode_0"]
    file = data / "metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "total_episodes": 50, "total_steps": 150}))
    assert len(summarize(open_data(str(data))).returns) == 50
    monkeypatch.setattr("callboard.environments.recorded.dataset_summary._MOST_BYTES", 40 * 3 * 4)
    with pytest.raises(CallboardError, match="the actions of .* have more than 480 bytes: divide the data set"):
        summarize(open_data(str(data)))


def test_numbers_of_a_recorder_are_one_text(intact, tmp_path):
    shutil.copytree(intact, tmp_path / "set-v0")
    with h5py.File(tmp_path / "set-v0/data/main_data.hdf5", "a") as main:
        main.attrs["callboard_sources"] = [json.dumps({"actor/0": 3})] * 100
    assert EpisodeFiles(tmp_path / "set-v0", CARTPOLE, {}, 1e9).last_number("actor/0") == 0


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


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.ones(2, np.float32), r"callboard_discounts is float32\(2,\), and needs 3 numbers of float32, as rewards"),
        (np.ones(3), r"callboard_discounts is float64\(3,\)"),
        (np.array([1, np.nan, 1], np.float32), "the discount of step 1 is nan, which is not between 0 and 1"),
        (np.array([1.5, 1, 1], np.float32), "the discount of step 0 is 1.5, which is not"),
        (np.zeros(3, np.float32), "its last discount is 0, and its last termination False: let"),
    ],
)
def test_discounts_that_do_not_fit_are_refused(data, array, problem):
    with h5py.File(data / "main_data.hdf5", "a") as main:
        main["episode_0/callboard_discounts"] = array
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
