"""Reads recorded episodes: of a run of ours, or of any Minari data set on this machine."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tree
from gymnasium import spaces

from ...data import RECORDED, Nest
from ...errors import CallboardError, one_line
from ...specs import EnvironmentSpec
from ..batches import encoding
from ..batches.encoding import EnvironmentEncoding
from ..batches.spaces import action_encoding, observation_encoding
from .minari_package import require_minari

_METADATA = "metadata.json"


class Source(NamedTuple):
    """A data set, and its share of what is learned from."""

    name: str
    """A run, the path of a data set, or the name of one in Minari's folder."""
    share: float | None = None
    """None for what the others leave."""


class RecordedEpisode(NamedTuple):
    """An episode of T actions, as agents see it."""

    observation: Nest
    """Nest of arrays `[T + 1, ...]`."""
    action: Nest
    """Nest of arrays `[T, ...]`."""
    reward: np.ndarray
    """float32 `[T]`."""
    terminated: bool
    """Whether the last action terminated it; otherwise it was cut off."""

    @property
    def length(self) -> int:
        return len(self.reward)


class RecordedData:
    """A data set of recorded episodes.

    Args:
      name: what the user calls it.
      path: the folder with its files.

    Raises:
      CallboardError: Minari is not installed, cannot read it, or its spaces are none that agents can use.
    """

    def __init__(self, name: str, path: pathlib.Path):
        require_minari(f"the data set {name}")
        from minari import MinariDataset

        self.name = name
        self.path = path
        try:
            self._data = MinariDataset(str(path))
        except Exception as error:  # A damaged file may raise anything.
            raise CallboardError(f"the data set {name} cannot be read: {one_line(error)}") from error
        self.total_episodes = int(self._data.total_episodes)
        self.total_steps = int(self._data.total_steps)
        self.metadata: dict[str, Any] = self._data.storage.metadata
        self._encoding = EnvironmentEncoding(
            observation_encoding(self._data.observation_space), action_encoding(self._data.action_space)
        )
        self.spec: EnvironmentSpec = self._encoding.spec()

    def episodes(self, indices: Sequence[int]) -> Iterator[RecordedEpisode]:
        """Yields the episodes with these numbers.

        Raises:
          CallboardError: an episode cannot be read, or its values are not in the data set's spaces.
        """
        found = iter(self._data.storage.get_episodes([int(index) for index in indices]))
        for index in indices:
            try:
                yield self._episode(next(found))
            except CallboardError as error:
                raise CallboardError(f"episode {index} of the data set {self.name}: {error}") from error
            except Exception as error:  # As above.
                raise CallboardError(
                    f"episode {index} of the data set {self.name} cannot be read: {one_line(error)}"
                ) from error

    def seed(self, index: int) -> int | None:
        """Returns the seed with which the environment of an episode was reset; None if it had none."""
        (found,) = self._data.storage.get_episode_metadata([index])
        seed = found.get("seed")
        return None if seed is None else int(seed)

    def _episode(self, found: dict[str, Any]) -> RecordedEpisode:
        reward = np.asarray(found["rewards"], np.float32).reshape(-1)
        observed = _shaped(self._data.observation_space, found["observations"])
        acted = _shaped(self._data.action_space, found["actions"])
        return RecordedEpisode(
            encoding.encode(self._encoding.observation, observed),
            encoding.encode(self._encoding.action, acted),
            reward,
            bool(np.asarray(found["terminations"]).reshape(-1)[-1]),
        )


def open_data(name: str) -> RecordedData:
    """Opens the data set of a run, of a folder, or of that name in Minari's own folder.

    Raises:
      CallboardError: there is none; see also `RecordedData`.
    """
    require_minari(f"the data set {name}")
    from minari.storage.datasets_root_dir import get_dataset_path

    path = pathlib.Path(name)
    tried = [path, path / "data", path / RECORDED / "data"]
    if not path.is_absolute():
        tried.append(get_dataset_path(name) / "data")
    for folder in tried:
        if (folder / _METADATA).is_file():
            return RecordedData(name, folder)
    if (path / "experiment.yaml").is_file():
        raise CallboardError(f"the run {name} has recorded no episodes; run it with record_episodes")
    raise CallboardError(
        f"there is no data set {name!r}: it is neither a run, nor a folder of Minari, nor a name there"
    )


def parse_sources(texts: Sequence[str]) -> list[Source]:
    """Reads `PATH` or `PATH:SHARE`, where the data sets without a share have equal parts of what the others leave.

    Raises:
      CallboardError: a share is not between 0 and 1, or together they are more than 1.
    """
    sources = []
    for text in texts:
        name, colon, share = text.rpartition(":")
        try:
            number = float(share) if colon else None
        except ValueError:
            name, number = text, None
        sources.append(Source(name if number is not None else text, number))
    given = [source.share for source in sources if source.share is not None]
    for one in given:
        if not 0 < one <= 1:
            raise CallboardError(f"the share of a data set lies between 0 and 1, as in PATH:0.3, and is not {one:g}")
    total, others = sum(given), len(sources) - len(given)
    if total > 1 + 1e-9 or (others and total > 1 - 1e-9) or (sources and not others and abs(total - 1) > 1e-9):
        raise CallboardError(
            f"the shares of the data sets must add up to {'less than ' if others else ''}1, not to {total:g}"
        )
    return sources


def check_fits(data: RecordedData, spec: EnvironmentSpec) -> None:
    """Raises `CallboardError` if an agent for a spec cannot learn from a data set; names the first difference."""
    for what in ("observation", "action"):
        theirs, ours = (
            {"/".join(map(str, path)): leaf for path, leaf in tree.flatten_with_path(getattr(one, what))}
            for one in (data.spec, spec)
        )
        for part in dict.fromkeys([*ours, *theirs]):
            forms = [_form(leaves.get(part)) for leaves in (theirs, ours)]
            if forms[0] != forms[1]:
                where = f" {part!r}" if part else ""
                raise CallboardError(
                    f"the data set {data.name} does not fit: its {what}{where} is {forms[0]}, and that of the "
                    f"environment is {forms[1]}"
                )


def _form(leaf: Any) -> str:
    """Describes what of a spec an agent depends on; None is a part that is missing."""
    if leaf is None:
        return "missing"
    numbers = getattr(leaf, "num_values", None)
    if numbers is not None:
        return f"choices among {np.asarray(numbers).tolist()}"
    return f"{np.dtype(leaf.dtype).name}{tuple(leaf.shape)}"


def _shaped(space: spaces.Space[Any], values: Any) -> Any:
    """Gives arrays the shapes of their spaces: a picture of one channel is read without its last axis."""
    if isinstance(space, spaces.Dict):
        return {key: _shaped(part, values[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_shaped(part, values[index]) for index, part in enumerate(space.spaces))
    array = np.asarray(values)
    return array if space.shape is None else array.reshape(-1, *space.shape)
