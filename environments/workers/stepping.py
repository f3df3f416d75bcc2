"""The environments of a worker: single ones, a vector environment, or one with several agents.

This module is part of the program of workers (see `worker_process`): Python 3.9 and NumPy are all that it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..adapters.waiting import Waiting
from .exchange import Exchange, Space, space_description


class Refused(Exception):
    """A refusal, of which the other side makes an error: its kind and its details, plain data."""

    def __init__(self, kind: str, **details: Any):
        super().__init__(kind)
        self.details = {"kind": kind, **details}


def message_of_error(error: BaseException) -> str:
    """Returns the message of an exception, like `errors.message_of`, which this interpreter may not have."""
    try:
        text = str(error)
    except BaseException:
        return "its message cannot be shown, since its __str__ fails"
    return text if len(text) <= 500 else f"{text[:250]} ... {text[-250:]}"


def _store(space: Space, array: Any, index: Any, value: Any) -> None:
    """Writes an observation, or a batch of them, into arrays, if they can hold it; raises `ValueError` if not."""
    if isinstance(value, np.ndarray) and isinstance(array, np.ndarray) and value.dtype == array.dtype:
        if value.shape != (array.shape if index == ... else array.shape[1:]):
            raise ValueError
        array[index] = value
    elif space["kind"] == "Dict":
        for key, part in space["parts"]:
            _store(part, array[key], index, value[key])
    elif space["kind"] == "Tuple":
        for place, part in enumerate(space["parts"]):
            _store(part, array[place], index, value[place])
    else:
        given = np.asarray(value)
        if given.dtype.kind not in "biuf":
            if given.dtype != object or any(isinstance(one, (str, bytes)) for one in given.flat):
                raise ValueError
            given = given.astype(array.dtype)
        cast = given.astype(array.dtype)
        if array.dtype.kind != "f" and (cast != given).any():
            raise ValueError
        _store(space, array, index, cast)


def _rows(space: Space, batch: Any) -> list[Any]:
    """Splits actions `[B, ...]`."""
    if space["kind"] == "Dict":
        keys = [key for key, _ in space["parts"]]
        columns = [_rows(part, batch[key]) for key, part in space["parts"]]
        return [dict(zip(keys, row)) for row in zip(*columns)]  # noqa: B905
    if space["kind"] == "Tuple":
        return list(zip(*(_rows(part, batch[place]) for place, part in enumerate(space["parts"]))))  # noqa: B905
    if space["kind"] == "Discrete" or (space["kind"] == "Box" and batch.ndim == 1 and batch.dtype.kind in "iu"):
        return batch.tolist()
    rows = batch.copy()
    # Arrays of shape () in a list of one axis would be NumPy's numbers.
    return list(rows) if rows.ndim > 1 else [rows[index, ...] for index in range(len(rows))]


def _copied(nest: Any) -> Any:
    if isinstance(nest, dict):
        return {key: _copied(part) for key, part in nest.items()}
    return tuple(map(_copied, nest)) if isinstance(nest, tuple) else nest.copy()


def _leaves(nest: Any) -> Iterator[Any]:
    if isinstance(nest, Mapping):
        for part in nest.values():
            yield from _leaves(part)
    elif isinstance(nest, (tuple, list)):
        for part in nest:
            yield from _leaves(part)
    elif isinstance(nest, np.ndarray):
        yield nest


def _attribute(environment: Any, name: str, otherwise: Any = None) -> Any:
    """Returns an attribute of an environment, or of one that it wraps."""
    while environment is not None:
        if hasattr(environment, name):
            return getattr(environment, name)
        environment = environment.__dict__.get("env") if hasattr(environment, "__dict__") else None
    return otherwise


def _called(environment: Any, name: str, arguments: Sequence[Any]) -> Any:
    """Returns the value of an attribute of an environment, or what its method of this name returns."""
    found = _attribute(environment, name, Refused)
    if found is Refused:
        raise AttributeError(f"{name_of(environment)} has no attribute {name!r}")
    return found(*arguments) if callable(found) else found


def name_of(environment: Any) -> str:
    """Returns an environment's id, or else its class."""
    own = getattr(getattr(environment, "spec", None), "id", None)
    return own or type(getattr(environment, "unwrapped", environment)).__name__


class SteppedSingles:
    """Single environments with Gymnasium's interface, stepped one after the other; a step after an end is a reset."""

    def __init__(self, environments: Sequence[Any]):
        first = environments[0]
        for name in ("observation_space", "action_space"):
            if getattr(first, name, None) is None:
                raise Refused("lacks", attribute=name, name=name_of(first))
        self.environments = environments
        self.observation, self.action = (
            space_description(first.observation_space),
            space_description(first.action_space),
        )
        self._over = [True] * len(environments)
        self._task: Any = None
        self._due = [False] * len(environments)
        self._options: Any = None
        is_dm_env = isinstance(first, DmEnv)
        own = callable(_attribute(first, "set_task"))
        self.about = {
            "autoreset_mode": "NextStep",
            "own_seeds": True,
            "own_discounts": is_dm_env,
            "has_infos": not is_dm_env or callable(_attribute(first, "info")),
            "sets_task": "own" if own else "no" if is_dm_env else "options",
        }

    def set_task(self, task: Any) -> None:
        self._task, self._due = task, [True] * len(self.environments)
        if self.about["sets_task"] == "options":
            self._options = task

    def reset(self, exchange: Exchange, slot: int, seed: Any, options: Any) -> Any:
        rows = []
        for index in range(len(self.environments)):
            observation, info = self._begin(index, None if seed is None else seed[index])
            self._write(exchange, slot, index, observation)
            rows.append(info)
        self._over = [False] * len(self.environments)
        return rows

    def step(self, exchange: Exchange, slot: int, answer: dict[str, Any]) -> Any:
        count = len(self.environments)
        rewards, discounts = [0.0] * count, [1.0] * count
        terminated, truncated, rows = [False] * count, [False] * count, [None] * count
        for index, action in enumerate(_rows(self.action, exchange.actions)):
            environment = self.environments[index]
            if self._over[index]:
                observation, rows[index] = self._begin(index, None)
                self._over[index] = False
            else:
                outcome = environment.step(action)
                try:
                    observation, reward, ended, cut, rows[index] = outcome
                    rewards[index] = float("text" if isinstance(reward, (str, bytes)) else reward)
                except (TypeError, ValueError, OverflowError):
                    raise Refused("outcome", method="step", outcome=outcome) from None
                if ended is not False or cut is not False:
                    if not (_is_flag(ended) and _is_flag(cut)):
                        raise Refused("outcome", method="step", outcome=(0, *outcome[1:4], {}))
                    terminated[index], truncated[index] = bool(ended), bool(cut)
                    self._over[index] = bool(ended or cut)
                discounts[index] = environment.discount if isinstance(environment, DmEnv) else 1.0
            self._write(exchange, slot, index, observation)
        exchange.rewards[slot][:] = rewards
        if self.about["own_discounts"]:
            exchange.discounts[slot][:] = discounts
        exchange.terminated[slot][:] = terminated
        exchange.truncated[slot][:] = truncated
        return rows

    def render(self) -> Any:
        return self.environments[0].render()

    def call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        return [_called(environment, name, arguments) for environment in self.environments]

    def close(self) -> None:
        for environment in self.environments:
            getattr(environment, "close", lambda: None)()  # Objects of other classes need not have one.

    def _write(self, exchange: Exchange, slot: int, index: int, observation: Any) -> None:
        try:
            _store(self.observation, exchange.observations[slot], index, observation)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            raise Refused("observation", observation=observation) from None

    def _begin(self, index: int, seed: Any) -> Any:
        # Only the first reset is seeded; otherwise every episode would begin in the same state.
        environment = self.environments[index]
        if self._due[index] and self.about["sets_task"] == "own":
            _attribute(environment, "set_task")(self._task)
        self._due[index] = False
        options = {} if self._options is None else {"options": dict(self._options)}
        outcome = environment.reset(seed=seed, **options)
        if not isinstance(outcome, tuple) or len(outcome) != 2 or not isinstance(outcome[1], (Mapping, type(None))):
            raise Refused("outcome", method="reset", outcome=outcome)
        return outcome


def _is_flag(value: Any) -> bool:
    array = np.asarray(value)
    return array.size == 1 and array.dtype.kind in "buif" and bool(np.isin(array, (0, 1)).all())


class Vector:
    """A vector environment with Gymnasium's interface, which resets by itself in one of its two modes."""

    def __init__(self, environment: Any, **about: Any):
        self.environment = environment
        self.environments = (environment,)
        self.observation = space_description(environment.single_observation_space)
        self.action = space_description(environment.single_action_space)
        self._finals: Any = ()
        classes = [kind.__name__ for kind in type(getattr(environment, "unwrapped", environment)).__mro__]
        is_of_singles = "SyncVectorEnv" in classes or "AsyncVectorEnv" in classes
        own = callable(_attribute(environment, "set_task"))
        if is_of_singles and not own and all(environment.unwrapped.call("has_wrapper_attr", "set_task")):
            own = True
        self._waiting = _let_wait(environment) if "SyncVectorEnv" in classes else []
        keeps = is_of_singles and all(environment.unwrapped.call("has_wrapper_attr", "set_reset_options"))
        mode = getattr(environment, "metadata", None) or {}
        mode = getattr(mode.get("autoreset_mode"), "value", mode.get("autoreset_mode"))
        self.about = {
            "autoreset_mode": mode,
            "own_seeds": is_of_singles,
            "sets_task": "own" if own else "kept options" if keeps else "options" if is_of_singles else "no",
            "waits": bool(self._waiting),
            **about,
        }

    def set_task(self, task: Any) -> None:
        own = _attribute(self.environment, "set_task")
        if callable(own):
            own(task)
        else:
            method = "set_task" if self.about["sets_task"] == "own" else "set_reset_options"
            self.environment.unwrapped.call(method, task)

    def reset(self, exchange: Exchange, slot: int, seed: Any, options: Any) -> Any:
        arguments = {} if options is None else {"options": options}
        if options is not None and "reset_mask" in options:
            options["reset_mask"] = np.array(options["reset_mask"], np.bool_)
        if isinstance(seed, list) and self.about.get("array_of_seeds"):
            seed = np.array(seed, np.int64)
        outcome = self.environment.reset(seed=seed, **arguments)
        if not isinstance(outcome, tuple) or len(outcome) != 2 or not isinstance(outcome[1], (Mapping, type(None))):
            raise Refused("outcome", method="reset", outcome=outcome)
        self._write(exchange.observations[slot], ..., outcome[0])
        return dict(outcome[1] or {})

    def step(self, exchange: Exchange, slot: int, answer: dict[str, Any]) -> Any:
        if self._finals and any(not np.array_equal(own, before) for own, before in self._finals):
            self._finals, answer["lost"] = (), True
        if self._waiting and exchange.waits.any():
            for row in np.flatnonzero(exchange.waits):
                self._waiting[row].wait()
            exchange.waits[:] = False
        outcome = self.environment.step(_copied(exchange.actions))
        if not isinstance(outcome, tuple) or len(outcome) != 5:
            raise Refused("outcome", method="step", outcome=outcome)
        observations, rewards, terminated, truncated, info = outcome
        self._check(exchange, outcome)
        exchange.rewards[slot][:], exchange.terminated[slot][:] = rewards, terminated
        exchange.truncated[slot][:] = truncated
        self._write(exchange.observations[slot], ..., observations)
        if not info:
            return None
        info = dict(info)
        final = info.pop("final_obs", None)
        known = info.pop("_final_obs", True)
        if final is not None:
            ended = np.logical_or(terminated, truncated) & known
            answer["final"] = self._final(exchange, np.flatnonzero(ended).tolist(), final, observations, answer)
        return info

    def render(self) -> Any:
        frames = self.environment.render()
        return None if frames is None else frames[0]

    def call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        if self.about["own_seeds"]:
            return list(self.environment.unwrapped.call(name, *arguments))
        return [_called(self.environment, name, arguments)]

    def close(self) -> None:
        self.environment.close()

    def _check(self, exchange: Exchange, outcome: Any) -> None:
        for place, given in enumerate(map(np.asarray, outcome[1:4])):
            are_flags = place == 0 or (given.dtype.kind in "buif" and np.isin(given, (0, 1)).all())
            if given.shape != exchange.rewards[0].shape or given.dtype.kind not in "buif" or not are_flags:
                raise Refused("batch_outcome", outcome=tuple(map(np.asarray, outcome[1:4])))

    def _final(self, exchange: Exchange, rows: list[int], final: Any, observations: Any, answer: Any) -> list[int]:
        """Writes the final observations in rows, and finds out whether the environment overwrites them."""
        of_singles = isinstance(final, np.ndarray) and final.dtype == object
        if not of_singles:
            pairs = zip(_leaves(final), _leaves(observations))  # noqa: B905
            answer["lost"] = any(np.may_share_memory(own, other) for own, other in pairs)
            self._write(exchange.finals, ..., final)
            return rows
        kept = []
        for row in rows:
            self._write(exchange.finals, row, final[row])
            kept += [(leaf, leaf.copy()) for leaf in _leaves(final[row])]
        self._finals = kept
        return rows

    def _write(self, array: Any, index: Any, observation: Any) -> None:
        try:
            _store(self.observation, array, index, observation)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            raise Refused("observation", observation=observation, batched=index == ...) from None


def _let_wait(vector: Any) -> list[Any]:
    """Lets the environments of a `SyncVectorEnv` wait, as `gymnasium_vector_batch.let_wait` does."""
    gymnasium: Any = sys.modules["gymnasium"]
    environments = vector.unwrapped.envs
    if not all(isinstance(one, gymnasium.Env) for one in environments):
        return []
    kind = type("WaitingEnvironment", (Waiting, gymnasium.Wrapper), {})
    waiting = [kind(environment) for environment in environments]
    vector.unwrapped.envs = list(waiting)
    return waiting


class Agents:
    """A parallel environment of PettingZoo: observations and actions of agents are the parts of dictionaries."""

    def __init__(self, environment: Any):
        self.environments = (environment,)
        self._environment, agents = environment, getattr(environment, "possible_agents", None) or []
        spaces = [(agent, environment.observation_space(agent), environment.action_space(agent)) for agent in agents]
        self.observation = {"kind": "Dict", "parts": [[agent, space_description(space)] for agent, space, _ in spaces]}
        self.action = {"kind": "Dict", "parts": [[agent, space_description(space)] for agent, _, space in spaces]}
        shape = getattr(getattr(environment, "state_space", None), "shape", None)
        own = callable(_attribute(environment, "set_task"))
        # One of PettingZoo's conversions of turn-based environments.
        metadata = getattr(environment, "metadata", None) or {}
        self._turns = None if metadata.get("is_parallelizable") else getattr(environment, "aec_env", None)
        self.about = {
            "agents": list(agents),
            "by_turns": self._turns is not None,
            "sets_task": "own" if own else "options",
            "state": list(shape) if shape is not None and callable(getattr(environment, "state", None)) else None,
        }

    def set_task(self, task: Any) -> None:
        _attribute(self._environment, "set_task")(task)

    def reset(self, exchange: Exchange, slot: int, seed: Any, options: Any) -> Any:
        outcome = self._environment.reset(seed=seed, **({} if options is None else {"options": options}))
        return self._answer(exchange, slot, outcome, 2)

    def act(self, exchange: Exchange, slot: int, acting: Sequence[Any]) -> Any:
        actions = {agent: exchange.actions[agent] for agent in acting}
        spaces = {agent: space for agent, space in self.action["parts"]}
        rows = {agent: _rows(spaces[agent], one)[0] for agent, one in actions.items()}
        return self._answer(exchange, slot, self._environment.step(rows), 5)

    def render(self) -> Any:
        return self._environment.render()

    def call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        return [_called(self._environment, name, arguments)]

    def close(self) -> None:
        close = getattr(self._environment, "close", None)
        if callable(close):
            close()

    def _answer(self, exchange: Exchange, slot: int, outcome: Any, count: int) -> Any:
        """Returns the result of a reset or a step, with the names of agents in place of observations."""
        if not isinstance(outcome, tuple) or len(outcome) != count or not isinstance(outcome[0], Mapping):
            return outcome, [], None
        parts = {agent: space for agent, space in self.observation["parts"]}
        for agent, observation in outcome[0].items():
            if agent in parts:
                try:
                    _store(parts[agent], exchange.observations[slot][agent], 0, observation)
                except (KeyError, IndexError, TypeError, ValueError, OverflowError):
                    raise Refused("observation", observation=observation, agent=agent) from None
        turn = getattr(self._turns, "agent_selection", None)
        return (list(outcome[0]), *outcome[1:]), list(self._environment.agents), turn


class DmEnv:
    """An environment of `dm_env` with Gymnasium's interface."""

    def __init__(self, environment: Any):
        self.env = self.unwrapped = environment
        self.observation_space, self.action_space = environment.observation_spec(), environment.action_spec()
        self.discount = 1.0
        timestep = getattr(environment, "control_timestep", None)
        self.metadata: Any = {"render_modes": ["rgb_array"], **({"render_fps": 1 / timestep()} if timestep else {})}
        self.render_mode: Any = "rgb_array"
        physics = getattr(environment, "physics", None)
        render = getattr(environment, "render", None) or getattr(physics, "render", None)
        if render is None:
            self.render_mode, self.metadata["render_modes"] = None, []
        self.render, self.close = render, environment.close

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        return self.env.reset().observation, self._info()

    def step(self, action: Any) -> Any:
        found = self.env.step(action)
        self.discount = float("nan" if found.discount is None else found.discount)
        ended = bool(found.last())
        return found.observation, found.reward, ended and not self.discount, ended and self.discount > 0, self._info()

    def _info(self) -> Any:
        return dict(self.env.info() or {}) if callable(getattr(self.env, "info", None)) else {}


def old_gym(environment: Any) -> Any:
    """Returns an environment with the interface of old versions of Gym as one of Gymnasium's."""
    base: Any = object
    wraps = False
    try:
        import gymnasium

        wraps = isinstance(environment, gymnasium.Env)
        base = gymnasium.Wrapper if wraps else gymnasium.Env
    except ImportError:
        pass

    class OldGym(base):
        def __init__(self) -> None:
            if wraps:
                super().__init__(environment)
            else:
                self.env = environment
                self.metadata = getattr(environment, "metadata", None) or {}
                self.render_mode = getattr(environment, "render_mode", None)
            self.observation_space, self.action_space = environment.observation_space, environment.action_space

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            if wraps:
                gymnasium.Env.reset(environment.unwrapped, seed=seed)
            if seed is not None and callable(getattr(environment, "seed", None)):
                environment.seed(seed)
            outcome = environment.reset()
            if isinstance(outcome, tuple) and len(outcome) == 2 and isinstance(outcome[1], dict):
                raise Refused("not_old")
            return outcome, {}

        def step(self, action: Any) -> Any:
            outcome = environment.step(action)
            if not isinstance(outcome, tuple) or len(outcome) != 4:
                raise Refused("not_old")
            observation, reward, done, info = outcome
            # What `done` is, who takes the step checks.
            ends = (False, done) if info.get("TimeLimit.truncated", False) else (done, False)
            return (observation, reward, *ends, info)

        def render(self) -> Any:
            return environment.render()

        def close(self) -> None:
            getattr(environment, "close", lambda: None)()

    return OldGym()
