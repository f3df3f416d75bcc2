"""Run directories at a URL: what is stored, what is fetched, and what half a checkpoint is taken for: none."""

import contextlib
import errno
import http.server
import os
import pathlib
import shutil
import threading
import time

import pytest
from stored_nodes import directory_of, write_checkpoint

from callboard.errors import CallboardError
from callboard.launch.experiments.settings import read_settings
from callboard.launch.run_directory import remote_storage
from callboard.launch.run_directory.checkpoints import Checkpoints
from callboard.launch.run_directory.layout import KEEP_MARK, RunDirectory
from callboard.launch.run_directory.node_mirror import Mirror
from callboard.launch.run_directory.remote_storage import Storage, fetch_run, is_url, local_copy


def empty(path):
    path.write_bytes(b"")


@pytest.mark.slow("daily")
@pytest.mark.parametrize("damaging", [empty, pathlib.Path.unlink])
@pytest.mark.parametrize("name", ["counters.json", "manifest.json", "policy.npz"])
@pytest.mark.parametrize("only", [None, ["policy.npz"]])
def test_the_one_before_a_damaged_checkpoint_is_fetched(tmp_path, bucket, storage, name, damaging, only):
    directory = directory_of(tmp_path, "learner/0")
    mirror = Mirror(storage, "learner/0", directory)
    for step in (100, 200):
        write_checkpoint(directory, step)
        assert mirror.close()
    damaging(bucket / "checkpoints" / f"{200:012d}" / name)
    copy, said = RunDirectory(tmp_path / "copy"), []
    storage.fetch_newest("checkpoints", copy.path, only, said.append)
    (line,) = said
    assert line.startswith(f"{storage.url}/checkpoints/{200:012d} is damaged ({name} ") and "\n" not in line
    latest = Checkpoints(copy).latest()
    assert latest.name == f"{100:012d}" and (latest / "policy.npz").read_text() == "weights 100"
    kept = sorted(path.name for path in (bucket / "checkpoints").iterdir())
    assert kept == [f"{100:012d}", f"damaged-{200:012d}"]
    # Without one that is whole there is a word about it, too.
    empty(bucket / "checkpoints" / f"{100:012d}" / name)
    copy = RunDirectory(tmp_path / "another")
    storage.fetch_newest("checkpoints", copy.path, only, said.append)
    with pytest.raises(CallboardError, match="no checkpoint in .* can be used"):
        Checkpoints(copy).latest()


def test_a_run_is_copied_to_be_evaluated(tmp_path, bucket, storage):
    for node in ("learner/0", "evaluator/0"):
        directory = directory_of(tmp_path, node)
        write_checkpoint(directory, 100)
        directory.best_policy.write_text("best")
        directory.experiment.write_text("env: CartPole-v1")
        storage.store("experiment.yaml", directory.path)
        Mirror(storage, node, directory).close()
    with local_copy(storage.url) as copy:
        assert copy.best_policy.read_text() == "best"
        assert (copy.checkpoints / f"{100:012d}" / "policy.npz").read_text() == "weights 100"
        assert copy.experiment.exists()
        copy.videos.mkdir()
        (copy.videos / "best.mp4").write_text("frames")
    assert not copy.path.exists()
    assert (bucket / "videos" / "best.mp4").read_text() == "frames"


def test_the_checkpoint_of_a_step_is_copied(tmp_path, bucket, storage):
    directory = directory_of(tmp_path, "learner/0")
    mirror = Mirror(storage, "learner/0", directory, keep=3)
    for step in (100, 200, 300, 400):
        write_checkpoint(directory, step)
    assert mirror.close()
    assert storage.steps() == [200, 300, 400]
    (directory.checkpoints / f"{200:012d}").rename(directory.checkpoints / f"{500:012d}")
    assert mirror.close()
    assert storage.steps() == [300, 400, 500]
    with local_copy(storage.url, "400") as copy:
        (checkpoint,) = copy.checkpoints.glob("0*")
        assert checkpoint.name == f"{400:012d}"
        assert not (checkpoint / "learner.index").exists()
        # What a resume checks.
        assert Checkpoints(copy).counter_sources() == {"learner/0#a": {"learner_steps": 400}}
    with local_copy(storage.url, "400", whole=True) as copy:
        assert (copy.checkpoints / f"{400:012d}" / "learner.index").exists()
    with pytest.raises(CallboardError, match="run has no checkpoint 100; choose from latest, 300, 400, 500"):
        with local_copy(storage.url, "100"):
            pass


def test_a_run_that_is_not_there_is_an_empty_copy(tmp_path, storage):
    directory = RunDirectory(tmp_path / "copy")
    fetch_run(storage, directory)
    assert not directory.path.exists()


def test_half_checkpoints_of_those_who_died_are_removed_and_newer_ones_left(tmp_path, bucket, storage):
    directory = directory_of(tmp_path, "learner/0")
    for step in (50, 150):
        half = bucket / "checkpoints" / f"{step:012d}"
        half.mkdir(parents=True)
        (half / "policy.npz").write_text("half")
    write_checkpoint(directory, 100)
    assert Mirror(storage, "learner/0", directory).close()
    assert sorted(path.name for path in (bucket / "checkpoints").iterdir()) == [f"{step:012d}" for step in (100, 150)]


def test_a_checkpoint_that_is_to_be_kept_stays(tmp_path, bucket, storage):
    directory = directory_of(tmp_path, "learner/0")
    for step in (100, 200, 300):
        name = f"checkpoints/{step:012d}"
        write_checkpoint(directory, step)
        if step == 100:
            (directory.path / name / KEEP_MARK).touch()
        storage.store_whole(name, directory.path, keep=1)
    assert [path.name[9:] for path in sorted((bucket / "checkpoints").iterdir())] == ["100", "300"]


def test_the_checkpoint_of_a_name_is_fetched(tmp_path, bucket, storage):
    directory = directory_of(tmp_path, "learner/0")
    newer = write_checkpoint(directory, 5)
    newer.rename(f"{newer}.001")
    write_checkpoint(directory, 5)
    for name in ("000000000005", "000000000005.001"):
        storage.store_whole(f"checkpoints/{name}", directory.path)
    for given, found in (("5", "000000000005.001"), ("000000000005", "000000000005")):
        copy = RunDirectory(tmp_path / given)
        assert storage.fetch_newest("checkpoints", copy.path, checkpoint=given)
        assert [path.name for path in copy.checkpoints.iterdir()] == [found]


def test_a_local_file_is_never_there_in_part(tmp_path, bucket, storage, monkeypatch):
    directory = directory_of(tmp_path, "actor/0")
    storage.store("logs/actor-0.log", directory.path)
    directory.log("actor/0").write_text("another one\n")
    replaced = []

    def replace(source, target):
        replaced.append((os.path.dirname(source) == os.path.dirname(target), pathlib.Path(target).read_text()))
        rename(source, target)

    rename = os.replace
    monkeypatch.setattr(os, "replace", replace)
    storage.store("logs/actor-0.log", directory.path)
    assert replaced == [(True, "begins\n")]
    assert (bucket / "logs" / "actor-0.log").read_text() == "another one\n"


def test_what_is_a_url():
    assert is_url("s3://bucket/run") and is_url("file:///runs/x")
    assert not is_url("runs/x") and not is_url(pathlib.Path("s3://bucket")) and not is_url(None)
    with pytest.raises(CallboardError, match="the run directory nowhere://x cannot be used: Protocol not known"):
        Storage("nowhere://x")


def test_directories_that_contain_a_file_are_found_at_any_depth(storage, bucket):
    for name in ("a/x.yaml", "b/c/x.yaml", "b/y.yaml"):
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).touch()
    assert sorted(storage.folders_with("x.yaml")) == ["a", "b/c"]
    (bucket / "x.yaml").touch()
    assert sorted(storage.folders_with("x.yaml")) == [".", "a", "b/c"]
    assert Storage(f"{storage.url}/nowhere").folders_with("x.yaml") == []


class OddServer(http.server.BaseHTTPRequestHandler):
    """Serves a folder with one file, in the manner that the first part of the path names."""

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        manner, _, name = self.path.strip("/").partition("/")
        if manner == "forest":  # Each folder holds another one.
            page = f"<a href='/{manner}/{name}/a/'>a</a>".encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)
            return
        if manner in ("head", "body"):  # It is that which is slow.
            self.slowly(manner == "head")
            return
        self.send_response(500 if manner == "failing" else 302 if manner == "elsewhere" and name else 200)
        self.send_header("Location", "file:///etc/passwd")
        self.end_headers()  # Nothing says how long it is.
        page = b"<a href='run/'>run</a>" if not name else b"<a href='file'>file</a>" if name == "run" else b"content"
        if (manner, bool(name)) == ("endless", False) or (manner, name) == ("large", "run/file"):
            page = b"x" * 2**20
        for _ in range(64 if len(page) > 99 else 1):
            try:
                self.wfile.write(page)
            except OSError:
                return

    def steadily(self, in_head):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\nConnection: close\r\n\r\n")
        for _ in range(0 if self.command == "HEAD" else 20):
            self.wfile.write(b"a")
            time.sleep(0.1)

    def slowly(self, in_head):
        """Sends a byte more often than a peer may be silent, for as long as one reads."""
        self.wfile.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n" + b"X-More: " * in_head + b"\r\n" * (not in_head)
        )
        with contextlib.suppress(OSError):
            for _ in range(200):
                self.wfile.write(b"a")
                time.sleep(0.05)

    do_HEAD = do_GET


@pytest.fixture
def server():
    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OddServer)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{serving.server_address[1]}"
    serving.shutdown()
    serving.server_close()


def test_files_of_a_web_server_that_does_not_say_how_long_they_are(server, tmp_path):
    storage = Storage(f"{server}/silent")
    assert storage.find("*/file") == ["run/file"]
    assert storage.fetch("run/file", tmp_path, most_bytes=100)
    assert (tmp_path / "run" / "file").read_text() == "content"
    large = Storage(f"{server}/large")
    with pytest.raises(
        CallboardError, match="run/file has more than 2,097,152 bytes, the most that is read of it here"
    ):
        large.fetch("run/file", tmp_path, most_bytes=2**21)
    assert not (tmp_path / "run" / "file").exists()


@pytest.mark.parametrize("beginning", ["file://", "memory://"])
def test_what_there_is_no_room_for_is_not_copied(beginning, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 10**12, 1000))
    storage = Storage(f"{beginning}{tmp_path}/bucket")
    storage._files.makedirs(storage._root, exist_ok=True)
    for name, length in (("small", 500), ("large", 501)):
        with storage._files.open(storage._at(name), "wb") as file:
            file.write(b"x" * length)
    assert storage.fetch("small", tmp_path / "copy")
    no_room = f"^{tmp_path}/copy has no room for .*/bucket/large: free some, or name another directory$"
    with pytest.raises(CallboardError, match=no_room):
        storage.fetch("large", tmp_path / "copy")
    assert not (tmp_path / "copy" / "large").exists()


@pytest.mark.parametrize("beginning", ["file://", "memory://"])
def test_a_disk_that_fills_up_is_named_and_no_part_of_a_file_is_left(beginning, tmp_path, monkeypatch):
    storage = Storage(f"{beginning}{tmp_path}/bucket")
    storage._files.makedirs(storage._root, exist_ok=True)
    with storage._files.open(storage._at("file"), "wb") as file:
        file.write(b"x" * 100)

    def write_half(source, *arguments, **further):
        (tmp_path / "copy" / "file").write_bytes(b"x" * 50)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", write_half)
    monkeypatch.setattr(type(storage._files), "get_file", write_half)
    with pytest.raises(CallboardError, match=f"^{tmp_path}/copy has no room for .*/bucket/file: free some"):
        storage.fetch("file", tmp_path / "copy")
    assert not (tmp_path / "copy" / "file").exists()


@pytest.mark.parametrize("manner", ["head", "body"])
def test_a_web_server_has_to_move_on(manner, server, monkeypatch):
    monkeypatch.setattr(remote_storage, "_SILENT_SECONDS", 0.5)
    with pytest.raises(CallboardError, match="cannot be read: "):
        Storage(f"{server}/{manner}").find("*/file")


def test_a_large_file_may_take_longer_than_silence(server, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_storage, "_SILENT_SECONDS", 1.0)
    monkeypatch.setattr(remote_storage, "_LEAST_BYTES", 2)
    monkeypatch.setattr(OddServer, "slowly", OddServer.steadily, raising=False)
    storage = Storage(f"{server}/body")
    monkeypatch.setattr(storage, "exists", lambda name: True)
    assert storage.fetch("run/file", tmp_path) and (tmp_path / "run" / "file").read_bytes() == b"a" * 20


def test_a_web_server_leads_to_a_bounded_number_of_pages(server, monkeypatch):
    monkeypatch.setattr(remote_storage, "_MOST_ANSWERS", 20)
    with pytest.raises(CallboardError, match="it has more than 20 pages and files"):
        Storage(f"{server}/forest").folders_with("x.yaml")


@pytest.mark.parametrize("url", ["simplecache::file://{}", "filecache::file://{}", "dir::file://{}"])
def test_no_url_hides_a_directory_of_this_machine_behind_another(url, bucket):
    bucket.mkdir(parents=True)
    with pytest.raises(CallboardError, match="has '::', which is not supported: name one plain URL"):
        Storage(url.format(bucket))


@pytest.mark.parametrize("manner", ["failing", "endless"])
def test_a_web_server_that_does_not_list_its_files_is_one_line(manner, server):
    with pytest.raises(CallboardError, match=f"{manner} cannot be read: ") as refused:
        Storage(f"{server}/{manner}").find("*/file")
    assert "\n" not in str(refused.value)


def test_a_redirection_leads_to_no_file_of_this_machine(server, tmp_path):
    try:
        assert not Storage(f"{server}/elsewhere").fetch("run/file", tmp_path, most_bytes=2**20)
    except CallboardError as error:
        assert "cannot be read" in str(error)
    assert not (tmp_path / "run" / "file").exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/run", "http://", "http://[", "weird://run", "zip:///etc/passwd"])
def test_a_url_that_cannot_be_opened_is_one_line(url):
    with pytest.raises(CallboardError) as refused:
        Storage(url).find("*/file")
    assert "\n" not in str(refused.value)


def test_links_and_pipes_at_a_url_of_this_machine_are_refused(bucket, storage, tmp_path):
    bucket.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (bucket / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(bucket / "pipe")
    for name, problem in (("link", "is a symbolic link"), ("pipe", "is no regular file")):
        with pytest.raises(CallboardError, match=problem):
            storage.fetch(name, tmp_path / "copy")


@pytest.mark.parametrize("beginning", ["", "file://", "local://"])
def test_what_others_can_write_is_refused_at_every_spelling(beginning, bucket):
    bucket.mkdir(parents=True)
    (bucket / "experiment.yaml").write_text("agent: ppo\n")
    bucket.chmod(0o777)
    with pytest.raises(CallboardError, match="can be written by others"):
        read_settings(f"{beginning}{bucket}")
