"""The files of the user's modules: those that are named, and what they import of the project."""

import functools
import sys
import types

import pytest

from callboard.agents.impala import Impala
from callboard.settings.named_objects import import_object
from callboard.settings.own_files import different_file, digests_of, own_files
from callboard.settings.own_modules import search_working_directory

FILES = {
    "owned_env.py": "import numpy, os\nfrom owned_lib import world\nfrom owned_lib.deep.far import Far\n",
    "owned_lib/__init__.py": "",
    "owned_lib/world.py": "from . import rules\nfrom .rules import LIMIT\n\n\ndef late():\n    import owned_late\n",
    "owned_lib/rules.py": "LIMIT = 3\n",
    "owned_lib/unused.py": "",
    "owned_lib/deep/far.py": "from ..rules import LIMIT\n\n\nclass Far:\n    pass\n",
    "owned_late.py": "import importlib\nimportlib.import_module('owned_by_call')\n",
    "owned_by_call.py": "from owned_env import world\n",
    "owned_other.py": "raise SystemExit('never imported')\n",
    "owned_wrong.py": "this is no Python\n",
}
OF_ENV = {name for name in FILES if name not in ("owned_lib/unused.py", "owned_other.py", "owned_wrong.py")}


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    search_working_directory(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("owned_")]:
        del sys.modules[name]


def test_what_a_module_imports_belongs_to_it_and_nothing_is_run(project):
    files = own_files({"env": "owned_env:Corridor", "actors": 3}, "owned_other:make")
    assert set(files) == OF_ENV | {"owned_other.py"}
    assert {name: content.decode() for name, content in files.items()} == {name: FILES[name] for name in files}
    assert not any(name.startswith("owned_") for name in sys.modules)


@pytest.mark.parametrize(
    "setting, files",
    [
        ("owned_lib.rules:LIMIT", {"owned_lib/__init__.py", "owned_lib/rules.py"}),
        ("gymnasium:owned_other:Env-v0", {"owned_other.py"}),
        (["TimeLimit", "callboard.data:Timestep, owned_other:Wrap"], {"owned_other.py"}),
        ('{"torso": {"name": "owned_other:Torso"}}', {"owned_other.py"}),
        ("owned_wrong:Env", set()),
        ("owned_not_there:Env", set()),
        ("recorded:/tmp/owned_other", set()),
        ("CartPole-v1", set()),
        (Impala(), set()),
        (None, set()),
    ],
)
def test_every_way_to_name_a_module(project, setting, files):
    assert set(own_files(setting)) == files


def test_objects_name_their_modules(project):
    far = import_object("environment", "owned_lib.deep.far:Far")
    of_far = {"owned_lib/__init__.py", "owned_lib/deep/far.py", "owned_lib/rules.py"}
    for found in (far, far(), functools.partial(far), {"env": far}):
        assert set(own_files(found)) == of_far


def test_libraries_on_the_path_are_left_out(project):
    information = project / "owned_other-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: owned-other\nVersion: 1.0\n")
    (information / "top_level.txt").write_text("owned_other\n")
    assert own_files("owned_other:make") == {}


def test_another_machine_needs_the_same_files(project):
    expected = digests_of(own_files("owned_env:Corridor"))
    assert different_file(expected) == ""
    (project / "owned_lib" / "rules.py").write_text("LIMIT = 4\n")
    assert different_file(expected) == "owned_lib/rules.py"
    (project / "owned_late.py").unlink()
    assert different_file(expected) == "owned_late.py"


def test_the_program_itself_may_be_left_out(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", types.SimpleNamespace(__file__=str(project / "owned_other.py")))
    assert set(own_files("__main__:Env")) == {"owned_other.py"}
    assert own_files("__main__:Env", with_program=False) == {}
