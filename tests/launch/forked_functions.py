"""What forks of a forkserver do in tests."""

import os
import signal
import subprocess
import sys
import time

from callboard.launch.launchers.node_processes.forkserver import ForkServer
from callboard.launch.processes.stop_signals import pass_on_signals

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


def answer(word, pipe):
    """Sends back what it was given, and where it runs; then waits for its exit code."""
    pipe.send((word, os.getpid(), os.getsid(0), os.getcwd(), list(sys.path)))
    os._exit(pipe.recv())


def start_others(pipe):
    """Starts processes as environments do: one that is slow to end, one that has a session of its own, and a fork."""
    others = []
    for own_session in (False, True):
        other = subprocess.Popen(
            [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, start_new_session=own_session
        )
        other.stdout.readline()
        others.append(other.pid)
    fork = os.fork()
    if fork == 0:
        time.sleep(600)
    pipe.send([*others, fork])
    pipe.recv()
    os._exit(0)


def report_signals(pipe):
    """Reports the stop signals that it gets, and which of them are ignored by what it starts and by what it forks."""
    pass_on_signals(pipe.send)
    ignored = "import signal; print([signal.getsignal(number) == signal.SIG_IGN for number in (1, 2, 15)])"
    started = subprocess.run([sys.executable, "-c", ignored], capture_output=True, text=True, check=True).stdout
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, str([signal.getsignal(number) == signal.SIG_IGN for number in (1, 2, 15)]).encode())
        os._exit(0)
    pipe.send((started.strip(), os.read(reader, 100).decode()))
    while True:
        time.sleep(1)


def start_others_and_wait():
    """Is the starter of a forkserver, until it is killed."""
    server = ForkServer(preload="json")
    process = server.fork(start_others)
    print(process.pid, *process.pipe.recv(), server._process.pid, flush=True)
    time.sleep(600)


def prepare_for_a_node(log, temporary, pipe):
    """Prepares its process for a node with two threads of TensorFlow, prints, and reports what a node finds."""
    import tempfile

    import tensorflow as tf

    from callboard.launch.launchers.node_processes.prepared_process import prepare_process
    from callboard.launch.nodes.node import NodeRules

    prepare_process("actor/0", NodeRules(stop_order=1, tensorflow_threads=2), log, temporary)
    print("printed by the node")
    threading = tf.config.threading
    threads = (threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads())
    pipe.send((tempfile.gettempdir(), os.environ["TMPDIR"], os.environ["CUDA_VISIBLE_DEVICES"], threads))
    os._exit(0)
