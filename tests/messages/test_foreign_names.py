"""The table of other libraries' names: what it names here exists, and their names get a hint."""

import contextlib
import functools
import importlib
import pathlib
import re

import pytest
import yaml

import callboard
from callboard.agents.agent_names import AGENTS
from callboard.cli.command import _SUBCOMMANDS, main
from callboard.errors import similar_setting
from callboard.launch.experiments.option_parsing import option_name
from callboard.launch.experiments.settings import setting_fields
from callboard.launch.launchers.registry import LAUNCHERS, launcher_class, launcher_options
from callboard.launch.session import Session
from callboard.launch.trained.acting_policy import ActingPolicy
from callboard.messages import foreign_names
from callboard.messages.foreign_names import LIBRARIES, hint, sections

KINDS = ("setting", "agent", "command", "python")
ALL = [(kind, meaning) for kind in KINDS for section in sections(kind).values() for meaning in section]
OPTIONS = {"--mode": "evaluate", "--episodes": "evaluate", "--render": "evaluate", "--video": "evaluate"}
OPTIONS |= {"--checkpoint": "evaluate", "--plot": "compare"}
OPTIONS |= dict.fromkeys(("--samples", "--concurrent", "--scheduler", "--cpus-per-trial"), "tune")


@functools.cache
def settings_of(agent):
    return setting_fields(agent)


@functools.cache
def all_settings():
    of_launchers = {key for name in LAUNCHERS for key in launcher_options(launcher_class(name))}
    return of_launchers.union(*(settings_of(agent) for agent in AGENTS))


def exists(name):
    """Whether an object that is named in Python exists."""
    found = callboard
    for part in name.split(".")[1:]:
        found = getattr(found, part, None) or importlib.import_module(f"{found.__name__}.{part}")
    return found is not None


def names():
    return [(kind, name) for kind, meaning in ALL for theirs in meaning.theirs.values() for name in theirs]


def test_the_table_has_no_other_keys_and_every_row_says_something():
    table = yaml.safe_load(pathlib.Path(foreign_names.__file__).with_suffix(".yaml").read_text())
    assert list(table) == list(KINDS)
    for rows in (rows for headings in table.values() for rows in headings.values()):
        for row in rows:
            assert set(row) <= {"ours", "remark", *LIBRARIES}
            assert "ours" in row or "remark" in row, row
            assert set(row) & set(LIBRARIES), row
            assert not row.get("remark", "").endswith("."), row


@pytest.mark.parametrize("kind", KINDS)
def test_a_library_s_name_occurs_once(kind):
    for library in set(LIBRARIES) - {"others"}:
        theirs = [name for other, meaning in ALL if other == kind for name in meaning.theirs[library]]
        assert sorted(theirs) == sorted(set(theirs))


def test_what_is_named_here_exists():
    for kind, meaning in ALL:
        for ours in meaning.ours:
            if kind == "agent":
                assert ours in AGENTS
            elif kind == "command":
                assert ours in _SUBCOMMANDS
            elif ours.startswith("callboard."):
                assert exists(ours), ours
            elif ours.startswith("--"):
                assert ours in OPTIONS, ours
            else:
                assert ours in all_settings(), ours


@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_commands_that_are_named_exist(option, capsys):
    with contextlib.suppress(SystemExit):
        main([OPTIONS[option], "--help"])
    assert f"{option} " in capsys.readouterr().out


def test_what_remarks_name_exists():
    for _, meaning in ALL:
        for option in re.findall(r"(?<![\w-])--([\w.-]+)", meaning.remark):
            key = option.replace("-", "_")
            known = (
                key in all_settings() or key in ("recipe", "resume", "launcher", "render") or f"--{option}" in OPTIONS
            )
            known = known or any(key.startswith(f"{setting}.") for setting in all_settings())
            assert known, option
        for setting in re.findall(r"\bagent\.[\w.]+", meaning.remark):
            assert setting in all_settings() or any(known.startswith(f"{setting}.") for known in all_settings()), (
                setting
            )


@pytest.mark.parametrize("agent", AGENTS)
def test_another_library_s_setting_gets_a_hint_that_is_accepted(agent):
    known = {key: option_name(key) for key in settings_of(agent)}
    for kind, name in names():
        if kind == "setting" and name.lower() not in known:
            message = similar_setting(name, known)
            assert message, name
            for proposed in re.findall(r"'(--[^']+)'", message):
                assert proposed in known.values(), message


@pytest.mark.parametrize("name", [name for kind, name in names() if kind == "agent" and name.lower() not in AGENTS])
def test_another_library_s_agent_gets_a_hint_that_is_accepted(name, capsys):
    assert main(["train", name, "--env", "CartPole-v1"]) == 2
    message = capsys.readouterr().err
    proposed = re.findall(r"'([^']+)'", message.partition("; ")[2].partition("?")[0])
    assert set(proposed) <= set(AGENTS), message
    assert proposed or "it is not here" in message


@pytest.mark.parametrize(
    ("kind", "name", "known", "expected"),
    [
        ("setting", "gamma", {"agent.discount": "--agent.discount"}, "did you mean '--agent.discount'?"),
        ("setting", "--agent.GAMMA", ["agent.discount"], "did you mean 'agent.discount'?"),
        ("setting", "gamma", ["discount", "epochs"], "did you mean 'discount'?"),
        ("setting", "policies.a.gamma", ["policies.a.discount"], "did you mean 'policies.a.discount'?"),
        (
            "setting",
            "policies.a.optimizer.lr",
            ["policies.a.optimizer.learning_rate"],
            "'policies.a.optimizer.learning_r",
        ),
        ("setting", "gamma", ["epochs"], None),
        ("setting", "nothing", ["agent.discount"], None),
        ("setting", "twin-q", ["agent.critics.number"], "2 for twins, and 1 for none"),
        ("setting", "lr", ["agent.actor_optimizer.learning_rate", "agent.critic_optimizer.learning_rate"], " or "),
        ("setting", "deterministic", ["--mode"], "'--mode'"),
        ("agent", "DQN", list(AGENTS), "did you mean 'apex'?"),
        ("python", "VecNormalize", (), "did you mean 'agent.network.normalize_observations' or "),
        ("python", "learn", (), "did you mean 'callboard.run' or 'callboard.Session.train'?"),
        ("python", "model.learn", (), "'callboard.run'"),
    ],
)
def test_a_hint_names_what_could_have_been_written(kind, name, known, expected):
    found = hint(kind, name, known)
    assert found is expected if expected is None else expected in found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "sac", "--n-steps", "3"], "did you mean '--agent.n-step'?"),
        (["train", "ppo", "--n-envs", "3"], "did you mean '--envs-per-actor'?"),
        (["train", "ppo", "--num-workers", "3"], "did you mean '--actors'?"),
        (["train", "ppo", "--offline-data", "x"], "did you mean '--dataset'?"),
        (["tune", "ppo", "--env", "CartPole-v1", "--n-trials", "3"], "did you mean '--samples'?"),
        (["train", "ppo", "--env", "CartPole-v1", "--n-trials", "3"], "--n-trials'; callboard tune ppo --samples 16"),
        (["evaluate", "x", "--deterministic"], "did you mean '--mode'?"),
        (["train", "ppo", "--timesteps", "3"], "did you mean '--max-steps'?"),
        (["train", "ppo", "--output-dir", "x"], "did you mean '--run-dir'?"),
        (["rollout", "x"], "unknown command 'rollout'; did you mean 'evaluate'?"),
        (["enjoy", "x"], "did you mean 'evaluate'?"),
        (["list", "envs"], "did you mean 'environments'?"),
        (["list"], "callboard list needs one of agents, environments, launchers, recipes, studies; see"),
        (["cluster"], "callboard cluster needs one of check, run, sbatch; see"),
    ],
)
def test_the_command_line_understands_other_words(arguments, expected, capsys):
    assert main(arguments) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("owner", "name", "message"),
    [
        (callboard, "PPO", "module 'callboard' has no attribute 'PPO'; did you mean 'callboard.Experiment' or "),
        (callboard, "experiment", "module 'callboard' has no attribute 'experiment'; did you mean 'Experiment'?"),
        (callboard, "_private", "module 'callboard' has no attribute '_private'"),
        (
            ActingPolicy.__new__(ActingPolicy),
            "predict",
            "'ActingPolicy' object has no attribute 'predict'; did you mean",
        ),
        (Session.__new__(Session), "learn", "'callboard.Session.train'?"),
        (Session.__new__(Session), "trian", "'Session' object has no attribute 'trian'; did you mean 'train'?"),
    ],
)
def test_names_in_python_get_a_hint(owner, name, message):
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert message in str(caught.value)
    assert not hasattr(owner, name)


def test_the_page_is_up_to_date():
    page = pathlib.Path(callboard.__file__).parent / "docs" / "coming_from.md"
    assert page.read_text().endswith(foreign_names.foreign_name_tables()), "run make docs"
