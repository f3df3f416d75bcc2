"""Interpreters that `env_python` names."""

import glob
import os
import re
import shutil
import subprocess
import sys

import psutil
import pytest
from played_batches import played

from callboard import Experiment, environments
from callboard.environments.workers import interpreters
from callboard.environments.workers.interpreters import (
    Interpreter,
    absolute_interpreter,
    find_interpreter,
    worker_command,
)
from callboard.errors import CallboardError
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.runtime.deadlines import wait_until

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def test_the_interpreter_itself_and_its_virtual_environment_are_found():
    same = find_interpreter("same")
    assert same.executable == sys.executable and same.version == sys.version_info[:3] and "gymnasium" in same.packages
    folder = find_interpreter(sys.prefix)
    assert os.path.samefile(folder.executable, sys.executable) and folder.packages == same.packages


@pytest.mark.parametrize(
    "setting, message",
    [
        ("/nowhere/python", "^env_python: there is no '/nowhere/python': name a Python interpreter"),
        ("/usr", "^env_python: the folder '/usr' has no bin/python|^env_python: "),
        ("/bin/ls", "^env_python: '/bin/ls' is no Python 3 that starts: /bin/ls: "),
        ("/bin/true", "^env_python: '/bin/true' is no Python 3 that starts: it runs a program, and prints ''"),
        ("x" * 5000, "^env_python: there is no 'x{50,200}: name a Python interpreter"),
        ("/bin/false", "^env_python: '/bin/false' is no Python 3 that starts: it ends with exit code 1$"),
        ("uv:", "^env_python: name a package after 'uv:'"),
        ("uv:gymnasium, --index-url=http://127.0.0.1:1", "^env_python: name a package after 'uv:'"),
        ("/dev/null", "^env_python: '/dev/null' is no file: name a Python interpreter"),
        ("", "^env_python must be the path of a Python interpreter, not ''$"),
        (" ", "^env_python must be the path of a Python interpreter"),
        (3, "^env_python must be the path of a Python interpreter"),
    ],
)
def test_what_is_no_interpreter_is_refused(setting, message):
    with pytest.raises(CallboardError, match=message):
        find_interpreter(setting)


def test_a_broken_virtual_environment_is_named(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/no/such/python")
    for setting in (tmp_path, tmp_path / "bin" / "python"):
        with pytest.raises(
            CallboardError, match="^env_python: '.*/bin/python' is a link to '/no/such/python', which does"
        ):
            find_interpreter(str(setting))


def test_a_numpy_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("raise ImportError('no multiarray')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(
        CallboardError, match=r"^env_python: NumPy of Python 3.* cannot be imported \(no multiarray\): "
    ):
        find_interpreter(sys.executable)


@pytest.mark.parametrize("setting", ["", " "])
def test_an_empty_setting_is_refused_wherever_it_is_given(setting):
    refused = pytest.raises(
        CallboardError, match=f"^env_python must be the path of a Python interpreter, not '{setting}'"
    )
    with refused:
        environments.make("CartPole-v1", 1, [1], {"env_python": setting})
    with refused:
        environments.check("CartPole-v1", {"env_python": setting})
    for own in ({"env_python": setting}, ["--env-python", setting]):
        values, options = (own, []) if isinstance(own, dict) else ({}, own)
        experiment = parse_experiment("ppo", {"env": "CartPole-v1", **values}, options)
        with refused:
            check_experiment(experiment)


def _script(path, version, packages):
    path.write_text(f"#!/bin/sh\necho '[{version}, false, {packages}]'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "commands, reason",
    [
        ("printf '\\374\\n'", "it runs a program, and prints '\N{REPLACEMENT CHARACTER}"),
        ("printf '\\374\\n' >&2; exit 1", "\N{REPLACEMENT CHARACTER}$"),
        ("kill -9 $$", "it is ended by SIGKILL$"),
        ("sleep 100 & echo $! > started; wait", "it has not ended after 1 s$"),
    ],
)
def test_programs_that_are_no_interpreters_are_refused_and_ended(commands, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(interpreters, "_PROBE_SECONDS", 1.0)
    script = tmp_path / "program"
    script.write_text(f"#!/bin/sh\n{commands}\n")
    script.chmod(0o755)
    with pytest.raises(CallboardError, match=f"is no Python 3 that starts: {reason}"):
        find_interpreter(str(script))
    if os.path.exists("started"):
        pid = int((tmp_path / "started").read_text())
        assert wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", 10)


def test_old_interpreters_and_missing_packages_are_named_with_what_helps(tmp_path):
    old = _script(tmp_path / "old", [3, 8, 2], '{"numpy": "1"}')
    with pytest.raises(CallboardError, match=r"Python 3\.8\.2 \(.*old\) is too old: workers need Python 3.9 or newer$"):
        find_interpreter(old)
    bare = _script(tmp_path / "bare", [3, 13, 0], '{"numpy": null}')
    with pytest.raises(CallboardError, match=rf"has no NumPy: uv pip install --python {bare} 'numpy'$"):
        find_interpreter(bare)


def test_the_program_that_a_recipe_names_is_started(tmp_path):
    script = tmp_path / "program"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    script.chmod(0o755)
    (tmp_path / "recipe.yaml").write_text(f"agent: ppo\nenv: CartPole-v1\nenv_python: {script}\n")
    with pytest.raises(CallboardError, match="^env_python: .* is no Python 3 that starts"):
        check_experiment(parse_experiment(None, read_recipe(str(tmp_path / "recipe.yaml")), []))
    assert (tmp_path / "started").exists()


def test_interpreters_keep_the_variables_of_the_user_and_do_not_search_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemError('executed')")
    (tmp_path / "library").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    other = Interpreter(sys.executable, sys.executable, (3, 10), True, {})
    code = f"import json; assert {str(tmp_path / 'library')!r} in sys.path and not sys.flags.hash_randomization"
    subprocess.run(worker_command(other, code), check=True)


def test_uv_makes_an_environment_once(tmp_path, monkeypatch, capsys):
    """With a `uv` of the test's own, which writes down how it was called."""
    calls, folder = tmp_path / "calls", tmp_path / "bin"
    folder.mkdir()
    uv = folder / "uv"
    uv.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n'
        f'if [ "$1" = venv ]; then for last; do :; done; mkdir -p "$last/bin"; '
        f'ln -s {sys.executable} "$last/bin/python"; fi\n'
    )
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    setting = "uv:python==3.12, envpool==1.2"
    first, second = interpreters._made_by_uv(setting), interpreters._made_by_uv("uv:envpool==1.2,python==3.12")
    assert first == second and first.startswith(str(tmp_path / "cache" / "callboard" / "pythons"))
    lines = calls.read_text().splitlines()
    assert len(lines) == 2 and re.search("^venv .*--python 3.12 ", lines[0])
    assert lines[1].endswith("numpy envpool==1.2")
    assert capsys.readouterr().err.count("is being installed into") == 1
    uv.write_text("#!/bin/sh\necho no such package >&2\nexit 1\n")
    with pytest.raises(CallboardError, match="^env_python: uv cannot install 'uv:nothing': no such package$"):
        interpreters._made_by_uv("uv:nothing")


def _interpreter(version):
    """Returns an interpreter of a version on this machine, or None."""
    found = [
        shutil.which(f"python{version}"),
        *sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python"))),
    ]
    for path in filter(None, found):
        done = subprocess.run(
            [path, "-I", "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True
        )
        if done.stdout.strip() == str(tuple(map(int, version.split(".")))):
            return path
    return None


def skip_without_index(error):
    """Skips a test whose packages cannot be fetched; raises every other error."""
    if not re.search("dns error|error sending request|Failed to fetch", f"{error} {error.details}"):
        raise error
    pytest.skip(f"no package index can be reached: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_cartpole_is_stepped_under_each_version(version, tmp_path, monkeypatch):
    """Equal to the bit to this process: CartPole's vector form computes in float64 and rounds to float32."""
    python = _interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        setting = f"uv:python=={python},gymnasium"
        find_interpreter(setting)
    except CallboardError as error:
        skip_without_index(error)
    assert played("CartPole-v1", {"env_python": setting})[0] == played("CartPole-v1", {})[0]


@pytest.mark.slow
def test_envpool_is_stepped_under_the_newest_version(tmp_path, monkeypatch):
    newest = next(filter(None, map(_interpreter, reversed(VERSIONS))), None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    setting = f"uv:python=={newest},envpool>=1.2"
    try:
        find_interpreter(setting)
    except CallboardError as error:
        skip_without_index(error)
    for name, shape in (
        ("envpool:Pong-v5", (84, 84, 1)),
        ("envpool:HalfCheetah-v4", (17,)),
        ("envpool:CoinrunHard-v0", (64, 64, 3)),
    ):
        batch = environments.make(name, 2, [1, 2], {"env_python": setting})
        assert batch.reset().observation.shape == (2, *shape)
        batch.close()


def test_relative_interpreters_are_made_absolute(tmp_path, monkeypatch):
    """A resumed run, or an evaluation, may be started in another directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").write_text("")
    python = str(tmp_path / "python")
    mixture = [{"name": "CartPole-v1", "options": {"env_python": "./python"}}, "CartPole-v1"]
    experiment = Experiment("ppo", env=mixture, env_python="python", env_options={"env_python": "./python"})
    assert experiment.env[0].options["env_python"] == experiment.env_python == python
    assert experiment.env_options["env_python"] == python
    assert absolute_interpreter("uv:./pkg, numpy") == f"uv:{tmp_path}/pkg,numpy"
    assert [absolute_interpreter(one) for one in ("same", "python3.99", "uv:", None)] == [
        "same",
        "python3.99",
        "uv:",
        None,
    ]


def test_extras_and_versions_may_have_commas():
    setting = "uv:gymnasium[classic-control,toy-text]>=1.0, <1.2,numpy~=2.0,!=2.1, python==3.12"
    found = ["gymnasium[classic-control,toy-text]>=1.0, <1.2", "numpy~=2.0,!=2.1", "python==3.12"]
    assert interpreters._requirements(setting) == found


def test_a_program_that_prints_something_else_and_a_cache_that_cannot_be_written_are_reported(tmp_path, monkeypatch):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho 5\n")
    program.chmod(0o755)
    with pytest.raises(CallboardError, match=r"is no Python 3 that starts: it runs a program, and prints '5\\n'$"):
        find_interpreter(str(program))
    monkeypatch.setenv("XDG_CACHE_HOME", str(program))
    with pytest.raises(CallboardError, match="cannot be installed into .*: set XDG_CACHE_HOME to a folder"):
        interpreters._made_by_uv("uv:numpy")


def test_commands_are_quoted():
    other = Interpreter("py", "/with space/python", (3, 13), True, {})
    assert other.install_command("gym") == "'/with space/python' -m pip install 'gym'"
