"""Every command of the README, the pages and the examples is run by a test, or on a list with the reason.

A new command makes `test_every_command_is_run_or_on_the_list` fail until it is run: the pages of `EXECUTED_PAGES` from
top to bottom by `test_snippets.py`, what trains elsewhere by `test_training_begins` for some seconds, what reads runs
by `test_runs_are_read`, and everything else by the test that `documented_commands.yaml` names; what no test can run is
checked by one, or is there with the reason.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from documented_commands import EXECUTED_PAGES, ROOT, documented_commands

from callboard.benchmarks.command import _parser as benchmark_parser
from callboard.cli.command import _SUBCOMMANDS

TABLE = yaml.safe_load((ROOT / "tests" / "documented_commands.yaml").read_text())
COMMANDS = documented_commands()
WHOLE = [command for command in COMMANDS if command.is_whole]


def run_by(command):
    """Returns the test that runs or checks a command; None if there is none, or if it is listed with a reason."""
    if command.is_in_block and command.page in EXECUTED_PAGES and command.words[0] == "callboard":
        if command.words[1] not in ("tune", "cluster", "top"):
            return "test_snippets.test_pages_run_from_top_to_bottom"
    if row_of(command, "listed"):
        return None
    return row_of(command, "checked_by") or row_of(command, "run_by")


def row_of(command, part):
    """Returns the key of the first row of a part of the table that matches a command; None if there is none."""
    rows = TABLE[part].items()
    return next((key for key, patterns in rows if any(re.fullmatch(one, command.text) for one in patterns)), None)


def of(test):
    """Returns the commands that a test of this module runs, each once."""
    name = f"test_documented_commands.{test}"
    found = dict.fromkeys(tuple(command.words) for command in WHOLE if run_by(command) == name)
    return [pytest.param(list(words), id=" ".join(words)[:90]) for words in found]


def test_every_command_is_run_or_on_the_list():
    missing = [str(command) for command in WHOLE if run_by(command) is None and row_of(command, "listed") is None]
    assert not missing, "no test runs these commands:\n" + "\n".join(missing)


def test_the_lists_name_commands_and_tests_that_exist():
    for pattern in (pattern for part in TABLE.values() for patterns in part.values() for pattern in patterns):
        assert any(re.fullmatch(pattern, command.text) for command in WHOLE), pattern
    for test in (*TABLE["run_by"], *TABLE["checked_by"]):
        module, _, name = test.partition(".")
        sources = [path.read_text() for path in (ROOT / "tests").rglob(f"{module}.py")]
        assert any(f"def {name}(" in source for source in sources), test


def test_commands_that_sentences_name_exist():
    for command in COMMANDS:
        if not command.is_whole and command.words[0] == "callboard":
            assert command.words[1] in _SUBCOMMANDS, command


def test_targets_exist():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {command.words[1] for command in WHOLE if command.words[0] == "make"} <= set(targets)


def test_extras_that_pages_install_exist():
    known = set(re.findall(r"^([\w-]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    found = {extra for command in COMMANDS for extra in re.findall(r"callboard\[([\w,-]+)\]", command.text)}
    assert found and found <= known


def test_tests_that_pages_name_exist():
    for command in WHOLE:
        if command.words[0] == "pytest":
            assert (ROOT / command.words[-1]).exists()


def test_benchmarks_that_sentences_name_are_accepted():
    for command in WHOLE:
        if command.words[0] == "callboard-bench" and not command.is_in_block:
            benchmark_parser().parse_args(command.words[1:])


def call(words, folder, **environment):
    """Runs a command in a folder, from which the examples are found as in the repository."""
    program = {"callboard": ["-m", "callboard"], "python": []}[words[0]]
    paths = filter(None, [os.environ.get("PYTHONPATH"), str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *program, *words[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = (ROOT / "docs" / "study.md").read_text()
    (study,) = re.findall(r"^# actors.yaml\n.*?(?=^```)", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "actors.yaml").write_text(study)
    return tmp_path


FEW_SECONDS = ["--max-seconds", "10", "--evaluation-episodes", "1", "--evaluation-envs", "1"]
"""A recipe's return to stop at needs evaluations; these cost little."""


@pytest.mark.slow
@pytest.mark.parametrize("words", of("test_training_begins"))
def test_training_begins(words, folder):
    if "--dataset" in words:
        recorded = pathlib.Path(words[words.index("--dataset") + 1])
        # Few environments, or none would end an episode of 200 steps; few learner steps, which nothing depends on.
        pendulum = ["Pendulum-v1", "--agent.replay.min-size", "2800", "--actors", "1", "--envs-per-actor", "4"]
        of_agent = {"ppo": ["CartPole-v1"], "td3": pendulum, "sac": pendulum}[recorded.name]
        options = ["--max-steps", "3000", "--record-episodes", "true", "--run-dir", str(recorded)]
        call(["callboard", "train", recorded.name, "--env", *of_agent, *options, "--launcher", "threads"], folder)
    if "sac-lunarlander" in words:
        pytest.importorskip("Box2D", reason="Box2D is not installed: pip install 'callboard[box2d]'")
    if "ppo-deep-sea" in words:
        pytest.importorskip("bsuite", reason="bsuite is not installed: pip install 'callboard[bsuite]'")
    call([*words, *FEW_SECONDS] if "--help" not in words else words, folder, SDL_VIDEODRIVER="dummy")


@pytest.mark.slow
@pytest.mark.parametrize("words", of("test_what_starts_nothing_runs"))
def test_what_starts_nothing_runs(words, folder):
    assert call(words, folder)


@pytest.fixture(scope="module")
def stored_run(tmp_path_factory):
    """A short run with evaluations and checkpoints."""
    folder = tmp_path_factory.mktemp("stored")
    limits = ["--max-steps", "4000", "--evaluate-every", "2000"]
    call(["callboard", "train", "ppo", "--env", "CartPole-v1", *limits, "--run-dir", "run"], folder)
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("words", of("test_runs_are_read"))
def test_runs_are_read(words, folder, stored_run):
    for name in ("x", "a", "b", "suites/classic"):
        shutil.copytree(stored_run, folder / "runs" / name)
    if "--epsilon" in words:
        shutil.rmtree(folder / "runs" / "x")
        limits = ["--max-steps", "6000", "--evaluate-every", "3000", "--run-dir", "runs/x"]
        call(["callboard", "train", "apex", "--env", "CartPole-v1", *limits], folder)
    step = max(int(path.name) for path in (folder / "runs" / "x" / "checkpoints").glob("[0-9]*"))
    words = [word.replace("@12000", f"@{step}") for word in words]
    call(words, folder, SDL_VIDEODRIVER="dummy", DISPLAY=":0")


@pytest.mark.slow
def test_what_is_timed_runs(tmp_path):
    call(["python", "-c", "import tensorflow"], tmp_path)


@pytest.mark.slow
def test_a_trial_trains_in_pieces(tmp_path):
    (words,) = (command.words for command in WHOLE if "phases:train" in command.words)
    page = (ROOT / "docs" / "tune.md").read_text()
    (code,) = re.findall(r"^# phases.py\n.*?(?=^```)", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "phases.py").write_text(code)
    assert "2 of 2 trials: 2 done" in call([*words, "--ray-address", "local"], tmp_path)
