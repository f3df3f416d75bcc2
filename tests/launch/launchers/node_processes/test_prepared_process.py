"""The preparation of a node's process, and the description of its end."""

import os

import forked_functions
import pytest

from callboard.errors import CallboardError, ProcessEnded
from callboard.launch.launchers.node_processes.forkserver import ForkServer
from callboard.launch.launchers.node_processes.prepared_process import exit_by, prepare_tensorflow
from callboard.launch.launchers.supervision.supervisor import Exit
from callboard.launch.nodes.node import NodeRules


@pytest.mark.slow
def test_output_temporary_files_and_threads_are_those_of_the_node(tmp_path):
    log, temporary = tmp_path / "actor-0.log", tmp_path / "tmp"
    server = ForkServer(preload="json")
    try:
        process = server.fork(forked_functions.prepare_for_a_node, str(log), str(temporary))
        assert process.pipe.poll(60)
        assert process.pipe.recv() == (str(temporary), str(temporary), "-1", (2, 2))
        assert process.join(10.0)
    finally:
        server.stop()
    text = log.read_text()
    assert f"actor/0 begins, process {process.pid}" in text and "printed by the node" in text
    assert temporary.is_dir()


@pytest.mark.parametrize(
    "uses_gpu, gpus, visible",
    [(True, None, "0,1"), (True, "1", "1"), (True, "", "-1"), (False, None, "-1"), (False, "1", "-1")],
)
def test_only_nodes_that_use_gpus_see_them(monkeypatch, uses_gpu, gpus, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    for name in ("TF_FORCE_GPU_ALLOW_GROWTH", "CUDA_MODULE_LOADING", "CUDA_CACHE_MAXSIZE"):
        monkeypatch.setenv(name, "")  # So that it is unset again afterwards.
        monkeypatch.delenv(name)
    prepare_tensorflow(NodeRules(stop_order=1, uses_gpu=uses_gpu, gpus=gpus, tensorflow_threads=0))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible
    assert ("TF_FORCE_GPU_ALLOW_GROWTH" in os.environ) == uses_gpu


def ended_by(error):
    try:
        raise error
    except BaseException as caught:
        return exit_by(caught)


def test_an_error_that_the_user_can_fix_is_one_line_and_final(capsys):
    error = CallboardError("no such level; take one of 0 to 199")
    assert ended_by(error) == Exit(False, str(error), str(error), final=True)
    assert capsys.readouterr().err == ""


def test_other_errors_may_be_tried_again_and_keep_their_traceback(capsys):
    how = ended_by(OSError("no camera\nin the second line"))
    assert (how.clean, how.final, how.description) == (False, False, "OSError: no camera")
    assert how.error.startswith("Traceback") and "in the second line" in how.error
    assert capsys.readouterr().err == how.error
    assert ended_by(SystemExit()).description == "SystemExit"


def test_a_process_that_has_ended_is_one_line_and_the_node_may_start_again(capsys):
    error = ProcessEnded("environment 'CartPole-v1' under Python 3.13.0 (py313) crashes its worker (SIGKILL)")
    assert ended_by(error) == Exit(False, str(error), str(error), final=False, place="")
    assert capsys.readouterr().err == ""
