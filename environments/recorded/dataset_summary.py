"""The numbers of a data set of recorded episodes: returns, lengths, how episodes end, and actions."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tree
from dm_env import specs as dm_specs

from ...errors import CallboardError
from ...specs import MultiDiscreteArray, describe
from ..batches.encoding import Leaf, encoding_of
from .recorded_data import RecordedData

_MOST_BYTES = 2**30
"""Bytes of all actions together, of which a concatenated copy is made."""


@dataclasses.dataclass(frozen=True)
class ActionSummary:
    """One discrete choice, or one number, of the recorded actions."""

    name: str
    """Its place in the action, such as `arm/0`; empty if it is the action."""
    values: np.ndarray
    """The recorded values `[N]`: int32 choices, or float32 numbers."""
    choices: int | None
    """Number of values of a choice; None for a number."""
    first: int = 0
    """The environment's value for the choice 0."""

    @property
    def plain(self) -> Mapping[str, float]:
        """Statistics of a number, or how often each value of a choice was taken, by the environment's value."""
        if self.choices is None:
            return statistics(self.values)
        return {str(value): fraction for value, fraction in enumerate(self.fractions.tolist(), self.first)}

    @property
    def fractions(self) -> np.ndarray:
        """How often each value of a choice was taken, `[choices]`, which adds up to 1."""
        counts = np.bincount(self.values, minlength=self.choices or 0)
        return counts / max(1, len(self.values))


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Contents of a data set.

    Attributes:
      name: the data set, as it was named.
      path: its folder.
      environment: the name of its environment; None if it has none.
      recorded_by: the agent that acted, or what its author wrote; None if nothing.
      seed: the seed of the run that recorded it; None if it is not known.
      size: bytes of its files.
      observation: brief description of an observation.
      action: brief description of an action.
      returns: float64 `[E]`, the sum of the rewards of each episode.
      lengths: int64 `[E]`, the number of its actions.
      terminated: bool `[E]`, whether its last action terminated it; otherwise it was cut off.
      actions: each choice and number of the actions.
    """

    name: str
    path: pathlib.Path
    environment: str | None
    recorded_by: str | None
    seed: int | None
    size: int
    observation: str
    action: str
    returns: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray
    actions: tuple[ActionSummary, ...]

    @property
    def plain(self) -> Mapping[str, Any]:
        """The same as plain values, with statistics in place of arrays."""
        return {
            "name": self.name,
            "path": str(self.path),
            "environment": self.environment,
            "recorded_by": self.recorded_by,
            "seed": self.seed,
            "size": self.size,
            "observation": self.observation,
            "action": self.action,
            "episodes": len(self.returns),
            "steps": int(self.lengths.sum()),
            "terminated": int(self.terminated.sum()),
            "returns": statistics(self.returns),
            "lengths": statistics(self.lengths),
            "actions": {one.name: one.plain for one in self.actions},
        }


def statistics(values: np.ndarray) -> dict[str, float]:
    """Returns mean, standard deviation, extremes and quartiles of values `[N]`; nothing if there are none."""
    if not len(values):
        return {}
    low, lower, middle, upper, high = np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist()
    moments = {"mean": float(np.mean(values)), "std": float(np.std(values))}
    return {**moments, "min": low, "quartile_1": lower, "median": middle, "quartile_3": upper, "max": high}


def summarize(data: RecordedData, environment: str | None = None, seed: int | None = None) -> DatasetInfo:
    """Reads all episodes of a data set.

    Args:
      data: the data set.
      environment: the name of its environment.
      seed: the seed of the run that recorded it.

    Raises:
      CallboardError: an episode cannot be read.
    """
    returns, lengths, terminated = [], [], []
    actions: list[list[np.ndarray]] = []
    nbytes = 0
    for episode in data.all_episodes(all_pictures=False):
        returns.append(episode.reward.sum(dtype=np.float64))
        lengths.append(episode.length)
        terminated.append(episode.terminated)
        actions.append(tree.flatten(episode.action))
        nbytes += sum(leaf.nbytes for leaf in actions[-1])
        if nbytes > _MOST_BYTES:
            raise CallboardError(
                f"the actions of {data.name} have more than {_MOST_BYTES:,} bytes: divide the data set"
            )
    author = data.metadata.get("algorithm_name")
    columns = [np.concatenate(leaves) for leaves in zip(*actions, strict=True)]
    named = tree.flatten_with_path(encoding_of(data.spec).action)
    parts = [
        part
        for (path, leaf), column in zip(named if columns else (), columns, strict=True)
        for part in _parts("/".join(map(str, path)), leaf, column)
    ]
    return DatasetInfo(
        name=data.name,
        path=data.path,
        environment=environment,
        recorded_by=author if isinstance(author, str) else None,
        seed=seed,
        size=sum(file.lstat().st_size for file in data.path.rglob("*")),
        observation=describe(data.spec.observation),
        action=describe(data.spec.action),
        returns=np.array(returns, np.float64),
        lengths=np.array(lengths, np.int64),
        terminated=np.array(terminated, bool),
        actions=tuple(parts),
    )


def _parts(name: str, leaf: Leaf, column: np.ndarray) -> list[ActionSummary]:
    """Returns the choices or numbers of one array of the action, from its recorded values `[N, ...]`."""
    spec, flat = leaf.spec, column.reshape(len(column), -1)
    sizes = [None] * flat.shape[1]
    if isinstance(spec, dm_specs.DiscreteArray | MultiDiscreteArray):
        sizes = np.ravel(spec.num_values).tolist()
    firsts = np.ravel(np.broadcast_to(leaf.first, spec.shape)).tolist()
    return [
        ActionSummary(f"{name}/{index}".lstrip("/") if spec.shape else name, flat[:, index], size, int(first))
        for index, (size, first) in enumerate(zip(sizes, firsts, strict=True))
    ]
