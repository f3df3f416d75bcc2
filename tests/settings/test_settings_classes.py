"""Mistakes in classes of settings that users write: annotations and decorators that were forgotten."""

# What type checkers refuse is tried here too.
# mypy: disable-error-code="assignment, call-arg"

import dataclasses
import inspect
from typing import Any, ClassVar

import pytest

from callboard.agents.agent import Agent
from callboard.agents.ppo import Ppo
from callboard.agents.settings.optimizer_settings import OptimizerSettings
from callboard.callbacks import Callbacks
from callboard.errors import CallboardError
from callboard.settings.callback_settings import check_callbacks
from callboard.settings.setting_types import field_types


@dataclasses.dataclass(frozen=True)
class NoAnnotation(Ppo):
    clip = 0.3


class NoDecorator(Ppo):
    extra: float = 0.1


class Neither(Ppo):
    clip = 0.3


@dataclasses.dataclass(frozen=True)
class Beneath(NoDecorator):
    more: float = 0.1


@dataclasses.dataclass(frozen=True)
class Slow(OptimizerSettings):
    learning_rate = 1e-4


@dataclasses.dataclass(frozen=True)
class WithGroup(Ppo):
    own: OptimizerSettings = Slow(learning_rate=1e-4, epsilon=1e-8, max_gradient_norm=None)


@dataclasses.dataclass(frozen=True)
class Named(Ppo):
    name: str = "baseline"


@dataclasses.dataclass(frozen=True)
class Once(Ppo):
    seconds: dataclasses.InitVar[float] = 1.0


class Misspelled(Ppo):
    live = ("optimizer.learning_rate", "entropy_cots")


class NoTuple(Ppo):
    live = "clip"


class Plain(Agent):
    """Abstract methods are given below."""

    cost: float = 0.1


for method in Agent.__abstractmethods__:
    setattr(Plain, method, lambda *_: None)
Plain.__abstractmethods__ = frozenset()


@pytest.mark.parametrize(
    "make, says",
    [
        (
            NoAnnotation,
            "NoAnnotation has `clip = 0.3` without an annotation, which is ignored: write `clip: float = 0.3`",
        ),
        (lambda: NoDecorator(extra=0.2), "NoDecorator has the setting 'extra', but is no dataclass itself: write @"),
        (NoDecorator, "write @dataclasses.dataclass(frozen=True) above it"),
        (Neither, "`clip: float = 0.3`, and @dataclasses.dataclass(frozen=True) above the class"),
        (Beneath, "NoDecorator has the setting 'extra', but is no dataclass itself"),
        (WithGroup, "Slow has `learning_rate = 0.0001` without an annotation"),
        (
            lambda: Named(name="b"),
            "the agent Named has the setting 'name', which in a run's settings is the name of the",
        ),
        (Once, "Once has the InitVar 'seconds', which a run's settings do not keep: annotate it without InitVar"),
        (Misspelled, "unknown setting in Misspelled.live 'entropy_cots'; did you mean 'entropy_cost'?"),
        (NoTuple, "NoTuple.live must be a tuple, such as ('clip',), not 'clip'"),
        (
            Plain,
            "the agent Plain must be a frozen dataclass: write @dataclasses.dataclass(frozen=True) above it",
        ),
    ],
)
def test_a_class_whose_settings_would_be_ignored_is_refused_in_one_line(make, says):
    with pytest.raises(CallboardError) as caught:
        make()
    assert says in str(caught.value) and "\n" not in str(caught.value)


@dataclasses.dataclass
class Goal(Callbacks):
    goal: float = 1.0


class Far(Goal):
    distance: float = 2.0


@dataclasses.dataclass
class Near(Goal):
    goal = 0.5


def test_callbacks_that_are_dataclasses_are_checked_too():
    assert check_callbacks([Goal(2.0)]) == [Goal]
    with pytest.raises(
        CallboardError, match="Far has the setting 'distance', but .* write @dataclasses.dataclass above"
    ):
        check_callbacks([Far()])
    with pytest.raises(CallboardError, match="Near has `goal = 0.5` without an annotation"):
        check_callbacks([Near()])


def test_what_is_no_setting_needs_neither():
    class Sub(Ppo):
        live: ClassVar[tuple[str, ...]] = ("entropy_cost",)
        watched = ()
        _kept: Any = None

        def steps_at_a_time(self) -> int:
            return 3

    @dataclasses.dataclass(slots=True, frozen=True)
    class Slotted:
        size: int = 1

    assert Sub(clip=0.3).clip == 0.3 and field_types(Slotted) == {"size": int}
    assert inspect.ismemberdescriptor(vars(Slotted)["size"])
