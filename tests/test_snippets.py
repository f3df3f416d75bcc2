"""The commands and the Python code of the README and the pages: all are accepted, and those of the guides run."""

import importlib
import os
import re
import subprocess
import sys
from typing import NamedTuple

import pytest
from documented_commands import (
    BLOCK,
    EXECUTED_PAGES,
    PAGES,
    ROOT,
    SHELL,
    DocumentedCommand,
    command_lines,
    documented_commands,
)

from callboard.benchmarks.command import _parser as benchmark_parser
from callboard.environments.factory import check
from callboard.settings.named_objects import unpickle_with_program

STOPS = (
    "cli.train.environments.check",
    "cli.train.run_in_private_network",
    "cli.graph.environments.check",
    "tuning.search_definition.Tuning.check",
    "cli.evaluate.read_run",
    "cli.export.read_settings",
    "cli.serve.read_settings",
    "cli.top.AttachedRun",
    "cli.check.EnvironmentCheck",
    "cli.cluster.check_reach",
    "comparison.compared_runs.read_results",
    "cli.doctor.examine",
    "datasets.dataset_info.open_data",
    "datasets.dataset_video.open_data",
)
"""Functions at which a subcommand has checked what the user wrote, and has started nothing."""


class Snippet(NamedTuple):
    """A block of a page."""

    page: str
    number: int
    language: str
    text: str

    def __str__(self):
        return f"{self.page}:{self.number}"

    def commands(self, name):
        """The words of the block's commands that call a program."""
        lines = command_lines(self.text)
        return [DocumentedCommand(self.page, line, True).words[1:] for line in lines if line.startswith(f"{name} ")]


def snippets(page):
    name = str(page.relative_to(ROOT))
    return [Snippet(name, number, *block) for number, block in enumerate(BLOCK.findall(page.read_text()), 1)]


SNIPPETS = [snippet for page in PAGES for snippet in snippets(page)]
COMMANDS = [
    # A search is checked by making experiments, which imports TensorFlow.
    pytest.param(
        command.page,
        command.words[1:],
        id=str(command),
        marks=[pytest.mark.slow] if command.words[1] == "tune" else [],
    )
    for command in documented_commands()
    if command.words[0] == "callboard"
    and command.is_whole
    and command.page.endswith(".md")
    # Another library's name, on purpose; what needs a bucket, or a search that is there; what is no subcommand; and
    # what other tests run (see documented_commands.yaml).
    and not re.search(r" --gamma |s3:|tune --(plot|resume|metric NAME)|--version|cluster run|zoo ", command.text)
]
BENCHMARKS = [command for snippet in SNIPPETS for command in snippet.commands("callboard-bench")]
PYTHON = [snippet for snippet in SNIPPETS if snippet.language == "python"]


def write_files(page, folder):
    """Writes the blocks that name a file in their first line, for the commands of the page to use them."""
    (folder / "examples").symlink_to(ROOT / "examples")
    for snippet in SNIPPETS:
        named = re.match(r"# (\w+\.(?:py|yaml))\n", snippet.text)
        if named and snippet.page in (page, "docs/hosts.md"):
            (folder / named[1]).write_text(snippet.text)


def write_settings(command, folder):
    """Writes the settings of the run or search that a command continues."""
    recipe = (ROOT / "launch" / "recipes" / "impala-cartpole.yaml").read_text()
    for name in ("runs/x/experiment.yaml", "runs/first/experiment.yaml", "runs/rates/best.yaml"):
        if "--resume" in command or name in command:
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_text(recipe)
    if "--join-token" in command:
        cluster = folder / "cluster.yaml"
        cluster.write_text(cluster.read_text().replace("# guests:", "guests:"))
        (folder / "token").write_text("0123456789abcdef" * 2)
        (folder / "token").chmod(0o600)
    if "--resume" in command and "--seeds" in command:
        (folder / "runs" / "x" / "experiment.yaml").rename(folder / "runs" / "x" / "settings.yaml")
        (folder / "runs" / "x" / "progress.json").write_text('{"seed-1": null}')


class Accepted(Exception):
    """The command would start now."""


class ImportCheck:
    """The first step of a check of an environment, in this process: to import what the page defines."""

    def __init__(self, name, trial, *arguments):
        self.trial = trial

    def wait_until_imported(self):
        trial = unpickle_with_program(self.trial)
        check(trial.env, trial.options)

    def wait(self):
        pass

    def close(self):
        pass


@pytest.fixture
def stopped_before_the_start(monkeypatch, tmp_path):
    """Ends every subcommand once its arguments have been checked."""

    def stop(*arguments, **options):
        raise Accepted

    for name in STOPS:
        monkeypatch.setattr(f"callboard.launch.{name}", stop)
    monkeypatch.setattr("callboard.launch.experiments.environment_check.EnvironmentCheck", ImportCheck)
    # What has a window is accepted where there is a display.
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("local_launchers", "hosts.launcher"):
        monkeypatch.setattr(f"callboard.launch.launchers.{name}.start_forkserver", lambda: None)
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{tmp_path}/"):
            del sys.modules[name]


@pytest.mark.parametrize("page, command", COMMANDS)
def test_commands_are_accepted(page, command, tmp_path, monkeypatch, stopped_before_the_start):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_files(page, tmp_path)
    write_settings(command, tmp_path)
    subcommand = importlib.import_module(f"callboard.cli.{command[0]}")
    try:
        assert subcommand.main(command[1:]) == 0
    except Accepted:
        pass


@pytest.mark.parametrize("command", BENCHMARKS, ids=" ".join)
def test_benchmark_commands_are_accepted(command):
    benchmark_parser().parse_args(command)


@pytest.mark.parametrize("snippet", PYTHON, ids=str)
def test_python_is_valid(snippet):
    compile(snippet.text, str(snippet), "exec")


def call(arguments, folder):
    """Runs Python in a folder, with this package."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"SDL_VIDEODRIVER": "dummy", **os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    EXECUTED_PAGES,
)
def test_pages_run_from_top_to_bottom(page, tmp_path):
    write_files(page, tmp_path)
    steps = 3_000
    for snippet in (snippet for snippet in SNIPPETS if snippet.page == page):
        if snippet.language == "python":
            call(["-c", snippet.text], tmp_path)
        for command in snippet.commands("callboard") if snippet.language in SHELL else ():
            if command[0] in ("tune", "cluster", "top"):
                continue  # They need a cluster, or a run that is running; their own tests start one.
            limits = []
            if command[0] == "train" and "--help" not in command:
                steps += 3_000
                limits = ["--max-steps", str(steps)]
            call(["-m", "callboard", *command, *limits], tmp_path)
    # What the node of docs/guides/own_node.md records, once for each way to run it.
    records = [path.read_text() for path in tmp_path.glob("runs/*/weight_watch.txt")]
    assert all(records) and len(records) == (2 if page == "docs/guides/own_node.md" else 0)


@pytest.mark.slow
@pytest.mark.parametrize("form, package, path", [("saved-model", "tensorflow", "/1"), ("onnx", "onnxruntime", "")])
def test_an_exported_policy_plays_as_the_page_shows(form, package, path, tmp_path):
    pytest.importorskip("tf2onnx" if form == "onnx" else package)
    train = ["train", "impala", "--env", "CartPole-v1", "--max-steps", "3000", "--evaluator", "false"]
    call(["-m", "callboard", *train, "--launcher", "inline", "--run-dir", "run"], tmp_path)
    call(["-m", "callboard", "export", "run@latest", f"models/cartpole{path}", "--format", form], tmp_path)
    (snippet,) = (
        snippet for snippet in PYTHON if snippet.page == "docs/export.md" and f"import {package}" in snippet.text
    )
    environment = "import gymnasium\nenv = gymnasium.make('CartPole-v1')\n"
    assert "1\n" in call(["-c", f"{environment}{snippet.text}print(int(done))"], tmp_path)


@pytest.mark.slow
def test_the_loop_on_ray_runs(tmp_path):
    (snippet,) = (snippet for snippet in PYTHON if snippet.page == "docs/ray_loop.md")
    call(["-c", snippet.text], tmp_path)


def own_loop():
    (snippet,) = (snippet for snippet in PYTHON if snippet.page == "docs/guides/own_loop.md")
    return snippet.text


def test_the_loop_of_ones_own_is_short_and_its_page_lists_the_modules():
    modules = re.findall(r"^from (callboard[.\w]*) import", own_loop(), re.MULTILINE)
    page = (ROOT / "docs/guides/own_loop.md").read_text()
    assert len(own_loop().splitlines()) <= 80
    assert len(re.findall(r"^\| `callboard\.", page, re.MULTILINE)) == 5
    missing = [name for name in modules if name != "callboard" and not re.search(rf"`{name}`|`{name}\.", page)]
    of_packages = [name for name in missing if f"`{'.'.join(name.split('.')[:2])}`" not in page]
    assert not of_packages


@pytest.mark.slow
def test_the_loop_of_ones_own_learns(tmp_path):
    printed = call(["-c", own_loop()], tmp_path)
    first, last = map(int, re.search(r"first 20 episodes (\d+), of the last 20 (\d+)", printed).groups())
    assert last > 2 * first
