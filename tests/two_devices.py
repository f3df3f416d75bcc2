"""Calls functions where TensorFlow has two devices of the processor, which are set before it starts.

Run as a program it reads calls `[path, name, arguments]`, a line of JSON each, and answers `[result, error]`.
"""

import contextlib
import importlib.util
import json
import pathlib
import subprocess
import sys
import traceback


class TwoDevices:
    """A process for such calls; it is started by the first of them, and runs until `close`."""

    def __init__(self):
        self._process = None

    def __call__(self, path, name, *arguments):
        """Calls a function of the module in a file; arguments and result are of JSON's types."""
        if self._process is None:
            program = [sys.executable, __file__]
            self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process.stdin.write(json.dumps([str(path), name, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process with two devices has ended"
        result, error = json.loads(line)
        assert error is None, error
        return result

    def close(self):
        if self._process is not None:
            self._process.communicate()


def call(path, name, arguments):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)(*arguments)


def main():
    import tensorflow as tf

    (device,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    for line in sys.stdin:
        try:
            # What is printed is no answer.
            with contextlib.redirect_stdout(sys.stderr):
                answer = [call(*json.loads(line)), None]
        except Exception:
            answer = [None, traceback.format_exc()]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
