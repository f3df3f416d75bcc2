"""The recorder node: one call at a time writes, whatever threads they come from."""

import concurrent.futures
import pickle
import time

import pytest
from local_nodes import small_run

pytest.importorskip("minari")


class SlowFiles:
    """Files that cannot be written twice at a time."""

    total_episodes = 0

    def __init__(self):
        self.writes = 0
        self.written = []

    def append(self, episodes, source, number):
        self.writes += 1
        assert self.writes == 1
        time.sleep(0.02)
        self.written.append((source, number, episodes))
        self.writes -= 1
        return True


def test_calls_of_several_recording_threads_are_written_one_after_the_other(tmp_path):
    with small_run("bc-cartpole", tmp_path / "run", "--record-episodes", only=("coordinator/0",)) as nodes:
        recorder = nodes["recorder/0"]
        assert recorder.context.cooperative
        recorder._files = files = SlowFiles()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(recorder.record, f"actor/{number}", 1, pickle.dumps([])) for number in range(4)]
            assert [call.result() for call in calls] == [True] * 4
        assert sorted(files.written) == [(f"actor/{number}", 1, []) for number in range(4)]
