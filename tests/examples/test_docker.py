"""The Dockerfiles: what they copy and run exists, both install alike, and their lines run.

There is no daemon here that builds them: their lines run in a copy of the clone, without those that install packages of
the system, and in a Debian system of their own, with those packages.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FILES = {folder: ROOT / "examples" / folder / "Dockerfile" for folder in ("docker", "hosts")}


def instructions(path):
    text = re.sub(r"\\\n", "", path.read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


@pytest.mark.parametrize("folder", FILES)
def test_a_dockerfile_builds_from_what_there_is(folder):
    found = instructions(FILES[folder])
    assert {name for name, _ in found} <= {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "CMD"}
    version = (ROOT / ".python-version").read_text().strip()
    assert found[0] == ("FROM", f"python:{version}-slim")
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    comments = re.findall(r"^#.*", FILES[folder].read_text(), re.MULTILINE)
    called = [target for _, value in found for target in re.findall(r"make\W+([a-z]+)\b", value)]
    called += [target for line in comments for target in re.findall(r"make ([a-z]+)", line)]
    assert "install" in called and set(called) - {"git"} <= set(targets)
    assert f"examples/{folder}/Dockerfile ." in comments[0]


def test_images_get_nothing_that_was_made_outside():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    local = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    assert {line.removeprefix("**/") for line in ignored} >= {".git", *local}


def test_both_install_alike():
    def installing(path):
        return [line for line in instructions(path) if line[0] != "CMD"]

    assert installing(FILES["docker"]) == installing(FILES["hosts"])


@pytest.mark.slow
def test_the_lines_of_the_dockerfile_install_a_command_that_works(tmp_path):
    copied = copy_clone(tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = []
    for name, value in instructions(FILES["docker"]):
        if name == "RUN" and not value.startswith("apt-get"):
            call(value, copied, environment)
            done.append(value)
        elif name == "ENV":
            key, _, setting = value.partition("=")
            setting = setting.replace("/callboard", str(copied), 1)
            environment[key] = setting.replace("$PATH", environment["PATH"])
    assert len(done) == 1 and "make install" in done[0]
    assert str(copied / ".venv" / "bin" / "callboard") in call("command -v callboard", copied, environment)
    assert call("callboard doctor", copied, environment)
    # What the command of the image does, for a moment.
    assert "callboard train --recipe impala-cartpole" in call("make -n train", copied, environment)
    few = "--max-steps 2000 --stop-return null --evaluator false --launcher inline"
    assert "reached max_steps" in call(f"callboard train --recipe impala-cartpole {few}", copied, environment)


# What the image `python` has of Debian, beyond the least.
OF_THE_BASE = (
    "ca-certificates libbz2-1.0 libffi8 liblzma5 libreadline8 libsqlite3-0 libssl3 libuuid1 netbase tzdata zlib1g"
)
IN_ROOT = """set -e
mount --bind /proc {root}/proc && mount --bind /dev {root}/dev && mount --bind {certificates} {root}{certificates}
for folder in {folders}; do mkdir -p {root}$folder && mount --bind $folder {root}$folder; done
exec chroot {root} /bin/sh -c 'cd /callboard && {command}'"""


@pytest.mark.slow
def test_the_image_has_what_procgen_loads(tmp_path):
    """With the least Debian system, the packages that the Dockerfile names, and this Python."""
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        pytest.skip("needs root's rights and debootstrap")
    (packages,) = re.findall(r"--no-install-recommends ([^&]*)", FILES["docker"].read_text())
    root, included = tmp_path / "root", ",".join([*packages.split(), *OF_THE_BASE.split()])
    made = ["debootstrap", "--variant=minbase", f"--include={included}", "bookworm", root]
    done = subprocess.run(made, capture_output=True, text=True, timeout=900)
    if done.returncode:
        pytest.skip(f"debootstrap cannot make a Debian system here: {done.stdout[-300:]}")
    copy_clone(root)
    (root / "usr/local/bin/python3.10").symlink_to(pathlib.Path(sys.base_prefix, "bin", "python3.10"))
    for name in ("resolv.conf", "pip.conf"):
        if pathlib.Path("/etc", name).exists():
            shutil.copy(f"/etc/{name}", root / "etc" / name)
    local = [sys.base_prefix, *filter(os.path.isdir, os.environ.get("PIP_FIND_LINKS", "").split())]
    (installing,) = [value for name, value in instructions(FILES["docker"]) if name == "RUN" and "make" in value[:5]]
    # PPO's fewest steps.
    options = "--max-steps 2048 --launcher inline --evaluator false --run-dir runs/x"
    for command in (installing, f".venv/bin/callboard train ppo --env procgen:coinrun {options}"):
        certificates = "/etc/ssl/certs/ca-certificates.crt"
        text = IN_ROOT.format(root=root, folders=" ".join(local), certificates=certificates, command=command)
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"}
        own = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
        said = call(["unshare", "--mount", "sh", "-c", text], tmp_path, {**own, **environment})
    assert "reached max_steps" in said


def copy_clone(folder):
    """Copies the files of the clone to `callboard` in a folder."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    copied = folder / "callboard"
    copied.mkdir()
    subprocess.run(["cp", "--parents", "-P", *filter(None, files.split("\0")), copied], cwd=ROOT, check=True)
    return copied


def call(command, folder, environment):
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr
