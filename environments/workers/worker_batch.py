"""A batch of environments in a worker process, see `worker_process`."""

import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import tree
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from ...data import Nest, Timestep
from ...errors import CallboardError
from ...settings.setting_types import shown
from ..adapters.dm_env_adapter import NO_INFOS, NO_PICTURE, NO_TASK
from ..adapters.gymnasium_checks import check_batch_step, check_reset_error, check_step, checked_reset, wrong_step
from ..adapters.gymnasium_vector_batch import GymnasiumVectorBatch
from ..batches import encoding
from ..batches.infos import RowInfos
from ..batches.spaces import observation_encoding
from ..batches.tasks import Task, no_task, reset_options
from .exchange import SLOTS, Exchange, Space
from .worker_process import Refusal, WorkerError, WorkerProcess

ENVPOOL = "envpool:"


def described_space(space: Space, role: str = "observation", at: str = "") -> spaces.Space:
    """Returns the space that `exchange.space_description` has described.

    Raises:
      CallboardError: it is of a kind whose values have no fixed size.
    """
    kind = space["kind"]
    if kind == "Dict":
        return spaces.Dict(
            [(key, described_space(part, role, f"{at}/{key}")) for key, part in space["parts"]]
        )  # A dict is sorted.
    if kind == "Tuple":
        return spaces.Tuple([described_space(part, role, f"{at}/{index}") for index, part in enumerate(space["parts"])])
    if "shape" not in space:
        way_out = "; turn it into numbers with gymnasium.wrappers.TransformObservation" if role == "observation" else ""
        place = f" at {at[1:]!r}" if at else ""
        raise CallboardError(
            f"the {role} space {kind}{place} is not supported: Box, Discrete, MultiDiscrete, MultiBinary, Dict and "
            f"Tuple are{way_out}"
        )
    dtype, shape = np.dtype(space["dtype"]), tuple(space["shape"])
    if kind == "Box":
        low, high = (np.broadcast_to(np.asarray(space[end]), shape).astype(dtype) for end in ("low", "high"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return spaces.Box(low, high, shape, dtype.type)
    made: Any
    if kind == "Discrete":
        made = spaces.Discrete(space["n"], start=space["start"])
    elif kind == "MultiDiscrete":
        made = spaces.MultiDiscrete(np.broadcast_to(space["n"], shape))
        made.start = np.broadcast_to(np.array(space["start"], made.nvec.dtype), shape)
    else:
        made = spaces.MultiBinary(shape)
    made.dtype = dtype
    return made


class WorkerVector(VectorEnv):
    """The environments of a worker with the interface of a vector environment of Gymnasium.

    Observations, rewards and flags are views of memory that the step after the next one overwrites, or `copies` of it.

    Args:
      worker: the worker, which has made the environments.
      about: its description of them.
      batch_size: their number.
    """

    def __init__(self, worker: WorkerProcess, about: Mapping[str, Any], batch_size: int, copies: bool = False):
        self.worker = worker
        self.about = about
        self.num_envs = batch_size
        self.spec: Any = types.SimpleNamespace(id=about["name"])
        self.metadata = {key: about.get(key) for key in ("autoreset_mode", "render_modes", "render_fps")}
        self.render_mode = about["render_mode"]
        self.single_observation_space = described_space(about["observation"])
        self.single_action_space = described_space(about["action"], "action")
        self.observation_space = batch_space(self.single_observation_space, batch_size)
        self.action_space = batch_space(self.single_action_space, batch_size)
        self.exchange = Exchange(batch_size, about["observation"], about["action"])
        self.exchange.map(worker.memory)
        self._actions = tree.flatten(self.exchange.actions)
        self._copies = copies
        self._slot = 0

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> Any:
        # The worker writes into the next arrays, also where it then refuses what it was to write.
        self._slot = (self._slot + 1) % SLOTS
        answer = self._request("reset", seed=seed, options=options)[0]
        if answer.get("seeds_refused"):
            raise TypeError("the environment takes no list of seeds")
        return self._observations(), self._info(answer)

    def step(self, actions: Any) -> Any:
        if isinstance(actions, np.ndarray):
            self._actions[0][...] = actions
        else:
            for array, given in zip(self._actions, tree.flatten(actions), strict=True):
                array[...] = given
        slot = self._slot = (self._slot + 1) % SLOTS
        try:
            answer = self.worker.step()
        except Refusal as refusal:
            self._refuse(refusal.details)
        exchange = self.exchange
        info = {} if answer is None else self._info(answer)
        if answer is not None and "final" in answer:
            # What shares memory with the observations is known to be overwritten.
            info["final_obs"] = exchange.observations[slot] if answer.get("lost") else exchange.finals
            info["_final_obs"] = np.isin(np.arange(self.num_envs), answer["final"])
        rewards, terminated, truncated = exchange.rewards[slot], exchange.terminated[slot], exchange.truncated[slot]
        return self._observations(), rewards, terminated, truncated, info

    def _observations(self) -> Any:
        shown = self.exchange.observations[self._slot]
        return tree.map_structure(np.copy, shown) if self._copies else shown

    @property
    def discounts(self) -> np.ndarray:
        """The discounts of the newest step, float64 `[B]`: those of `dm_env` are its own."""
        return self.exchange.discounts[self._slot]

    def render(self) -> Any:
        try:
            answer, payload = self._request("render")
        except WorkerError as error:
            if type(error).__name__ == "NotImplementedError":
                raise NotImplementedError(str(error)) from error
            raise
        frame: Any = np.frombuffer(payload, answer["dtype"]).reshape(answer["shape"]) if payload else None
        return [frame]

    def call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Calls a method of each environment, or gets an attribute, as in Gymnasium; arguments are plain data."""
        return tuple(self._request("call", name=name, arguments=arguments)[0]["results"])

    def close_extras(self, **kwargs: Any) -> None:
        self.worker.close()

    def _request(self, do: str, **details: Any) -> tuple[Any, bytes]:
        try:
            return self.worker.request(do, **details)
        except Refusal as refusal:
            self._refuse(refusal.details)
        except WorkerError as error:
            if do == "reset" and type(error).__name__ == "TypeError":
                check_reset_error(self._named, TypeError(str(error)))
            raise

    @property
    def _named(self) -> Any:
        """The subject of messages: a vector environment, or one of single environments."""
        return types.SimpleNamespace(spec=self.spec)

    def _refuse(self, details: Mapping[str, Any]) -> NoReturn:
        """Raises the error that the same reset, step or observation raises in this process."""
        if details["kind"] == "observation":
            own, given = observation_encoding(self.single_observation_space), details["observation"]
            (encoding.encode if details.get("batched") else encoding.encode_one)(own, given)
            raise CallboardError(f"{self.spec.id} gives an observation that its space does not hold: {given!r:.200}")
        outcome = details["outcome"]
        if details["kind"] == "batch_outcome":
            check_batch_step(self._named, outcome, self.num_envs)
        elif details["method"] == "reset":
            checked_reset(self._named, outcome)
        elif isinstance(outcome, tuple) and len(outcome) == 5:
            check_step(self._named, outcome)
        raise wrong_step(self._named, outcome)

    def _info(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Returns an info as vector environments give it, or one that has a row for each environment."""
        infos = answer.get("infos", {})
        return RowInfos(infos) if isinstance(infos, list) else infos


class _WaitingRow:
    """An environment of a worker that can wait, see `Waiting`."""

    def __init__(self, waits: np.ndarray, row: int):
        self._waits = waits
        self._row = row

    def wait(self) -> None:
        self._waits[self._row] = True


class WorkerBatch(GymnasiumVectorBatch):
    """A batch of environments in a worker process; `close` ends the process.

    Timesteps, seeds and tasks are those of `GymnasiumBatch`, `GymnasiumVectorBatch` and `DmEnvBatch` in this process.

    Args:
      vector: the environments.
      seeds: one seed per environment.
      shown: the same environments as the agent sees them, such as with masks; by default as they are.
    """

    def __init__(self, vector: WorkerVector, seeds: Sequence[int], shown: VectorEnv | None = None):
        super().__init__(vector if shown is None else shown, seeds)
        self._vector = vector
        self.has_own_seeds = self._resets_single = bool(vector.about["own_seeds"])
        self._is_of_dm_env = bool(vector.about.get("own_discounts"))
        if vector.about.get("waits"):
            self._waiting = [_WaitingRow(vector.exchange.waits, row) for row in range(vector.num_envs)]

    @property
    def environments(self) -> Sequence[Any]:
        # They are objects of the worker, which the vector environment's `call` reaches.
        return (self._vector,)

    def step(self, actions: Nest) -> Timestep:
        timestep = super().step(actions)
        if not self._is_of_dm_env:
            return timestep
        discount = np.where(timestep.first, 1.0, self._vector.discounts).astype(np.float32)
        wrong = discount[~((discount >= 0) & (discount <= 1))]
        if wrong.size:
            raise CallboardError(
                f"'step' of {self._vector.spec.id} gives the discount {wrong[0]:g}: it must be a number from 0 to 1"
            )
        return timestep._replace(discount=discount)

    def keep_infos(self) -> None:
        if not self._vector.about.get("has_infos", True):
            raise CallboardError(f"{self._vector.spec.id} {NO_INFOS}")
        self._vector.worker.request("infos")
        super().keep_infos()

    def render(self) -> np.ndarray:
        if self._is_of_dm_env and self._vector.render_mode is None:
            raise CallboardError(f"{self._vector.spec.id} {NO_PICTURE}")
        return super().render()

    def set_task(self, task: Task) -> None:
        takes, name = self._vector.about["sets_task"], self._vector.spec.id
        if takes == "no":
            if self._is_of_dm_env:
                raise CallboardError(f"{name} {NO_TASK}")
            if name.startswith(ENVPOOL):
                raise no_task(f"the environment {name!r}", "EnvPool has no tasks, leave the task out")
            super().set_task(task)
        options = None if takes == "own" else reset_options(name, task)
        if takes == "options" and self._vector.about["kind"] == "Vector":
            self._options = options
            return
        try:
            self._vector.worker.request("task", task=task if options is None else options)
        except TypeError as error:
            raise CallboardError(f"the task {shown(task)} is no plain data, which a worker could be sent") from error
