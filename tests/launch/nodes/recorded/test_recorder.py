"""The recorder node: one call at a time writes, whatever threads they come from."""

import concurrent.futures
import pickle
import time

import pytest
from local_nodes import small_run

from callboard.launch.nodes.recorded.recorder import _Call

pytest.importorskip("minari")


class SlowFiles:
    """Files that cannot be written twice at a time."""

    total_episodes = 0

    def __init__(self):
        self.writes = 0
        self.written = []
        self.fails = False

    def last_number(self, source):
        return max((numbers.get(source, 0) for _, numbers in self.written), default=0)

    def append(self, episodes, numbers):
        self.writes += 1
        assert self.writes == 1
        time.sleep(0.02)
        self.writes -= 1
        if self.fails:
            raise OSError("no space")
        self.written.append((episodes, numbers))
        return True


def test_calls_of_several_recording_threads_are_written_one_after_the_other(tmp_path):
    with small_run("bc-cartpole", tmp_path / "run", "--record-episodes", only=("coordinator/0",)) as nodes:
        recorder = nodes["recorder/0"]
        assert recorder.context.cooperative
        recorder._files = files = SlowFiles()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(recorder.record, f"actor/{number}", 1, pickle.dumps([])) for number in range(4)]
            assert [call.result() for call in calls] == [True] * 4
        assert sorted(files.written, key=str) == [([], {f"actor/{number}": 1}) for number in range(4)]


def test_calls_are_written_together_and_repeated_ones_once(tmp_path):
    with small_run("bc-cartpole", tmp_path / "run", "--record-episodes", only=("coordinator/0",)) as nodes:
        recorder = nodes["recorder/0"]
        recorder._files = files = SlowFiles()
        files.fails = True
        calls = [_Call("a", 1, ["first"]), _Call("b", 1, ["other"]), _Call("a", 1, ["first"])]
        recorder._write(calls)
        assert [call.answer for call in calls] == [None] * 3
        files.fails = False
        recorder._write(calls)
        assert [call.answer for call in calls] == [True] * 3
        later = [_Call("b", 1, ["other"]), _Call("a", 2, ["second"])]
        recorder._write(later)
        assert [call.answer for call in later] == [True] * 2
        assert files.written == [(["first", "other"], {"a": 1, "b": 1}), (["second"], {"a": 2})]
        pauses = []
        for files.copying_seconds, seconds in ((0.0, 0.1), (0.125, 3.0), (0.5, 0.6), (100.0, 101.0)):
            pauses.append(recorder._pause(seconds))
        assert pauses == [0.4, 0.5, 2.0, 10.0]
