"""Reads recorded episodes: of a run of ours, or of any Minari data set on this machine."""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tree

from ...action_masks import check_mask
from ...data import RECORDED, Nest
from ...errors import CallboardError, named_path, one_line
from ...specs import EnvironmentSpec
from ..batches.checked_observations import ObservationBounds
from ..batches.encoding import EnvironmentEncoding
from ..batches.spaces import action_encoding, observation_encoding
from .dataset_metadata import METADATA, read_metadata
from .episode_columns import DISCOUNTS
from .guarded_hdf5 import MAIN, GuardedArray, GuardedEpisode, GuardedFiles
from .minari_package import require_minari
from .recorded_arrays import ArrayReader, refuse_illegal, refuse_outside, refuse_rows

READ_AT_ONCE = 32
"""Number of episodes for which files are opened together."""


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
    discount: np.ndarray
    """float32 `[T]`: 0 for an action that terminated it, and 1 for others unless the environment gave other ones."""
    terminated: bool
    """Whether the last action terminated it; otherwise it was cut off."""

    @property
    def length(self) -> int:
        return len(self.reward)


class RecordedData:
    """A data set of recorded episodes.

    Nothing in its files is trusted: what they name is neither made nor imported, and every array is checked when it is
    read.

    Args:
      name: what the user calls it.
      path: the folder with its files.

    Raises:
      CallboardError: Minari is not installed, the files are damaged, or its spaces are none that agents can use.
    """

    def __init__(self, name: str, path: pathlib.Path):
        require_minari(f"the data set {name}")
        self.name = name
        self.path = path
        self._action_spec: Nest = None
        with self._errors(f"the data set {name}"):
            metadata = read_metadata(path)
            self.total_episodes, self.total_steps = metadata.total_episodes, metadata.total_steps
            self.metadata = metadata.entries
            self._spaces = metadata.observation_space, metadata.action_space
            self._encoding = EnvironmentEncoding(
                observation_encoding(self._spaces[0]), action_encoding(self._spaces[1])
            )
            self.spec: EnvironmentSpec = self._encoding.spec()
            check_mask(self.spec)
            with GuardedFiles(path) as files:
                # A writer that was killed may have left more than were counted.
                if files.entries < self.total_episodes:
                    raise CallboardError(
                        f"its metadata count {self.total_episodes:,} episodes, and {MAIN} holds {files.entries:,}"
                    )

    def episodes(self, indices: Sequence[int], all_pictures: bool = True) -> Iterator[RecordedEpisode]:
        """Yields the episodes with these numbers.

        Args:
          indices: the numbers.
          all_pictures: see `ArrayReader`.

        Raises:
          CallboardError: an episode cannot be read, or its arrays do not fit each other or the data set's spaces.
        """
        with self._files() as files:
            for index in map(int, indices):
                with self._errors(f"episode {index} of the data set {self.name}"):
                    episode = self._episode(files.episode(index), all_pictures)
                yield episode

    def all_episodes(self, all_pictures: bool = True) -> Iterator[RecordedEpisode]:
        """Yields all episodes, and compares their steps with the number in the metadata.

        The arguments and errors are those of `episodes`.
        """
        steps = 0
        for begin in range(0, self.total_episodes, READ_AT_ONCE):
            for episode in self.episodes(range(begin, min(begin + READ_AT_ONCE, self.total_episodes)), all_pictures):
                steps += episode.length
                yield episode
        if steps != self.total_steps:
            raise CallboardError(
                f"the data set {self.name} has {steps:,} steps, and its metadata count {self.total_steps:,}: correct "
                f"total_steps in {METADATA}"
            )

    def require_fit(self, spec: EnvironmentSpec) -> None:
        """Raises `CallboardError` if an agent for a spec cannot learn from the data set; names the first difference.

        From then on, actions must also lie in the bounds of that spec.
        """
        for what in ("observation", "action"):
            theirs, ours = (
                {"/".join(map(str, path)): leaf for path, leaf in tree.flatten_with_path(getattr(one, what))}
                for one in (self.spec, spec)
            )
            for part in dict.fromkeys([*ours, *theirs]):
                forms = [_form(leaves.get(part)) for leaves in (theirs, ours)]
                if forms[0] != forms[1]:
                    where = f" {part!r}" if part else ""
                    raise CallboardError(
                        f"the data set {self.name} does not fit: its {what}{where} is {forms[0]}, and that of the "
                        f"environment is {forms[1]}"
                    )
        self._action_spec = spec.action

    def check(self) -> None:
        """Reads all episodes, but not every picture, and raises `CallboardError` if one does not fit.

        Observations outside of the bounds of their space are reported, once per part, as those of environments are.
        """
        bounds = ObservationBounds(self.spec.observation, f"the data set {self.name}")
        for episode in self.all_episodes(all_pictures=False):
            bounds.look(episode.observation)

    def seed(self, index: int) -> int | None:
        """Returns the seed with which the environment of an episode was reset; None if it had none."""
        with self._files() as files, self._errors(f"episode {index} of the data set {self.name}"):
            return files.episode(index).number("seed")

    @contextlib.contextmanager
    def _files(self) -> Iterator[GuardedFiles]:
        with self._errors(f"the data set {self.name}"):
            files = GuardedFiles(self.path)
        with files:
            yield files

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except CallboardError as error:
            raise CallboardError(f"{what}: {error}") from error
        except Exception as error:  # A damaged file may raise anything.
            raise CallboardError(f"{what} cannot be read: {one_line(error)}") from error

    def _episode(self, arrays: GuardedEpisode, all_pictures: bool) -> RecordedEpisode:
        rewards = arrays.array("rewards", itemsize=4)
        length = rewards.shape[0] if rewards.shape else 0
        if rewards.shape != (length,) or not length:
            raise CallboardError(f"rewards has the shape {rewards.shape}, and needs one number for each action")
        with np.errstate(over="ignore"):
            reward = rewards.read().astype(np.float32)
        refuse_rows(~np.isfinite(reward), reward, "the reward", "which is no finite number of float32")
        terminations, truncations = (self._ends(arrays.array(name), length) for name in ("terminations", "truncations"))
        inside = np.flatnonzero(terminations[:-1] | truncations[:-1])
        if len(inside):
            raise CallboardError(
                f"it ends at step {inside[0]:,} of {length:,}, and continues: divide it into episodes that end with "
                "their last step, each with its last observation"
            )
        reader = ArrayReader(arrays, length, all_pictures)
        observation, action = (
            reader.read(role, space, part)
            for role, space, part in zip(("observation", "action"), self._spaces, self._encoding, strict=True)
        )
        if self._action_spec is not None:
            leaves = zip(tree.flatten(self._action_spec), tree.flatten_with_path(action), strict=True)
            for spec, (path, leaf) in leaves:
                refuse_outside(leaf, spec, tuple(map(str, path)), "the environment's space")
        refuse_illegal(self.spec, observation, action)
        discount = self._discount(arrays, terminations)
        return RecordedEpisode(observation, action, reward, discount, bool(terminations[-1]))

    @staticmethod
    def _discount(arrays: GuardedEpisode, terminations: np.ndarray) -> np.ndarray:
        """Returns the discounts, float32 `[T]`."""
        implied = (~terminations).astype(np.float32)
        if not arrays.has(DISCOUNTS):
            return implied
        found = arrays.array(DISCOUNTS)
        if found.shape != implied.shape or found.dtype != np.float32:
            raise CallboardError(
                f"{DISCOUNTS} is {found.dtype}{found.shape}, and needs {len(implied):,} numbers of float32, as rewards"
            )
        discount = found.read()
        refuse_rows(~((discount >= 0) & (discount <= 1)), discount, "the discount", "which is not between 0 and 1")
        if (discount[-1] == 0) != terminations[-1]:
            raise CallboardError(
                f"its last discount is {discount[-1]:g}, and its last termination {bool(terminations[-1])}: let the "
                "discount be 0 if the last action terminated the episode, and more if not"
            )
        return discount

    @staticmethod
    def _ends(found: GuardedArray, length: int) -> np.ndarray:
        """Returns terminations or truncations, bool `[T]`."""
        if found.shape != (length,) or found.dtype.kind not in "biu":
            raise CallboardError(f"{found.where} is {found.dtype}{found.shape}, and needs {length:,} bools, as rewards")
        ends = found.read()
        if ((ends != 0) & (ends != 1)).any():
            raise CallboardError(f"{found.where} holds other numbers than 0 and 1")
        return ends != 0


def open_data(dataset: str | os.PathLike[str]) -> RecordedData:
    """Opens the data set of a run, of a folder, or of that name in Minari's own folder.

    Raises:
      CallboardError: there is none, or it cannot have this name; see also `RecordedData`.
    """
    name = named_path(dataset, "data set")
    require_minari(f"the data set {name}")
    from minari.storage.datasets_root_dir import get_dataset_path

    path = pathlib.Path(name)
    tried = [(path, ""), (path, "data"), (path, f"{RECORDED}/data")]
    if not path.is_absolute():
        tried.append((get_dataset_path(name), "data"))
    for folder, inside in tried:
        if os.path.lexists(folder / inside / METADATA):
            _refuse_links(folder, inside)
            return RecordedData(name, folder / inside)
    if (path / "experiment.yaml").is_file():
        policies = sorted(str(one) for one in path.glob("policies/*") if (one / RECORDED / "data" / METADATA).is_file())
        if policies:
            raise CallboardError(f"every policy of the run {name} has a data set: name {' or '.join(policies)}")
        raise CallboardError(f"the run {name} has recorded no episodes; run it with record_episodes")
    raise CallboardError(
        f"there is no data set {name!r}: it is neither a run, nor a folder of Minari, nor a name there"
    )


def _refuse_links(folder: pathlib.Path, inside: str) -> None:
    """Raises `CallboardError` if a data set is a link to elsewhere in the folder that the user has named."""
    for part in pathlib.PurePath(inside).parts:
        folder /= part
        if folder.is_symlink():
            raise CallboardError(f"{folder} is a symbolic link, and is not followed: name the folder that it leads to")


def source_of(text: str) -> Source:
    """Reads `PATH` or `PATH:SHARE`; the share may be any number.  What exists is a path."""
    name, colon, share = text.rpartition(":")
    if os.path.lexists(text):
        return Source(text)
    try:
        return Source(name, float(share)) if colon else Source(text)
    except ValueError:
        return Source(text)


def parse_sources(texts: Sequence[str]) -> list[Source]:
    """Reads `PATH` or `PATH:SHARE`, where the data sets without a share divide what the others leave.

    Raises:
      CallboardError: a share is not between 0 and 1, or together they are more than 1.
    """
    sources = list(map(source_of, texts))
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


def _form(leaf: Any) -> str:
    """Describes what of a spec an agent depends on; None is a part that is missing."""
    if leaf is None:
        return "missing"
    numbers = getattr(leaf, "num_values", None)
    if numbers is not None:
        return f"choices among {np.asarray(numbers).tolist()}"
    return f"{np.dtype(leaf.dtype).name}{tuple(leaf.shape)}"
