"""The command: which module a subcommand calls, one line for every mistake, and exit codes."""

import importlib
import os
import shlex
import signal
import subprocess
import sys

import pytest

import callboard
from callboard.cli import command
from callboard.cli.command import main
from callboard.errors import CallboardError, ProcessEnded
from callboard.launch.processes.stop_signals import Stopped


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["evaluate", "nowhere"], "there is no run in nowhere"),
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["resume", "runs/x"], "did you mean 'train'? (callboard train --resume --run-dir RUN)"),
        (["play"], "unknown command 'play'; did you mean 'evaluate'?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("callboard: ") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["help"]])
def test_without_a_subcommand_all_of_them_are_listed(arguments, capsys):
    assert main(arguments) == 0
    text = capsys.readouterr().out
    for name in command._SUBCOMMANDS:
        assert f"\n  {name} " in text
        assert callable(importlib.import_module(f"callboard.cli.{name}").main)


@pytest.mark.parametrize(
    "error, code",
    [
        (Stopped(signal.SIGTERM), 143),
        (KeyboardInterrupt(), 130),
        (CallboardError("two\nlines \x1b[2J"), 2),
        (ProcessEnded("two\nlines \x1b[2J"), 1),
    ],
)
def test_the_exit_code_says_how_a_subcommand_ended(error, code, monkeypatch, capsys):
    def end(arguments):
        raise error

    monkeypatch.setattr("callboard.cli.list.main", end)
    assert main(["list", "agents"]) == code
    expected = "callboard: two\\nlines \\x1b[2J\n" if code in (1, 2) else ""
    assert capsys.readouterr().err == expected


def test_code_of_the_user_that_ends_the_program_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "leaving_agent.py").write_text(
        "import dataclasses, sys\n"
        "from callboard.agents.impala import Impala\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Leaving(Impala):\n"
        "    def check(self, layout):\n"
        "        sys.exit(0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["graph", "leaving_agent:Leaving", "--env", "CartPole-v1"]) == 2
    line = "callboard: leaving_agent.py, line 6, in check, calls sys.exit(0); let it raise an exception instead\n"
    assert capsys.readouterr().err == line


def test_help_and_mistakes_in_options_end_as_they_do_elsewhere(capsys):
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--help"])
    assert left.value.code == 0


def test_a_crash_in_native_code_prints_where_it_was():
    script = "import os\nfrom callboard.cli import command\ncommand.main = os.abort\ncommand.run_command()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in done.stderr and 'command.py", line' in done.stderr


def test_letters_that_the_terminal_does_not_have_are_replaced():
    code = "from callboard.cli import command\ncommand.main = lambda: print('5.0 ± 0.1') or 0\ncommand.run_command()"
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "5.0 ? 0.1\n", "")


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"callboard {callboard.__version__}\n"


@pytest.mark.slow("daily")
def test_a_reader_that_has_enough_is_no_error():
    with subprocess.Popen(
        [sys.executable, "-m", "callboard", "train", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_an_error_for_want_of_memory_names_the_limits_in_every_command():
    code = """
from callboard.cli import command

def fail():
    raise MemoryError("Unable to allocate 8 TiB")

command.main = fail
command.run_command()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "Unable to allocate 8 TiB" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("This process got no more memory or threads: look at `ulimit -v`")


def test_a_signal_of_which_an_import_makes_another_error_ends_the_command_without_a_traceback():
    code = """
import signal
from callboard.cli import command

def import_what_turns_errors_into_its_own():
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException as error:
        raise ImportError("it does not load") from error

command.main = import_what_turns_errors_into_its_own
command.run_command()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (143, "")


@pytest.mark.parametrize("command", ["study", "top", "zoo list --from", "dataset info", "compare", "ls"])
def test_a_path_that_is_too_long_is_one_line(command, capsys):
    assert main([*command.split(), "x" * 300]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def run_in_shell(redirection):
    words = f"{shlex.quote(sys.executable)} -m callboard list agents {redirection}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_command_needs_no_standard_streams(redirection):
    code, text, error = run_in_shell(redirection)
    assert code == 0 and not error and text.startswith("" if ">&-" == redirection[:3] else "a2c\n")


def test_a_full_output_is_one_line():
    code, _, error = run_in_shell("> /dev/full")
    assert (code, error) == (1, "callboard: no more can be written: [Errno 28] No space left on device\n")
