"""Which settings all hosts must share."""

import dataclasses
import sys

from callboard.agents.sac import Sac
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_settings import TrainedPolicy
from callboard.launch.launchers.hosts.shared_settings import shared_code, shared_settings
from callboard.settings.own_modules import search_working_directory

EXPERIMENT = Experiment(agent=Sac(), env="Pendulum-v1", init_from="/a/run", init_parts="all")


def test_hosts_may_take_weights_from_different_places():
    here = dataclasses.replace(EXPERIMENT, policies={"left": Sac(), "old": TrainedPolicy("/a/run")})
    there = dataclasses.replace(here, init_from="/b/run", policies={"left": Sac(), "old": TrainedPolicy("/b/run")})
    assert shared_settings(here) == shared_settings(there)


def test_everything_else_must_be_the_same():
    settings = shared_settings(EXPERIMENT)
    changes = {
        "init_parts": ("torso",),
        "policies": {"left": Sac(), "old": TrainedPolicy("/a/run")},
        "agent": Sac(discount=0.9),
        "max_steps": 7,
    }
    for name, value in changes.items():
        changed = shared_settings(dataclasses.replace(EXPERIMENT, **{name: value}))
        (different,) = [key for key in settings if settings[key] != changed[key]]
        assert different.startswith(name)
    with_one = dataclasses.replace(EXPERIMENT, policies={"left": Sac()})
    assert shared_settings(with_one) != shared_settings(dataclasses.replace(EXPERIMENT, **changes))
    assert "run_dir" not in settings


def test_the_code_of_the_users_modules_must_be_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    search_working_directory(str(tmp_path))
    experiment = dataclasses.replace(
        EXPERIMENT, env="shared_env:Env", env_wrappers=("shared_wrapper:Wrapper",), callbacks=("shared_watch:Watch",)
    )
    written = {
        "shared_env.py": "import shared_map",
        "shared_map.py": "",
        "shared_wrapper.py": "",
        "shared_watch.py": "",
    }
    for name, content in written.items():
        (tmp_path / name).write_text(content)
    before = shared_code(experiment)
    assert list(before) == sorted(f"the file {name}" for name in written)
    (tmp_path / "shared_map.py").write_text("SIZE = 2")
    after = shared_code(experiment)
    assert [name for name in before if after[name] != before[name]] == ["the file shared_map.py"]
