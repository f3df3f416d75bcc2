"""The launchers of one machine: what they declare, what they refuse, and what they start early."""

import pytest

from callboard.errors import CallboardError
from callboard.launch.experiment import Experiment
from callboard.launch.launchers.forkserver import ForkServer
from callboard.launch.launchers.local_launchers import InlineLauncher, ProcessesLauncher, ThreadsLauncher

EVERY = (InlineLauncher, ThreadsLauncher, ProcessesLauncher)


def experiment(**settings):
    return Experiment(**{"agent": None, "env": "CartPole-v1", **settings})


def test_they_have_names_and_run_on_this_machine():
    assert [launcher.name for launcher in EVERY] == ["inline", "threads", "processes"]
    assert [launcher.in_this_process for launcher in EVERY] == [True, True, False]
    assert all(launcher.on_this_machine and not launcher.stores_at_urls for launcher in EVERY)


def test_inline_has_one_replay_server():
    with pytest.raises(CallboardError, match="set replay_shards to 1, not 2, or use --launcher threads or processes"):
        InlineLauncher().check(experiment(replay_shards=2))
    for launcher in (ThreadsLauncher(), ProcessesLauncher()):
        launcher.check(experiment(replay_shards=2))


@pytest.mark.parametrize("launcher", [InlineLauncher(), ThreadsLauncher()])
def test_several_learners_need_several_processes(launcher):
    with pytest.raises(CallboardError, match="set learners to 1, or use --launcher processes"):
        launcher.check(experiment(learners=2))
    ProcessesLauncher().check(experiment(learners=2))


def test_only_processes_start_a_forkserver_early(monkeypatch):
    server = ForkServer(preload="json")
    monkeypatch.setattr("callboard.launch.launchers.forkserver._forkserver", server)
    for launcher in EVERY:
        assert server._process is None
        launcher().prepare()
    assert server._process.poll() is None
    server.stop()
