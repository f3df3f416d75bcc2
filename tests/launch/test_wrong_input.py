"""Wrong input: one line that says what is wrong, exit code 2, no traceback, nothing started and nothing left behind."""

import os
import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from wrong_inputs import cases, make_files

import callboard.cli.command
import callboard.launch.launchers.hosts.host_run
import callboard.launch.launchers.inline
import callboard.launch.launchers.processes
import callboard.launch.launchers.threads
from callboard.launch.launchers.run_outcome import Outcome

JARGON = re.compile(
    r"Traceback|Union|Subtypes|<class|NoneType|object at 0x|Expected a|argument --|\[Errno|invalid literal"
)
SECONDS = 20.0
"""A case takes milliseconds; one that reads without bounds, or waits for ever, does not end in this time."""


@pytest.fixture
def started(monkeypatch):
    """The launchers that were started, which start nothing."""
    names = []

    def stand_in(name):
        def run(program, run, monitor, *options):
            names.append(name)
            outcome = Outcome()
            outcome.reached_limit("it was to be started")
            return outcome

        return run

    for name in ("hosts.host_run", "inline", "processes", "threads"):
        monkeypatch.setattr(f"callboard.launch.launchers.{name}.run", stand_in(name))
    for name in ("hosts.launcher", "local_launchers"):
        path = f"callboard.launch.launchers.{name}.start_forkserver"
        monkeypatch.setattr(path, lambda: names.append("forkserver"))
    return names


def check(case, started, directory, capsys):
    started.clear()
    make_files(case.files, directory)
    before = sorted(directory.rglob("*"))
    begin = time.monotonic()
    os.chdir(directory)
    code = callboard.cli.command.main(case.arguments)
    text = capsys.readouterr()
    assert time.monotonic() - begin < SECONDS, case
    if code == 0 and not case.is_wrong:
        return
    assert code == 2, (case, code, text)
    assert text.err.startswith("callboard: ") and text.err.count("\n") == 1, (case, text.err)
    assert not JARGON.search(text.err), (case, text.err)
    assert len(text.err) < 1500, (case, text.err)
    assert not set(started) - {"forkserver"}, case
    assert sorted(directory.rglob("*")) == before, case


def check_all(count, started, tmp_path_factory, capsys):
    base = tmp_path_factory.mktemp("wrong")
    number = iter(range(10**9))

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(cases)
    def one(case):
        directory = base / str(next(number))
        directory.mkdir()
        check(case, started, directory, capsys)

    working = os.getcwd()
    try:
        one()
    finally:
        os.chdir(working)


def test_wrong_input_is_refused_in_one_line(started, tmp_path_factory, capsys):
    check_all(25, started, tmp_path_factory, capsys)


@pytest.mark.slow("daily")
def test_a_thousand_wrong_inputs_are_refused_in_one_line(started, tmp_path_factory, capsys):
    check_all(1000, started, tmp_path_factory, capsys)
