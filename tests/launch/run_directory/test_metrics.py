"""Metrics on disk: bounded over weeks, repaired after a death, paused by a full disk."""

import errno
import json
import os

import pytest
import tensorflow as tf

from callboard.launch.run_directory import metrics
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.metrics import MetricsWriter, RowFile, row_interval

ROW = {"time": 1.0, "environment_steps": 1, "value": float("nan")}


def rows(directory):
    return [json.loads(line) for line in directory.metrics.read_text().splitlines()]


@pytest.mark.parametrize(
    "rest",
    ['{"environment_st', '{"a": 1', "\0\0\0\0", '{"a": 1}\n{"b"', "\0\0\n", '{"a": 1}\n5\n', '{"a": 1}\n' + "x" * 3000],
)
def test_a_row_that_was_cut_is_removed(tmp_path, rest):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"first": 1}\n' + rest)
    file = RowFile(path)
    file.write({"last": 2})
    file.close()
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found[0] == {"first": 1} and found[-1] == {"last": 2}
    assert len(found) == (3 if rest.startswith('{"a": 1}\n') else 2)


def test_a_file_that_is_whole_or_empty_is_left(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for content in ("", '{"a": 1}\n{"b": 2}\n'):
        path.write_text(content)
        assert RowFile(path).size == len(content)
        assert path.read_text() == content


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("row_bytes", [300, 2800])
def test_rows_become_rare_as_the_file_grows(tmp_path, monkeypatch, row_bytes):
    """Eight weeks, with a restart every day."""
    monkeypatch.setattr(metrics, "_STEP_BYTES", 2**16)
    monkeypatch.setattr(metrics, "TensorBoardWriter", lambda *arguments: NoTensorBoard())
    directory, clock, sizes = RunDirectory(tmp_path), Clock(), []
    row = {**ROW, "text": "x" * (row_bytes - 60)}
    for day in range(56):
        writer = MetricsWriter(directory, clock=clock)
        while clock.now < (day + 1) * 86_400:
            writer.write(row)
            # What lies in between is not due.
            clock.now += max(2.0, row_interval(directory.metrics.stat().st_size))
        writer.close()
        sizes.append(directory.metrics.stat().st_size)
    # As many rows as in the first step of the file take twice as long in each step.
    assert sizes[-1] < 20 * 2**16 and sizes[-1] - sizes[27] < 2 * 2**16
    assert rows(directory)


class NoTensorBoard:
    def write(self, row, histograms):
        pass

    def close(self):
        pass


def test_kinds_of_rows_do_not_crowd_each_other_out(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "_STEP_BYTES", 100)
    directory, now = RunDirectory(tmp_path), 0.0
    writer = MetricsWriter(directory, clock=lambda: now)
    for number in range(10):
        writer.write({**ROW, "number": number})
    writer.write({**ROW, "number": 10}, kind="evaluation")
    writer.write({**ROW, "number": 11}, kind="evaluation")
    writer.write({**ROW, "number": 12}, always=True)
    assert [row["number"] for row in rows(directory)] == [0, 1, 10, 12]
    now += 1000.0
    writer.write({**ROW, "number": 13})
    assert rows(directory)[-1]["number"] == 13
    writer.close()


def test_a_full_disk_pauses_metrics(tmp_path, monkeypatch):
    directory, said = RunDirectory(tmp_path), []
    writer = MetricsWriter(directory, said.append)
    writer.write({**ROW, "number": 0})
    with monkeypatch.context() as patch:
        patch.setattr(writer._rows, "_file", FullDisk(writer._rows._file))
        patch.setattr(tf.summary, "scalar", full)
        for number in range(1, 4):
            writer.write({**ROW, "number": number})
    assert said == ["metrics could not be written: No space left on device; the run continues without them"]
    writer.write({**ROW, "number": 4})
    assert said[1:] == ["metrics are written again"]
    writer.close()
    assert [row["number"] for row in rows(directory)] == [0, 4]
    # The file of TensorBoard that may be broken is left, and another one begun.
    found = [values for path in directory.tensorboard.iterdir() for values in numbers(path)]
    assert sorted(found) == [0, 4]


def numbers(path):
    for event in tf.compat.v1.train.summary_iterator(str(path)):
        for value in event.summary.value:
            if value.tag == "number":
                yield float(tf.make_ndarray(value.tensor))


def full(*arguments):
    raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")


class FullDisk:
    """A file that takes a few bytes more."""

    def __init__(self, file):
        self._file = file

    def write(self, data):
        if len(data) < 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._file.write(data[: len(data) - 10])

    def fileno(self):
        return self._file.fileno()


def test_metrics_do_not_make_a_run_directory_again_that_was_renamed(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    said = []
    writer = MetricsWriter(directory, said.append)
    directory.path.rename(tmp_path / "elsewhere")
    for number in range(3):
        writer.write({**ROW, "number": number}, always=True)
    writer.close()
    assert not directory.path.exists()
    assert said == ["metrics could not be written: No such file or directory; the run continues without them"]
