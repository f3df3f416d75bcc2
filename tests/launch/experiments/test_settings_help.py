"""The help lists every setting with its description and default."""

import dataclasses
import pathlib

import yaml

import callboard
from callboard.agents.agent_names import AGENTS
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.settings import setting_fields
from callboard.launch.experiments.settings_help import PAGES, format_first_help, format_help, format_options
from callboard.settings.nested_settings import Field, declared_fields
from callboard.settings.setting_types import PositiveInt


def test_an_option_has_its_type_its_default_and_its_text():
    fields = {
        "max_steps": Field(PositiveInt, 1000, "environment steps of the run."),
        "cluster.file": Field(str, dataclasses.MISSING, ""),
        "sizes": Field(tuple[int, ...], (64, 32), "word " * 40),
    }
    lines = format_options("the run", fields).splitlines()
    assert lines[:4] == [
        "options of the run:",
        "  --max-steps: a whole number of at least 1 (1000)",
        "      environment steps of the run.",
        "  --cluster.file: text (needed)",
    ]
    assert lines[4] == "  --sizes: a list of whole numbers, such as [64, 64] ([64, 32])"
    assert len(lines) > 6 and all(len(line) <= 110 for line in lines)


def test_every_setting_of_run_and_agent_is_listed_once():
    lines = [*format_first_help("ppo").splitlines(), *format_help("ppo").splitlines()]
    for name in setting_fields("ppo"):
        option = f"  --{name.replace('_', '-')}: "
        assert len([line for line in lines if line.startswith(option)]) == 1, name
    assert lines.index("options of the run:") < lines.index("options of the agent ppo:")


def test_pages_are_named_by_their_titles():
    def titles(entry):
        if isinstance(entry, str):
            return {}
        if isinstance(entry, list):
            return {page: title for part in entry for page, title in titles(part).items()}
        named = {page: title for title, page in entry.items() if isinstance(page, str)}
        return {**named, **{page: title for part in entry.values() for page, title in titles(part).items()}}

    root = pathlib.Path(callboard.__file__).parent
    shown = titles(yaml.safe_load((root / "docs" / "site" / "mkdocs.yml").read_text())["nav"])
    assert {page: shown[f"{page}.md"] for page in PAGES} == PAGES
    for agent in AGENTS:
        assert "docs/" not in format_first_help(agent) + format_help(agent)


def test_every_setting_of_the_run_is_described():
    assert [name for name, field in declared_fields(Experiment).items() if not field.text] == []
