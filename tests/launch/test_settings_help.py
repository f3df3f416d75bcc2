"""The help lists every setting with its description and default."""

import dataclasses

from callboard.launch.experiment import Experiment
from callboard.launch.settings import setting_fields
from callboard.launch.settings_help import format_help, format_options
from callboard.nested_settings import Field, declared_fields
from callboard.setting_types import PositiveInt


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
    lines = format_help("ppo").splitlines()
    for name in setting_fields("ppo"):
        option = f"  --{name.replace('_', '-')}: "
        assert len([line for line in lines if line.startswith(option)]) == 1, name
    assert lines.index("options of the run:") < lines.index("options of the agent ppo:")


def test_every_setting_of_the_run_is_described():
    assert [name for name, field in declared_fields(Experiment).items() if not field.text] == []
