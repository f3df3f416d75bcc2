"""The rules of the house: who may import whom, what a module may be called, how long it may be."""

import ast
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLOORS = {path.stem: 0 for path in ROOT.glob("*.py") if path.stem != "__init__"}
FLOORS |= {"networks": 1, "environments": 1, "replay": 1, "agents": 2, "launch": 3, "__main__": 4}
LIBRARY = sorted(ROOT.glob("*.py")) + [
    path for room in FLOORS if (ROOT / room).is_dir() for path in sorted((ROOT / room).rglob("*.py"))
]
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "base", "misc"}


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_modules(path: pathlib.Path) -> list[str]:
    """Absolute names of the modules that a module imports, at its top or inside functions."""
    package = ["callboard", *path.relative_to(ROOT).parts[:-1]]
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            prefix = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*prefix, *([node.module] if node.module else [])])
            found += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return found


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_downward(path):
    room = room_of(path)
    if room == "__init__":
        return
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] == "callboard" and len(parts) > 1 and parts[1] in FLOORS and parts[1] != room:
            assert FLOORS[parts[1]] < max(FLOORS[room], 1), f"{path.name} of {room} imports {module}"


def test_agents_open_no_sockets():
    for path in LIBRARY:
        if room_of(path) != "launch":
            imported = {module.split(".")[0] for module in imported_modules(path)}
            assert not imported & {"launchpad", "courier", "ray", "socket"}, path


def test_launch_knows_no_algorithm_but_through_the_registry():
    registry = (ROOT / "agents" / "registry.py").read_text()
    for path in LIBRARY:
        if room_of(path) == "launch" and path.name != "preload.py":
            for module in imported_modules(path):
                algorithm = module.removeprefix("callboard.agents.").split(".")[0]
                assert f"callboard.agents.{algorithm}:" not in registry, f"{path.name} imports {module}"


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_short_and_well_named(path):
    assert len(path.read_text().splitlines()) <= 500
    assert path.stem not in SAYS_NOTHING


def test_root_modules_do_not_shadow_the_standard_library():
    for path in ROOT.glob("*.py"):
        assert path.stem not in sys.stdlib_module_names


def test_the_library_prints_nothing():
    for path in LIBRARY:
        if path.relative_to(ROOT) == pathlib.Path("launch/cli/command.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id == "print"), path


def test_tests_are_no_package():
    assert not list((ROOT / "tests").rglob("__init__.py"))
