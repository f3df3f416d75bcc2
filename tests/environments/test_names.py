"""The list of environments: what can be made, and nothing else."""

import gymnasium
import pytest

from callboard import environments


@pytest.fixture
def register():
    """Registers environments with Gymnasium until the end of the test."""
    added = []

    def add(id, entry_point):
        gymnasium.register(id, entry_point)
        added.append(id)

    yield add
    for id in added:
        gymnasium.registry.pop(id)


def test_names_are_of_what_can_be_made():
    names = environments.names()
    assert {"CartPole-v1", "Ant-v5", "procgen:coinrun", "MinAtar/Breakout-v1", "ALE/Pong-v5"} <= set(names)
    # Gymnasium keeps some ids only to show where the environments are now.
    assert not {"Reacher-v2", "Ant-v2", "GymV21Environment-v0", "Pusher-v4", "Breakout-v4"} & set(names)
    assert names == sorted(set(names))
    for name in names:
        environments.check(name)


def test_only_the_newest_version_of_an_id_is_listed(register):
    for version in (2, 10, 9):
        register(f"CallboardTest/Listed-v{version}", "gymnasium.envs.classic_control.pendulum:PendulumEnv")
    assert [name for name in environments.names() if "Listed" in name] == ["CallboardTest/Listed-v10"]


def test_an_environment_that_cannot_be_imported_is_not_listed(register, tmp_path, monkeypatch):
    (tmp_path / "breaks_when_listed.py").write_text("raise RuntimeError('no license')\n")
    monkeypatch.syspath_prepend(tmp_path)
    register("CallboardTest/Broken-v0", "breaks_when_listed:Environment")
    assert "CallboardTest/Broken-v0" not in environments.names()
