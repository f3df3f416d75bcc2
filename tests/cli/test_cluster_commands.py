"""`callboard cluster run`: a run on two hosts, one of which is this machine without the user's files."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

import pytest
import yaml

from callboard.cli.command import main
from callboard.runtime.deadlines import wait_until

COMMAND = pathlib.Path(sys.executable).with_name("callboard")
FILES = {
    "my_env.py": "import gymnasium\nfrom my_lib.size import NAME\n\n\ndef make():\n    return gymnasium.make(NAME)\n",
    "my_lib/size.py": "NAME = 'CartPole-v1'\n",
    "mine.yaml": "base: impala-cartpole\nenv: my_env:make\nstop_return: null\n",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with modules, a recipe and a cluster file; for `ssh`, it is empty."""
    folder, programs = tmp_path / "project", tmp_path / "programs"
    programs.mkdir()
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    hosts = {"hosts": dict.fromkeys("ab", "127.0.0.1"), "ports": f"{port}-{port + 19}"}
    nodes = {"learner": ["a"], "replay": ["a"], "actor": {"b": 1}}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({**hosts, **nodes}))
    script = f'exec unshare -m bash -c "mount -t tmpfs none {folder} && cd / && ${{@: -1}}"'
    (programs / "ssh").write_text(f"#!/bin/bash\n{script}\n")
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [(None, 0), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_run_on_two_hosts_from_one_of_them(project, tmp_path, number, code):
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"]).returncode:
        pytest.skip("this user cannot unmount files for a process")
    steps = "3000" if number is None else "100000000"
    limits = ["--max-steps", steps, "--run-dir", str(tmp_path / "run")]
    command = [COMMAND, "cluster", "run", "cluster.yaml", "--recipe", "mine.yaml", *limits]
    output = tmp_path / "output"
    with output.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as run:
        if number is not None:
            assert wait_until(lambda: "b | host b: joined the run of a" in output.read_text(), 300), output.read_text()
            run.send_signal(number)
        assert run.wait(400) == code, output.read_text()
    lines = output.read_text().splitlines()
    assert {line[:4] for line in lines} == {"a | ", "b | "}

    def nothing_is_left():
        names = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
        return not any(str(tmp_path).encode() in _content(path) for path in names) and not any(
            (tmp_path / "temporary").iterdir()
        )

    assert wait_until(nothing_is_left, 120)


def _content(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "callboard cluster run needs the cluster file first"),
        (["none.yaml", "ppo"], "there is no cluster file 'none.yaml'"),
        (["cluster.yaml", "--recipe", "mine.yaml"], "name it with --run-dir"),
        (["cluster.yaml", "--recipe", "mine.yaml", "--run-dir", "x", "--host", "a"], "--host is given to each host"),
        (["cluster.yaml", "--recipe", "mine.yaml", "--run-dir", "x", "--actors", "3"], "actors is 3, and cluster.yaml"),
        (["cluster.yaml", "--recipe", "mine.yaml", "--run-dir", "x", "--seeds", "1,2"], "--seeds is for runs on one"),
        (["cluster.yaml", "train", "pppo", "--env", "CartPole-v1", "--run-dir", "x"], "unknown agent 'pppo'"),
    ],
)
def test_what_every_host_would_refuse_is_refused_before_any_connection(project, words, message, capsys):
    (project.parent / "programs" / "ssh").write_text("#!/bin/sh\ntouch connected\n")
    assert main(["cluster", "run", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (project / "connected").exists()
