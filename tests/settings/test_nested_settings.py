"""Dataclasses of settings that contain others."""

import dataclasses

import pytest

from callboard.settings.nested_settings import (
    Field,
    declared_fields,
    from_values,
    merged_values,
    nested_values,
    with_values,
)


@dataclasses.dataclass(frozen=True)
class Decay:
    """Decay of a learning rate.

    Attributes:
      steps: number of steps.
    """

    steps: int = 10
    floor: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer.

    Attributes:
      rate: the learning rate, which is divided
        by 10.
    """

    rate: float
    decay: Decay = Decay()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Momentum(Optimizer):
    """An optimizer with momentum.

    Attributes:
      momentum: share of the previous step.
    """

    momentum: float = 0.9


@dataclasses.dataclass(frozen=True)
class Agent:
    size: int
    optimizer: Optimizer = Momentum(rate=0.1, decay=Decay(steps=5))


def test_fields_have_the_defaults_and_the_class_of_the_outer_default():
    assert declared_fields(Agent) == {
        "size": Field(int, dataclasses.MISSING, ""),
        "optimizer.rate": Field(float, 0.1, "the learning rate, which is divided by 10."),
        "optimizer.decay.steps": Field(int, 5, "number of steps."),
        "optimizer.decay.floor": Field(float, 0.0, ""),
        "optimizer.momentum": Field(float, 0.9, "share of the previous step."),
    }
    assert declared_fields(Optimizer)["rate"].default is dataclasses.MISSING
    assert declared_fields(Agent(3))["size"].default == 3


def test_values_change_the_fields_that_they_name():
    agent = from_values(Agent, {"size": 2, "optimizer.decay.floor": 0.5})
    assert agent == Agent(2, Momentum(rate=0.1, decay=Decay(steps=5, floor=0.5)))
    changed = with_values(agent, {"optimizer.momentum": 0.0, "size": 1})
    assert changed == Agent(1, Momentum(rate=0.1, decay=Decay(5, 0.5), momentum=0.0))
    assert with_values(agent, {"optimizer": Optimizer(rate=1.0), "optimizer.rate": 2.0}).optimizer == Optimizer(
        rate=2.0
    )


def test_a_nested_dataclass_without_a_default_is_made():
    assert from_values(Optimizer, {"rate": 1.0, "decay.steps": 3}) == Optimizer(rate=1.0, decay=Decay(3))


def test_values_by_flat_name_are_nested():
    assert nested_values({"a.b.c": 1, "a.d": 2, "e": 3}) == {"a": {"b": {"c": 1}, "d": 2}, "e": 3}


SHAPES = {
    "solver.name": Field(str, "adam", ""),
    "solver.rate": Field(float | Decay, 0.1, ""),
    "options": Field(dict[str, int], {}, ""),
}


@pytest.mark.parametrize(
    "before, given, expected",
    [
        ({"solver": {"rate": 1}}, {"solver": {"name": "sgd"}}, {"solver": {"rate": 1, "name": "sgd"}}),
        ({"solver": {"rate": 1}}, {"solver": "sgd"}, {"solver": {"rate": 1, "name": "sgd"}}),
        ({"solver": "sgd"}, {"solver": {"rate": 1}}, {"solver": {"name": "sgd", "rate": 1}}),
        ({"solver": {"rate": {"steps": 1}}}, {"solver": {"rate": {"floor": 2}}}, {"solver": {"rate": {"floor": 2}}}),
        ({"options": {"a": {"b": 1}}}, {"options": {"a": {"c": 2}}}, {"options": {"a": {"b": 1, "c": 2}}}),
        ({"options": {"a": 1}}, {"options": {"a": {"c": 2}}}, {"options": {"a": {"c": 2}}}),
    ],
)
def test_groups_and_entries_of_mappings_are_merged_and_values_replaced(before, given, expected):
    assert merged_values(before, given, SHAPES) == expected


def test_mappings_are_replaced_where_entries_are_not_merged():
    before, given = {"options": {"a": 1}, "solver": {"rate": 1}}, {"options": {"b": 2}, "solver": {"name": "sgd"}}
    merged = merged_values(before, given, SHAPES, entries=False)
    assert merged == {"options": {"b": 2}, "solver": {"rate": 1, "name": "sgd"}}
