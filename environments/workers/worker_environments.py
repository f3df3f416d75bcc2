"""Creation of environments in worker processes (`env_python`)."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import CallboardError
from ...settings.named_objects import check_module_name
from ...settings.setting_types import shown
from ..adapters.atari import AtariBatch, AtariOptions
from ..adapters.envpool import with_open_bounds
from ..adapters.gymnasium_wrappers import NAME, read_wrappers, wrapper_settings
from ..adapters.pettingzoo_names import PREFIX as PETTINGZOO
from ..adapters.single_environments import PROCESSES, WRAPPERS, not_of_singles
from ..batches.batched import BatchedEnvironment
from ..batches.options import read_options
from ..info_masks import MaskFromInfo, VectorMaskFromInfo
from ..python_factory import Factory, factory_name
from .exchange import dumped, loaded, refuse, text_of
from .interpreters import PYTHON, find_interpreter
from .worker_agents import WorkerParallel
from .worker_batch import ENVPOOL, WorkerBatch, WorkerVector
from .worker_process import WorkerProcess

TRUE_SCORES = "env_true_scores"
"""Option of an environment in a worker: whether wrappers that change rewards are left out."""
_OF_PROGRAM = "__main__:"
_ATARI = "ale/"
_OURS = re.compile(r"(procgen:|dm_control:|bsuite:|external:|recorded:|minatar/|MiniGrid-|BabyAI-)", re.IGNORECASE)
"""Names of environments whose adapters are Callboard's own."""
_MASKS = f"{MaskFromInfo.__module__}:{MaskFromInfo.__name__}"


def make_in_worker(
    name: Factory,
    seeds: Sequence[int],
    options: Mapping[str, Any],
    slots: Sequence[int],
    actor: int | None,
) -> BatchedEnvironment:
    """Makes a batch of environments in a worker process.

    Args:
      name: the name of the environment.
      seeds: one seed per environment.
      options: its options, with `env_python`.
      slots: the slot of each environment.
      actor: index of the actor that steps the environments, if one does.

    Raises:
      CallboardError: the interpreter cannot be used, or does not have what the environment needs, or refuses an option.
    """
    request = _Request(name, options)
    if request.is_atari:
        settings = read_options(request.name, request.options, AtariOptions)
        if settings.render_mode is not None:
            raise CallboardError(f"environment {name!r}: under env_python, games have no pictures; remove its option")

        def of_game(game: str, count: int, **arguments: Any) -> WorkerVector:
            worker, about = request.start("make", list(seeds)[:count], options=arguments, env=f"ale:{game}")
            worker.request("infos")
            return WorkerVector(worker, about, count, copies=True)

        return AtariBatch(request.name, request.game, seeds, settings, of_game)
    worker, about = request.start("make", seeds, slots=list(slots), actor=actor)
    try:
        if about["kind"] == "Agents":
            raise CallboardError(f"environment {request.name!r} has several agents: give policies, or a mapping")
        vector = WorkerVector(worker, about, len(seeds))
        if request.name.startswith(ENVPOOL):
            vector.single_observation_space = with_open_bounds(vector.single_observation_space)
            vector.single_action_space = with_open_bounds(vector.single_action_space)
        masked = None if request.mask is None else VectorMaskFromInfo(vector, **request.mask)
        if masked is not None:
            worker.request("infos")
        return WorkerBatch(vector, seeds, masked)
    except BaseException:
        worker.end()
        raise


def make_agents_in_worker(
    name: Factory, seed: int, options: Mapping[str, Any], slot: int, actor: int | None
) -> WorkerParallel:
    """Makes an environment with several agents in a worker process, see `make_in_worker`."""
    request = _Request(name, options)
    worker, about = request.start("make", [seed], slots=[slot], actor=actor)
    if about["kind"] != "Agents":
        worker.end()
        raise CallboardError(
            f"environment {request.name!r} has one agent: leave policies, mapping and agent_groups out"
        )
    return WorkerParallel(worker, about)


def check_in_worker(name: Factory, options: Mapping[str, Any]) -> None:
    """Checks whether an interpreter has an environment and its options, without making it; remembers what it has.

    Raises:
      CallboardError: as in `make_in_worker`.
    """
    _Request(name, options).check()


def has_agents_in_worker(name: Factory, options: Mapping[str, Any]) -> bool:
    """Returns whether an environment has several agents; one of a class or function of the user's own is made once."""
    text = factory_name(name)
    if text.startswith(PETTINGZOO):
        return True
    module, _, path = text.partition(":")
    if not path or _OURS.match(text) or module in ("gymnasium", "envpool") or not path.replace(".", "").isidentifier():
        return False
    return _has_agents(text, dumped(dict(options), text_of))


@functools.lru_cache(maxsize=64)
def _has_agents(name: str, options: str) -> bool:
    worker, about = _Request(name, loaded(options)).start("make", [0])
    worker.end()
    return about["kind"] == "Agents"


@functools.lru_cache(maxsize=64)
def _check(name: str, options: str) -> None:
    _Request(name, loaded(options)).start("check", [0])[0].close()


class _Request:
    """The request to a worker.

    Raises:
      CallboardError: another interpreter cannot make the environment.
    """

    def __init__(self, name: Factory, options: Mapping[str, Any]):
        self.name = factory_name(name)
        own = dict(options)
        self._python, self._true_scores = own.pop(PYTHON), own.pop(TRUE_SCORES, False)
        if own.pop(PROCESSES, False):
            raise CallboardError(f"{PROCESSES} and {PYTHON} exclude each other: leave one out")
        wrappers = [one if isinstance(one, dict) else {NAME: one} for one in wrapper_settings(own.pop(WRAPPERS, ()))]
        if any(one[NAME].startswith(_OF_PROGRAM) for one in wrappers):
            raise CallboardError(
                f"env_wrappers: a class is defined by this program, which the worker of {PYTHON} does not run: put it "
                "into a module"
            )
        if not isinstance(name, str) or name.startswith(_OF_PROGRAM) or "<" in name:
            raise CallboardError(
                f"environment {self.name!r} is defined by this program, which the worker of {PYTHON} does not run: put "
                "it into a module, and name it as 'package.module:factory'"
            )
        if _OURS.match(name):
            raise CallboardError(
                f"environment {name!r} is made by Callboard itself, under its own interpreter: leave {PYTHON} out, or "
                "name what the other one has, as 'gymnasium:ID' or 'package.module:factory'"
            )
        self.is_atari = name.lower().startswith(_ATARI)
        found = re.fullmatch(r"ALE/(\w+)-v5", name)
        if self.is_atari and found is None:
            raise CallboardError(f"unknown environment {name!r}; give an id of ale-py, such as 'ALE/Breakout-v5'")
        self.game = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", found[1]).lower() if found else ""
        self.mask: dict[str, Any] | None = None
        if wrappers and (self.is_atari or name.startswith(ENVPOOL)):
            raise not_of_singles(self.name, "leave")
        self._wrappers: list[Any] = [[one[NAME], {key: one[key] for key in one if key != NAME}] for one in wrappers]
        self._singles = bool(wrappers)
        if self._wrappers and self._wrappers[-1][0] == _MASKS:
            self._wrappers.pop()
            self.mask = read_wrappers(wrappers[-1:])[0].arguments
        named = [("environment", name), *(("wrapper", wrapper) for wrapper, _ in self._wrappers)]
        for kind, setting in named:
            module, colon, _ = setting.partition(":")
            if colon and module not in ("envpool", "gymnasium", "pettingzoo"):
                check_module_name(kind, setting, module)
        for wrapper, _ in self._wrappers:
            if wrapper in ("FixedSizeObservations", _MASKS):
                raise CallboardError(
                    f"env_wrappers: {wrapper!r} is Callboard's own, which {PYTHON} does not know: "
                    + ("let it be the last one" if wrapper == _MASKS else "give the environment such a wrapper itself")
                )
        self.options = own
        try:
            dumped(own, refuse)
        except TypeError as error:
            raise CallboardError(f"env_options {shown(own)}: a worker takes plain data only ({error})") from error

    def check(self) -> None:
        """Checks it, once in this process."""
        if self.is_atari:
            read_options(self.name, self.options, AtariOptions)
        options = {**self.options, WRAPPERS: [{NAME: name, **others} for name, others in self._wrappers]}
        _check(self.name, dumped({**options, PYTHON: self._python}, refuse))

    def start(self, do: str, seeds: Sequence[int], **details: Any) -> tuple[WorkerProcess, dict[str, Any]]:
        """Starts a worker, and returns it with its description of the environments that it has made."""
        request = {
            "env": f"ale:{self.game}" if self.is_atari else self.name,
            "options": {} if self.is_atari else self.options,
            "wrappers": self._wrappers,
            "singles": self._singles,
            "true_scores": self._true_scores,
            "slots": list(range(len(seeds))),
            "actor": None,
            **details,
        }
        worker = WorkerProcess(find_interpreter(self._python), self.name)
        try:
            return worker, worker.make(do, seeds=[int(seed) for seed in seeds], **request)
        except BaseException:
            worker.end()
            raise
