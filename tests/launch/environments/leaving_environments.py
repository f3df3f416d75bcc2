"""Environments that leave processes behind, or the interpreter."""

import multiprocessing
import subprocess
import sys
import time

import gymnasium
import numpy as np


class LeavesProcesses(gymnasium.Env):
    """Starts processes and does not end them: one that it waits for at its own end, and two in sessions of their own.

    Args:
      started: a file to which it appends the processes' ids.
      orphan: whether it also starts one whose parent ends at once.
      hangs: whether the first step does not return.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    _hangs = False

    def __init__(self, started="/dev/null", orphan=False, hangs=False):
        self._hangs = hangs
        forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        forked.start()
        other = subprocess.Popen(["sleep", "600"], start_new_session=True)
        with open(started, "a") as file:
            file.write(f"{forked.pid}\n{other.pid}\n")
        if orphan:
            subprocess.run(["sh", "-c", f"sleep 600 >&- & echo $! >> {started}"], start_new_session=True)

    def reset(self, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        if self._hangs:
            time.sleep(600)
        return np.zeros(4, np.float32), 0.0, False, False, {}


class LeavesPython(LeavesProcesses):
    """Ends the process in the middle of an episode, as some simulators do, and after the trial before a run."""

    def __init__(self):
        self._steps = 0

    def step(self, action):
        self._steps += 1
        if self._steps > 20:
            self.leave()
        return super().step(action)

    def leave(self):
        sys.exit(0)


class LosesCamera(LeavesPython):
    """Fails with an error in brackets instead."""

    def leave(self):
        raise OSError("cannot open camera [/dev/video0]")
