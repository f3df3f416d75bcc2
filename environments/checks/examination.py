"""A closer look at an environment than a trial: episodes, determinism under a seed, speed, values, and a picture."""

import contextlib
import dataclasses
import itertools
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import imageio.v3 as imageio
import numpy as np
import tree
from dm_env import specs

from ...data import Nest
from ...errors import CallboardError, writing
from ...files.atomic_files import write_file
from ...runtime.deadlines import Deadline
from ...specs import MultiDiscreteArray
from ..adapters.single_environments import PROCESSES
from ..batches.batched import BatchedEnvironment
from ..batches.observation_values import place_text
from ..default_options import default_options
from ..factory import environments_in, made_to_draw, make
from ..multi_agent.multi_agent import MultiAgentEnvironment
from ..multi_agent.multi_agent_factory import is_multi_agent, make_multi_agent
from ..python_factory import Factory, factory_name
from .episode_limits import unending_advice
from .trial import EnvironmentTrial, Phase, random_agent_steps, random_timesteps, try_environment

_COMPARED_STEPS = 200
_COMPARED_SECONDS = 2.0
_PICTURE_STEP = 10
_RENEWAL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Examination(EnvironmentTrial):
    """Subjects of an examination, which follows a trial without faults.

    Attributes:
      play_seconds: seconds for which random actions are played.
      picture: path of a PNG file that shows the environment; None for none.
    """

    play_seconds: float = 3.0
    picture: str | None = None


class Seen(NamedTuple):
    """The result of a reset or a step."""

    values: Mapping[str, np.ndarray]
    """Observations by their place."""
    rewards: Mapping[str, float]
    """Rewards by agent; one without a name, if there is one agent."""
    ended: str = ""
    """`terminated` or `truncated` if the episode has ended, else empty."""
    is_step: bool = True
    """Whether an action was executed; otherwise an episode begins."""


def examine_environment(
    examination: Examination, enter: Callable[[Phase], object], warn: Callable[[str], object]
) -> list[dict[str, Any]]:
    """Tries an environment, and returns what was found, as plain data; of a list, for each.

    Args:
      examination: what is looked at.
      enter: called with what is called next of the environment.
      warn: takes a warning, one line.

    Raises:
      CallboardError: the environment cannot be used, for the reason that the message names.
      Exception: the environment has raised it.
    """
    try_environment(examination, enter, warn)
    return [
        _examine(examination, name, options, enter, warn)
        for name, options in environments_in(examination.env, examination.options)
    ]


def _examine(
    examination: Examination,
    name: Factory,
    options: dict[str, Any],
    enter: Callable[[Phase], object],
    warn: Callable[[str], object],
) -> dict[str, Any]:
    player = _player(examination, name, options, enter)
    found: dict[str, Any] = {"environment": factory_name(name), "spaces": player.spaces()}
    with contextlib.suppress(CallboardError):
        declared = default_options(name)
        given = {key: value for key, value in options.items() if key in declared}
        found["options"] = {key: str(value) for key, value in {**declared, **given}.items()}
    difference = _difference(player, examination.seed)
    if difference:
        warn(f"environment {factory_name(name)!r} is not deterministic: {difference}")
    found["deterministic"], found["difference"] = not difference, difference or None
    found |= _play(player, examination)
    if not found["episodes"]:
        own = {key: value for key, value in options.items() if key != PROCESSES}
        warn(
            f"environment {factory_name(name)!r}: no episode has ended within {found['steps']:,} random steps; "
            f"{unending_advice(name, own, found['steps'])}"
        )
    elif found["rewards"] == [0.0, 0.0]:
        warn(
            f"environment {factory_name(name)!r}: random actions have earned no reward in {found['episodes']} episodes"
        )
    if examination.picture is not None:
        _write_picture(player, examination)
        found["picture"] = examination.picture
    return found


@dataclasses.dataclass
class _Player:
    """Plays random actions in environments that it makes."""

    name: Factory
    options: dict[str, Any]
    agent_options: Mapping[str, Any]
    enter: Callable[[Phase], object]
    has_agents: bool

    def made(self, seed: int) -> Any:
        """Makes an environment; the caller closes it."""
        self.enter("constructor")
        if self.has_agents:
            return make_multi_agent(self.name, seed, self.options, 0, 0, **self.agent_options)
        return make(self.name, 1, [seed], {**self.options, PROCESSES: False}, actor=0, warn=lambda text: None)

    def spaces(self) -> dict[str, dict[str, dict[str, str]]]:
        """Returns texts about the parts of observations and actions, by agent; without a name if there is one."""
        environment = self.made(0)
        self.enter("close")
        environment.close()
        specs_of = {agent: environment.specs[agent] for agent in environment.agents} if self.has_agents else None
        return {
            agent: {"observation": _described(one.observation), "action": _described(one.action)}
            for agent, one in (specs_of or {"": environment.spec}).items()
        }

    def played(self, environment: Any, seed: int) -> Iterator[Seen]:
        """Yields what resets and steps give, without an end."""
        return self._agents(environment, seed) if self.has_agents else self._single(environment, seed)

    def _single(self, environment: BatchedEnvironment, seed: int) -> Iterator[Seen]:
        timesteps = random_timesteps(environment, seed, self.enter)
        yield Seen(_values("", next(timesteps).observation), {"": 0.0}, is_step=False)
        was_last = False
        for timestep in timesteps:
            is_step, was_last = not was_last, bool(timestep.last[0])
            # Some libraries begin the next episode in the same step.
            ends = was_last or (bool(timestep.first[0]) and is_step)
            ended = ("truncated" if timestep.discount[0] else "terminated") if ends else ""
            yield Seen(_values("", timestep.observation), {"": float(timestep.reward[0])}, ended, is_step)

    def _agents(self, environment: MultiAgentEnvironment, seed: int) -> Iterator[Seen]:
        is_step = False
        for steps in random_agent_steps(environment, seed, self.enter):
            values: dict[str, np.ndarray] = {}
            for agent, step in steps.items():
                values |= _values(agent, step.observation)
            all_end = all(step.terminated for step in steps.values())
            ended = ("terminated" if all_end else "truncated") if environment.is_over and is_step else ""
            yield Seen(values, {agent: step.reward for agent, step in steps.items()}, ended, is_step)
            is_step = not environment.is_over


def _player(
    examination: Examination, name: Factory, options: dict[str, Any], enter: Callable[[Phase], object]
) -> _Player:
    return _Player(name, options, examination.agent_options, enter, is_multi_agent(name, options))


def _values(agent: str, observation: Nest) -> dict[str, np.ndarray]:
    leaves = tree.flatten_with_path(observation)
    return {"/".join(filter(None, (agent, *map(str, path)))): np.array(leaf) for path, leaf in leaves}


def _described(spec: Nest) -> dict[str, str]:
    """Returns texts about the parts of a spec, by their place."""

    def text(leaf: Any) -> str:
        if isinstance(leaf, specs.DiscreteArray):
            return f"{leaf.num_values} choices"
        if isinstance(leaf, MultiDiscreteArray):
            return f"choices of {np.asarray(leaf.num_values).tolist()}"
        shape = f"{np.dtype(leaf.dtype).name} {tuple(leaf.shape)}"
        if not isinstance(leaf, specs.BoundedArray):
            return shape
        low, high = np.min(leaf.minimum), np.max(leaf.maximum)
        return f"{shape}, from {low:g} to {high:g}" if np.isfinite([low, high]).all() else shape

    return {"/".join(map(str, path)): text(leaf) for path, leaf in tree.flatten_with_path(spec)}


def _difference(player: _Player, seed: int) -> str:
    """Returns where two environments with one seed and the same actions differ; empty if they do not."""
    with contextlib.closing(player.made(seed)) as one, contextlib.closing(player.made(seed)) as other:
        pairs = zip(player.played(one, seed), player.played(other, seed), strict=True)
        deadline = time.monotonic() + _COMPARED_SECONDS
        for step, (here, there) in enumerate(pairs):
            when = f"after step {step}" if step else "after 'reset'"
            if here.values.keys() != there.values.keys() or here.ended != there.ended:
                return f"with the same seed and actions, agents or ends of episodes differ {when}"
            for place, value in here.values.items():
                if not np.array_equal(value, there.values[place], equal_nan=True):
                    where = place_text([place]) if place else ""
                    return f"with the same seed and actions, observations{where} differ {when}"
            if here.rewards != there.rewards:
                return f"with the same seed and actions, rewards differ {when}"
            if step == _COMPARED_STEPS or time.monotonic() > deadline:
                return ""
    raise AssertionError("unreachable")


def _play(player: _Player, examination: Examination) -> dict[str, Any]:
    """Plays for some seconds; returns figures about speed, episodes, rewards and observations."""
    lengths, returns, ends = [], [], {"terminated": 0, "truncated": 0}
    length, total, low, high = 0, 0.0, 0.0, 0.0
    bounds: dict[str, list[float]] = {}
    with contextlib.closing(player.made(examination.seed)) as environment:
        played = player.played(environment, examination.seed)
        first = next(played)
        begun = time.monotonic()
        steps, renewal = 0, Deadline(_RENEWAL_SECONDS)
        for seen in itertools.chain([first], played):
            if renewal.has_passed:
                # The limit of a step is not one of all steps.
                player.enter("step")
                renewal.restart()
            steps += seen.is_step
            length += seen.is_step
            total += sum(seen.rewards.values())
            low, high = min(low, *seen.rewards.values(), 0.0), max(high, *seen.rewards.values(), 0.0)
            for place, value in seen.values.items():
                if value.size:
                    before = bounds.setdefault(place, [np.inf, -np.inf])
                    before[:] = min(before[0], float(value.min())), max(before[1], float(value.max()))
            if seen.ended:
                lengths.append(length)
                returns.append(total)
                ends[seen.ended] += 1
                length, total = 0, 0.0
            if time.monotonic() - begun > examination.play_seconds:
                break
        seconds = time.monotonic() - begun
        player.enter("close")
    return {
        "steps": steps,
        "seconds": seconds,
        "steps_per_second": steps / seconds,
        "episodes": len(lengths),
        "mean_length": statistics.fmean(lengths) if lengths else None,
        "returns": [min(returns), statistics.fmean(returns), max(returns)] if returns else None,
        **ends,
        "rewards": [low, high],
        "observed": bounds,
    }


def _write_picture(player: _Player, examination: Examination) -> None:
    """Writes a picture of the environment after some steps."""

    def make_with(further: dict[str, Any]) -> Any:
        return dataclasses.replace(player, options={**player.options, **further}).made(examination.seed)

    with contextlib.closing(made_to_draw(make_with, alone=False)) as environment:
        for step, _ in enumerate(player.played(environment, examination.seed)):
            if step == _PICTURE_STEP:
                break
        assert examination.picture is not None
        frame = environment.render()
        with writing(f"the picture {examination.picture}"):
            write_file(pathlib.Path(examination.picture), imageio.imwrite("<bytes>", frame, extension=".png"))
