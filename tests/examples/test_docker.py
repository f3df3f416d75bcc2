"""The Dockerfiles: what they copy and run exists, and both install alike.  There is no daemon here that builds them."""

import pathlib
import re

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


def test_both_install_alike():
    def installing(path):
        return [line for line in instructions(path) if line[0] != "CMD"]

    assert installing(FILES["docker"]) == installing(FILES["hosts"])
