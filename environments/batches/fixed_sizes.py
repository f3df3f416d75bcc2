"""Texts and sequences in observations as arrays of fixed sizes, padded or cut."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tree
from dm_env import specs
from gymnasium import spaces
from gymnasium.vector.utils import iterate

from ...data import Nest
from ...errors import CallboardError, one_line, type_text
from ...settings.named_objects import import_object
from ...settings.setting_types import PositiveInt, converted
from ...specs import MultiDiscreteArray
from . import encoding
from .encoding import Leaf, part_at
from .observation_values import place_text
from .space_sizes import check_array
from .spaces import observation_encoding


class FixedSizes(NamedTuple):
    """Sizes of texts and sequences, see `FixedSizeObservations`."""

    text_length: int | None
    tokenizer: Callable[[str], Sequence[int]] | None
    text_tokens: int | None
    sequence_length: int | None


class FixedSizeObservations(gymnasium.ObservationWrapper):
    """Gives the texts and sequences in observations fixed sizes.

    A text becomes `MultiDiscrete` numbers `[text_length]`: 0 where there is no token, otherwise the token plus 1.  A
    sequence becomes a dictionary of `elements`, `[sequence_length, F]`, each flattened as by Gymnasium (choices are
    one-hot), and a `mask`, 1 where there is an element.
    """

    def __init__(
        self,
        environment: gymnasium.Env,
        text_length: int | None = None,
        tokenizer: str | Callable[[str], Sequence[int]] | None = None,
        text_tokens: int | None = None,
        sequence_length: int | None = None,
    ) -> None:
        """Wraps an environment.

        Args:
          environment: an environment with texts or sequences in its observations.
          text_length: tokens of a text; shorter texts are padded, longer ones are cut.
          tokenizer: a function from a text to whole numbers from 0 to `text_tokens` - 1, or `package.module:function`;
            None for the characters of the space.
          text_tokens: number of different tokens that the tokenizer gives.
          sequence_length: elements of a sequence; shorter sequences are padded, longer ones are cut.

        Raises:
          CallboardError: a size is missing, out of range, or for nothing; or the tokenizer does not exist.
        """
        super().__init__(environment)
        sizes = {"text_length": text_length, "text_tokens": text_tokens, "sequence_length": sequence_length}
        for name, size in sizes.items():
            converted(f"env_wrappers: {name}", size, PositiveInt | None)
        if (tokenizer is None) != (text_tokens is None):
            raise CallboardError("tokenizer and text_tokens, the number of its tokens, go together: give both or none")
        function = _tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
        found: set[str] = set()
        self.observation_space, self._convert = _fixed(
            environment.observation_space, FixedSizes(text_length, function, text_tokens, sequence_length), (), found
        )
        for kind, given in (("text", text_length or tokenizer), ("sequence", sequence_length)):
            if given is not None and kind not in found:
                raise CallboardError(
                    f"the observation space has no {kind}: leave out what FixedSizeObservations says of it"
                )

    def observation(self, observation: Any) -> Any:
        """Returns an observation of the environment with fixed sizes."""
        return self._convert(observation)


Converter = Callable[[Any], Any]


def _fixed(
    space: spaces.Space, sizes: FixedSizes, path: tuple[str, ...], found: set[str]
) -> tuple[spaces.Space, Converter]:
    """Returns the space with fixed sizes, and the conversion of its values; adds what it converts to `found`."""
    if isinstance(space, spaces.Dict):
        parts = {key: _fixed(part, sizes, (*path, str(key)), found) for key, part in space.spaces.items()}
        fixed = spaces.Dict({key: part for key, (part, _) in parts.items()})
        return fixed, lambda value: {key: convert(part_at(value, key)) for key, (_, convert) in parts.items()}
    if isinstance(space, spaces.Tuple):
        elements = [_fixed(part, sizes, (*path, str(index)), found) for index, part in enumerate(space.spaces)]
        return spaces.Tuple([part for part, _ in elements]), lambda value: tuple(
            convert(part_at(value, index)) for index, (_, convert) in enumerate(elements)
        )
    if isinstance(space, spaces.Sequence):
        found.add("sequence")
        return _fixed_sequence(space, sizes, path, found)
    # Other libraries have spaces of their own for texts, such as Minigrid's missions.
    is_other = space.shape is None and not isinstance(space, spaces.Graph | spaces.OneOf)
    if isinstance(space, spaces.Text) or (is_other and sizes.tokenizer is not None):
        found.add("text")
        return _fixed_text(space, sizes, path)
    return space, lambda value: value


def _fixed_text(space: spaces.Space, sizes: FixedSizes, path: tuple[str, ...]) -> tuple[spaces.Space, Converter]:
    length = sizes.text_length
    if length is None:
        raise CallboardError(f"the observation has a text{place_text(path)}: give FixedSizeObservations a text_length")
    check_array((length,), "observation", path)
    if sizes.tokenizer is not None:
        tokenizer, tokens = sizes.tokenizer, sizes.text_tokens or 0
    else:
        # In an order of their own: that of a set differs between processes.
        index = {character: number for number, character in enumerate(sorted(space.character_set))}  # type: ignore[attr-defined]
        tokenizer, tokens = functools.partial(_character_numbers, index, path), len(index)

    def convert(text: str) -> np.ndarray:
        numbers = np.asarray(tokenizer(text)).reshape(-1)
        if numbers.size and numbers.dtype.kind not in "biu":
            raise CallboardError(f"the tokenizer gives {numbers.tolist()[0]!r}: let it give a list of whole numbers")
        numbers = numbers.astype(np.int64)
        if numbers.size and not (0 <= numbers.min() and numbers.max() < tokens):
            raise CallboardError(
                f"the tokenizer gives the tokens {numbers.min()} to {numbers.max()}, and text_tokens is {tokens}: they "
                "must be whole numbers from 0 to one less"
            )
        return _padded(numbers + 1, length, "text")

    return spaces.MultiDiscrete(np.full(length, tokens + 1)), convert


def _character_numbers(index: Mapping[str, int], path: Sequence[str], text: str) -> list[int]:
    """Returns the numbers of the characters of a text."""
    if not isinstance(text, str):
        raise CallboardError(f"the observation{place_text(path)} is {type_text(text)}, not text")
    try:
        return [index[character] for character in text]
    except KeyError as error:
        raise CallboardError(
            f"the observation{place_text(path)} contains {error.args[0]!r}, which is not among the characters of its "
            "space: add it to the space's charset, or correct the observation"
        ) from error


def _fixed_sequence(
    space: spaces.Sequence, sizes: FixedSizes, path: tuple[str, ...], found: set[str]
) -> tuple[spaces.Space, Converter]:
    length = sizes.sequence_length
    if length is None:
        raise CallboardError(
            f"the observation has a sequence{place_text(path)}: give FixedSizeObservations a sequence_length"
        )
    element, convert_element = _fixed(space.feature_space, sizes, path, found)
    if element.is_np_flattenable:
        check_array((length, spaces.flatdim(element)), "observation", path)
    flat = spaces.flatten_space(element)
    if not isinstance(flat, spaces.Box):
        raise CallboardError(f"the elements of the sequence{place_text(path)} are not arrays of a fixed size")
    # Padding is 0, which may be out of an element's bounds.
    low, high = np.minimum(flat.low, 0), np.maximum(flat.high, 0)
    fixed = spaces.Dict(
        {
            "elements": spaces.Box(np.tile(low, (length, 1)), np.tile(high, (length, 1)), dtype=flat.dtype.type),
            "mask": spaces.MultiBinary(length),
        }
    )

    flatten = _flattener(element, flat, path)

    def convert(value: Any) -> dict[str, np.ndarray]:
        try:
            elements = list(iterate(space.stacked_feature_space, value) if space.stack else value)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CallboardError(f"the observation{place_text(path)} is {type_text(value)}, not a sequence") from error
        rows = [convert_element(one) for one in elements[:length]]
        flattened = flatten(rows) if rows else np.zeros((0, *flat.shape), flat.dtype)
        present = _padded(np.ones(len(elements), np.int8), length, "sequence")
        return {"elements": _padded(flattened, length, "sequence"), "mask": present}

    return fixed, convert


def _flattener(element: spaces.Space, flat: spaces.Box, path: tuple[str, ...]) -> Callable[[list[Any]], np.ndarray]:
    """Returns a function that checks N elements of a space and flattens them, as Gymnasium does, to `[N, F]`."""
    try:
        encodings = observation_encoding(element)
    except CallboardError:  # Gymnasium flattens spaces that are none of agents, such as OneOf.
        return functools.partial(_flattened_one_by_one, element, flat, path)

    # Elements are not moved as images are.
    encodings = tree.map_structure(_not_moved, encodings)
    choices = element.start + np.arange(element.n) if isinstance(element, spaces.Discrete) else None

    def flatten(elements: list[Any]) -> np.ndarray:
        if choices is not None and all(isinstance(one, int | np.integer) for one in elements):  # The most common ones.
            hot = np.array(elements)[:, np.newaxis] == choices
            if hot.any(axis=1).all():
                return hot.astype(flat.dtype)
        parts = _flat_parts(encodings, encoding.stack(encodings, elements, path))
        flattened = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        return flattened.astype(flat.dtype, copy=False)

    return flatten


def _not_moved(leaf: Leaf) -> Leaf:
    return Leaf(specs.Array(leaf.shape, leaf.spec.dtype), leaf.dtype) if leaf.channels_first else leaf


def _flattened_one_by_one(
    element: spaces.Space, flat: spaces.Box, path: tuple[str, ...], elements: list[Any]
) -> np.ndarray:
    try:
        return np.array([spaces.flatten(element, one) for one in elements], flat.dtype).reshape(-1, *flat.shape)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CallboardError(
            f"the observation{place_text(path)} has an element that is not in its space: correct the space, or the "
            f"observation ({one_line(error)})"
        ) from error


def _flat_parts(encodings: Nest, batch: Nest) -> list[np.ndarray]:
    """Returns the parts of N elements in the order of their space, each `[N, F]`, with choices one-hot."""
    if isinstance(encodings, dict):
        return [part for key in encodings for part in _flat_parts(encodings[key], batch[key])]
    if isinstance(encodings, tuple):
        return [part for pair in zip(encodings, batch, strict=True) for part in _flat_parts(*pair)]
    spec, count = encodings.spec, len(batch)
    if not isinstance(spec, specs.DiscreteArray | MultiDiscreteArray):
        return [batch.reshape(count, -1)]
    if isinstance(spec, specs.DiscreteArray):
        return [batch[:, np.newaxis] == np.arange(spec.num_values)]
    sizes = np.ravel(spec.num_values)
    hot = np.zeros((count, sizes.sum()), np.int8)
    hot[np.arange(count)[:, np.newaxis], batch.reshape(count, -1) + np.cumsum(sizes) - sizes] = 1
    return [hot]


def _padded(rows: np.ndarray, length: int, kind: str) -> np.ndarray:
    """Returns the first `length` rows, filled up with zeros."""
    if len(rows) > length:
        _report_cut(kind, length)
    padded = np.zeros((length, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows[:length]
    return padded


@functools.lru_cache(maxsize=8)
def _report_cut(kind: str, length: int) -> None:
    """Logs a warning, once per process and length."""
    logging.warning("a %s in an observation is longer than %s_length (%d): its end is cut off", kind, kind, length)


def _tokenizer(path: str) -> Callable[[str], Sequence[int]]:
    found = import_object("tokenizer", path)
    if not callable(found):
        raise CallboardError(f"tokenizer {path!r} is not a function but of type {type(found).__name__}")
    return found
