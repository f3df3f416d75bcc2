"""Options and YAML values of settings, by flat name."""

import dataclasses
import pathlib
import re
from typing import Any

import pytest

from callboard.errors import CallboardError, unknown_setting
from callboard.launch.experiments.option_parsing import converted_text, merge_options, option_name, option_texts
from callboard.settings.nested_settings import declared_fields
from callboard.settings.setting_types import PositiveInt


@dataclasses.dataclass(frozen=True)
class Optimizer:
    name: str = "adam"
    learning_rate: float = 1e-3


@dataclasses.dataclass(frozen=True)
class Settings:
    optimizer: Optimizer = Optimizer()
    steps: PositiveInt = 10
    evaluator: bool = True
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    path: str | pathlib.Path | None = None
    conditions: str | tuple[str, ...] = ()


FIELDS = declared_fields(Settings)


def applied(*options, **before):
    return merge_options(before, options, FIELDS)


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--steps", "1e3"], {"steps": 1000}),
        (["--optimizer.learning-rate=2"], {"optimizer": {"learning_rate": 2.0}}),
        (["--optimizer", "{name: sgd, learning_rate: 1}"], {"optimizer": {"name": "sgd", "learning_rate": 1}}),
        (["--optimizer.learning-rate=2", "--optimizer", "sgd"], {"optimizer": {"name": "sgd", "learning_rate": 2.0}}),
        (["--evaluator", "--steps", "3"], {"evaluator": True, "steps": 3}),
        (["--no-evaluator"], {"evaluator": False}),
        (["--options.camera.width", "8", "--options.max_x=[1]"], {"options": {"camera": {"width": 8}, "max_x": [1]}}),
        (["--options.a-b", "1", "--no-options.a-b"], {"options": {}}),
        (["--steps", "1", "--steps", "2"], {"steps": 2}),
        (["--conditions", "a > 1"], {"conditions": "a > 1"}),
        (["--conditions", "[a, b]"], {"conditions": ("a", "b")}),
        (["--conditions", "a, b", "--conditions", "c"], {"conditions": ("a", "b", "c")}),
        (["--conditions", "a", "--conditions=[b, c]", "--conditions", "d"], {"conditions": ("a", "b", "c", "d")}),
    ],
)
def test_options_become_values(options, expected):
    assert applied(*options) == expected


def test_values_are_found_in_both_spellings():
    options = ["--run_dir=a=b", "--seed", "3", "--evaluator"]
    assert option_texts(options) == {"run_dir": "a=b", "seed": "3", "evaluator": None}


def test_the_first_of_repeated_options_replaces_the_recipe_s_value():
    assert applied("--conditions", "b", "--conditions", "c", conditions=("a",)) == {"conditions": ("b", "c")}


def test_entries_are_merged_and_the_caller_s_mapping_is_not_changed():
    recipe = {"camera": {"width": 8, "height": 8}}
    assert applied("--options.camera.width", "4", options=recipe)["options"] == {"camera": {"width": 4, "height": 8}}
    assert applied("--no-options.camera.width", options=recipe)["options"] == {"camera": {"height": 8}}
    assert recipe == {"camera": {"width": 8, "height": 8}}


@pytest.mark.parametrize(
    "options, message",
    [
        (["steps", "5"], "'steps' is no option: options begin with --"),
        (["--", "5"], "is no option"),
        (["--stps", "5"], "unknown option '--stps'; did you mean '--steps'?"),
        (["--learning-rate", "5"], "did you mean '--optimizer.learning-rate'?"),
        (["--steps"], "--steps needs a value: a whole number of at least 1"),
        (["--steps", "--evaluator"], "--steps needs a value"),
        (["--steps", "0"], "steps must be a whole number of at least 1, not 0"),
        (["--no-steps"], "--no-steps is no flag: --steps is a whole number"),
        (["--no-evaluator=1"], "--no-evaluator takes no value"),
        (["--options.", "1"], "--options. names no entry of --options; write --options.NAME VALUE"),
        (["--no-options.size"], "--no-options.size removes an entry that is not set: there are none"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(options, message):
    with pytest.raises(CallboardError, match=re.escape(message)) as caught:
        applied(*options)
    assert "\n" not in str(caught.value)


def test_a_group_that_the_recipe_names_keeps_its_name():
    assert applied("--optimizer.learning-rate", "2", optimizer="sgd") == {
        "optimizer": {"name": "sgd", "learning_rate": 2.0}
    }


@pytest.mark.parametrize(
    "text, hint, expected",
    [
        ("2024", str, "2024"),
        ("2024", str | int, 2024),
        ("null", str | None, None),
        ("2024", pathlib.Path | None, pathlib.Path("2024")),
        ("CPU:0,CPU:1", int | str, "CPU:0,CPU:1"),
        ("[1, 2]", tuple[int, ...], (1, 2)),
    ],
)
def test_text_is_what_the_setting_takes(text, hint, expected):
    assert converted_text("x", text, hint) == expected


@pytest.mark.parametrize("text", ["{a: 1, a: 2}", "{a: *b}", "[1, 2}]"])
def test_a_map_or_list_of_any_values_is_valid_yaml(text):
    with pytest.raises(CallboardError, match=r"^x: .* is not valid YAML: line 1: "):
        converted_text("x", text, Any)


def test_names_of_options_have_dashes_and_a_suggestion_needs_one_candidate():
    assert option_name("optimizer.learning_rate") == "--optimizer.learning-rate"
    known = {"a.rate": "--a.rate", "b.rate": "--b.rate"}
    assert "did you mean" not in str(unknown_setting("option", "--zzz", "zzz", known))
    nested = str(unknown_setting("key", "a.b.rate", "a.b.rate", {"a.b.rate": "a.b.rate"}))
    assert nested == "the key 'a.b.rate' is no name with dots in a file: write a: {b: {rate: ...}}"
    assert str(unknown_setting("option", "--x.rate", "x.rate", {"a.rate": "--a.rate"})).endswith("'--a.rate'?")


@pytest.mark.parametrize(
    "key, name",
    [
        ("agent.min_replay_size", "agent.replay.min_size"),
        ("agent.replay_size", "agent.replay.size"),
        ("agent.replay.minsize", "agent.replay.min_size"),
        ("agnt.batch_sise", "agent.batch_size"),
        # All names of the agent's settings begin alike.
        ("agent.lz", None),
        ("max_step", "max_steps"),
    ],
)
def test_settings_in_groups_are_suggested_by_their_words(key, name):
    names = ("agent.huber", "agent.batch_size", "agent.replay.size", "agent.replay.min_size", "max_steps")
    message = str(unknown_setting("key", key, key, {known: known for known in names}))
    assert ("the command's --help lists all" if name is None else f"did you mean {name!r}?") in message
