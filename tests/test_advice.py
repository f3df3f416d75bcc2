"""What messages propose, found in the sources: options, commands, settings, extras and pages are tried, one by one.

Names that messages suggest all go through `errors.did_you_mean`.  What a message makes of the user's input is tried by
other tests: names of environments in `environments/test_suggested_names.py`, other libraries' names in
`messages/test_foreign_names.py`, the commands after a run in `launch/launchers/test_next_commands.py`, limits of
episodes in `environments/test_episode_limits.py`.
"""

import ast
import contextlib
import functools
import importlib
import inspect
import io
import pathlib
import re
from typing import NamedTuple

import pytest
from code_size import PACKAGES
from parsed_modules import nodes_of

from callboard.agents.agent_names import AGENTS
from callboard.cli.command import _SUBCOMMANDS
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.option_parsing import converted_text
from callboard.launch.experiments.settings import recipe_names, setting_fields
from callboard.launch.launchers.registry import LAUNCHERS, launcher_class, launcher_options
from callboard.launch.run import run
from callboard.launch.trained.saved_runs import evaluate

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = [*sorted(ROOT.glob("*.py")), *(path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")))]
GAP = "‹›"
"""Stands for what a message inserts."""
OPTION = re.compile(rf"(?<![\w'`-])--([a-z][\w.{GAP}-]*)(?:[ =]([^\s,;:)`]+))?")
COMMAND = re.compile(r"callboard ([a-z]+)\b([^;,`]*)")
SETTING = re.compile(
    r"\b(?:set|leave|raise|lower|increase|reduce) ([a-z][\w.]*_\w+|agent\.[\w.]+)(?: (?:to|at) ([\w.]+))?"
)
EXTRA = re.compile(r"callboard\[([\w-]+)\]")
PAGE = re.compile(r"\bdocs/[\w/]+\.md")
MODULE = re.compile(
    r"(?<![\w/.])((?:agents|cli|files|launch|messages|networks|replay|environments|runtime|settings|studies)/[\w/]+\.py)"
)
WORDS = {"or", "and", "out", "of", "if", "with", "is", "are", "for", "on", "must", "needs", "in", "takes", "shows"}
WORDS |= {"such", "change", "changes", "sets", "removes", "at", "the"}
"""Words of a sentence after an option, which are not its value."""
OF_OTHERS = {"native", "pid", "head", "python", "version", "working-dir", "exclude", "rsync-path"}
OF_OTHERS |= {"xla_gpu_cuda_data_dir", "job-name", "nodes", "ntasks-per-node", "cpus-per-task", "gpus-per-node"}
OF_OTHERS |= {"time", "signal", "kill-on-bad-exit", "no-kill"}
"""Options of `py-spy`, `ray`, `uv`, `rsync`, `sbatch` and XLA, and one of the command without a subcommand."""
NO_SETTINGS = {"option_prefix"}
"""What a message calls by a name with underscores, besides settings: a field of a launcher's class."""


class Text(NamedTuple):
    """A text in the sources that is no docstring."""

    place: str
    text: str


def texts_of(path):
    nodes = [node for node in nodes_of(path) if isinstance(node, ast.Expr | ast.JoinedStr | ast.Constant)]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
            text = node.value
        else:
            continue
        yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", text)


@functools.cache
def texts():
    return [text for path in SOURCES for text in texts_of(path) if " " in text.text]


@functools.cache
def settings():
    """All settings of runs with any agent and launcher, and what may be varied, by flat name."""
    found = {}
    for agent in AGENTS:
        found |= setting_fields(agent)
    for launcher in LAUNCHERS:
        found |= launcher_options(launcher_class(launcher))
    return found


@functools.cache
def help_of(command):
    out = io.StringIO()
    arguments = ["ppo", "--help"] if command in ("train", "graph") else ["--help"]
    module = importlib.import_module(f"callboard.cli.{command}")
    for before in ([], ["check"], ["run"], ["sbatch"]) if command == "cluster" else ([],):
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            module.main([*before, *arguments])
    return out.getvalue()


def has_option(command, option):
    """Whether a command takes an option, or another command if none is named."""
    commands = _SUBCOMMANDS if command is None else [command]
    if any(re.search(rf"--{re.escape(option)}\b(?![\w-])", help_of(name)) for name in commands):
        return True
    if command == "cluster":
        return has_option("train", option)
    takes_settings = command is None or command in ("train", "graph", "study", "tune")
    key = option.replace("-", "_").removeprefix("no_")
    return takes_settings and any(key == name or key.startswith(f"{name}.") for name in settings())


def check_value(option, value):
    """Raises `CallboardError` or `AssertionError` if an option of `callboard train` does not take a value."""
    key = option.replace("-", "_")
    if key == "launcher":
        assert value in LAUNCHERS, value
    elif key == "recipe":
        assert value in recipe_names() or value == "FILE"
    elif key in settings():
        converted_text(key, value.strip("'"), settings()[key].hint)


def proposals(pattern):
    return [(place, *found.groups()) for place, text in texts() for found in pattern.finditer(text)]


def test_names_are_suggested_in_one_way():
    elsewhere = [place for place, text in texts() if "did you mean" in text]
    assert {place.partition(":")[0] for place in elsewhere} <= {"errors.py", "messages/foreign_names.py"}


def test_options_that_messages_name_exist_and_take_the_value():
    wrong = []
    for place, option, value in proposals(OPTION):
        option = option.rstrip(".-")
        if GAP[0] in option or option in OF_OTHERS or option.isupper() or option.startswith("no-NAME"):
            continue
        if not has_option(None, option):
            wrong.append(f"{place}: --{option}")
        elif value and value not in WORDS and GAP[0] not in value and not value.isupper() and "..." not in value:
            try:
                check_value(option, value)
            except (CallboardError, AssertionError) as error:
                wrong.append(f"{place}: --{option} {value}: {error}")
    assert not wrong, "\n".join(wrong)


def test_alternatives_to_a_launcher_exist():
    found = proposals(re.compile(r"--launcher ([a-z]+)(?: or ([a-z]+))?"))
    assert {name for _, *names in found for name in names if name} - WORDS <= set(LAUNCHERS)


def test_arguments_that_messages_name_exist_and_take_the_value():
    calls = [
        [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "argument"
    ]
    assert len(calls) > 5
    in_python = {name for call in (run, evaluate) for name in inspect.signature(call).parameters}
    in_python |= set(Experiment.__dataclass_fields__)
    for name, *value in calls:
        assert has_option(None, name.replace("_", "-")) and name in in_python
        assert name != "launcher" or value[0] in LAUNCHERS


def test_commands_that_messages_name_exist_and_have_their_options():
    wrong, tried = [], 0
    for place, command, rest in proposals(COMMAND):
        if command in ("is", "not", "command"):
            continue
        tried += 1
        if command not in _SUBCOMMANDS:
            wrong.append(f"{place}: callboard {command}")
            continue
        for option, _ in OPTION.findall(rest):
            if GAP[0] not in option and not has_option(command, option.rstrip(".")):
                wrong.append(f"{place}: callboard {command} --{option}")
    assert not wrong, "\n".join(wrong)
    assert tried > 20


def test_settings_that_messages_name_exist_and_take_the_value():
    last_parts = {name.rpartition(".")[2] for name in settings()}
    wrong, tried = [], 0
    for place, name, value in proposals(SETTING):
        name = name.rstrip(".")
        if name in NO_SETTINGS:
            continue
        tried += 1
        is_group = any(known.startswith(f"{name}.") for known in settings())
        if not is_group and name not in settings() and name not in last_parts:
            wrong.append(f"{place}: {name}")
        elif value and value not in WORDS and name in settings():
            with contextlib.suppress(CallboardError):
                converted_text(name, value, settings()[name].hint)
                continue
            wrong.append(f"{place}: {name} {value}")
    assert not wrong, "\n".join(wrong)
    assert tried > 20


@pytest.mark.slow
def test_extras_that_messages_install_exist():
    known = set(re.findall(r"^([\w-]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    found = [(text.place, extra) for path in SOURCES for text in texts_of(path) for extra in EXTRA.findall(text.text)]
    assert found and [one for one in found if one[1] not in known] == []
    # Those whose extra is an argument.
    for path in SOURCES:
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require_package":
                extra = node.args[1]
                assert not isinstance(extra, ast.Constant) or extra.value in known, path


def test_messages_name_no_file_that_an_installation_does_not_have():
    assert proposals(re.compile(f"({PAGE.pattern})")) == []
    for place, module in proposals(MODULE):
        assert (ROOT / module).exists(), place


@pytest.mark.parametrize("command", _SUBCOMMANDS)
def test_every_command_has_a_help(command):
    assert help_of(command)
