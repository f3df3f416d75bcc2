"""Which modules belong to the user's project, and who finds those in the working directory."""

import importlib
import importlib.util
import os
import subprocess
import sys

import pytest

from callboard.settings.named_objects import import_object
from callboard.settings.own_modules import (
    _LOADERS,
    WorkingDirectoryFinder,
    is_own,
    own_directories,
    search_working_directory,
    searched_directories,
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "own_project_module.py").write_text("import own_project_sibling\n\n\ndef make():\n    return 1\n")
    (tmp_path / "own_project_sibling.py").write_text("")
    # Without those of commands that other tests have called.
    finders = [finder for finder in sys.meta_path if not isinstance(finder, WorkingDirectoryFinder)]
    monkeypatch.setattr(sys, "meta_path", finders)
    yield tmp_path
    for name in ("own_project_module", "own_project_sibling"):
        sys.modules.pop(name, None)


def test_a_setting_finds_modules_of_the_project_and_they_find_each_other(project):
    search_working_directory(str(project))
    search_working_directory(str(project))
    assert searched_directories() == [str(project)]
    assert import_object("environment", "own_project_module:make")() == 1
    assert is_own("own_project_module") and "own_project_sibling" in sys.modules


@pytest.mark.parametrize("is_package", [False, True])
def test_a_folder_of_a_library_does_not_hide_one_of_the_project(project, tmp_path, monkeypatch, is_package):
    library = tmp_path / "library"
    for folder, name in ((library, "theirs"), (project, "mine")):
        (folder / "shared_name").mkdir(parents=True)
        (folder / "shared_name" / f"{name}.py").write_text("def make():\n    return 2\n")
    if is_package:
        (project / "shared_name" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(library))
    search_working_directory(str(project))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("shared_name.mine")
    del sys.modules["shared_name"]
    try:
        assert import_object("environment", "shared_name.mine:make")() == 2
        if not is_package:
            import_object("environment", "shared_name.theirs:make")
    finally:
        for name in [name for name in sys.modules if name.startswith("shared_name")]:
            del sys.modules[name]


def test_the_modules_that_find_them_exist_and_load_objects():
    for name in _LOADERS:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None, name
        with open(spec.origin) as file:
            text = file.read()
        assert "loads(" in text or "pickle.load(" in text or "import_module(" in text, name


def test_other_modules_do_not_find_them(project):
    search_working_directory(str(project))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("own_project_sibling")
    with pytest.raises(ModuleNotFoundError):
        import own_project_sibling  # noqa: F401


def test_a_library_that_is_installed_inside_of_the_project_is_no_part_of_it(project, monkeypatch):
    finder = WorkingDirectoryFinder(os.path.dirname(os.path.dirname(os.__file__)))
    code = compile("import own_project_missing", os.__file__, "exec")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    with pytest.raises(ModuleNotFoundError):
        exec(code, {"__name__": "os"})


@pytest.mark.parametrize(
    "module, own", [("os", False), ("numpy", False), ("callboard.data", False), ("callboard.tests.agent_cases", False)]
)
def test_installed_modules_are_not_the_users(module, own):
    importlib.import_module(module)
    assert is_own(module) is own


def test_a_package_that_depends_on_callboard_is_the_users(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages"
    information = installed / "own_agents-1.0.dist-info"
    information.mkdir(parents=True)
    (installed / "own_agents.py").write_text("def make():\n    return 2\n")
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: own-agents\nVersion: 1.0\nRequires-Dist: callboard>=0.2\n"
    )
    (information / "top_level.txt").write_text("own_agents\n")
    (information / "RECORD").write_text("own_agents.py,,\n")
    code = (
        "import site, sys; site.getsitepackages = lambda: [sys.argv[1]]; sys.path.insert(0, sys.argv[1]); "
        "from callboard.settings.named_objects import import_object; "
        "from callboard.settings.own_modules import is_installed; "
        "assert is_installed(sys.argv[1] + '/own_agents.py'); print(import_object('agent', 'own_agents:make')())"
    )
    done = subprocess.run([sys.executable, "-c", code, installed], capture_output=True, text=True)
    assert done.stdout == "2\n", done.stderr


@pytest.mark.parametrize(
    "listed",
    [("RECORD", "placed_library/__init__.py,,\n"), ("top_level.txt", "placed_library\n")],
    ids=["files", "names"],
)
def test_a_library_on_the_python_path_is_not_the_users(tmp_path, listed):
    (tmp_path / "placed_library").mkdir()
    (tmp_path / "placed_library" / "__init__.py").write_text("def run():\n    pass\n")
    (tmp_path / "placed_project.py").write_text("from placed_library import run\n\n\ndef make():\n    pass\n")
    information = tmp_path / "placed_library-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: placed-library\nVersion: 1.0\n")
    (information / listed[0]).write_text(listed[1])
    code = (
        "from callboard.settings.own_modules import is_own; import placed_library, placed_project; "
        "print(is_own('placed_library'), is_own('placed_project'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout == "False True\n", done.stderr


def test_own_directories_are_those_of_settings_and_of_scripts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    found = own_directories()
    assert str(tmp_path) in found and set(searched_directories()) <= set(found)
    assert not {path for path in found if "site-packages" in path or path == os.path.dirname(os.__file__)}
