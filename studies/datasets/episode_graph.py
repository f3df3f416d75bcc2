"""Draws the numbers of a recorded episode over time, for a video of one that nothing else can show."""

from collections.abc import Iterator

import numpy as np
import tree

from ...environments.recorded.recorded_data import RecordedEpisode

_MOST_ROWS = 10
_WIDTH, _ROW_HEIGHT, _MARGIN, _NAMES = 640, 48, 6, 150
_LINE, _NOW, _TEXT = (31, 119, 180), (214, 39, 40), (0, 0, 0)


def episode_frames(episode: RecordedEpisode) -> Iterator[np.ndarray]:
    """Yields a frame for each observation, uint8 `[H, W, 3]`.

    It shows the first numbers of observations and actions, and the reward, over the whole episode, with a line at the
    timestep.
    """
    from PIL import Image, ImageDraw

    rows = [*_numbers("observation", episode.observation), *_numbers("action", episode.action)]
    # A reward, as an action, follows the observation at which it is shown.
    rows = [*rows[: _MOST_ROWS - 1], ("reward", episode.reward)]
    picture = Image.new("RGB", (_WIDTH, _ROW_HEIGHT * len(rows)), "white")
    draw = ImageDraw.Draw(picture)
    times = np.linspace(_NAMES, _WIDTH - _MARGIN, episode.length + 1).tolist()
    for index, (name, values) in enumerate(rows):
        low, high = float(values.min()), float(values.max())
        top, bottom = index * _ROW_HEIGHT + _MARGIN, (index + 1) * _ROW_HEIGHT - _MARGIN
        heights = bottom - (values.astype(np.float64) - low) / ((high - low) or 1.0) * (bottom - top)
        draw.text((_MARGIN, top), f"{name[:24]}\n{low:.4g} to {high:.4g}", _TEXT)
        draw.line(list(zip(times, heights.tolist(), strict=False)), _LINE, 2)
    for time in times:
        frame = picture.copy()
        ImageDraw.Draw(frame).line([(time, 0), (time, picture.height)], _NOW)
        yield np.asarray(frame)


def _numbers(role: str, nest: object) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the first numbers of arrays `[T, ...]`, each by its name, of all arrays as many as are shown."""
    named = tree.flatten_with_path(nest)
    for path, leaf in named:
        flat = leaf.reshape(len(leaf), -1)
        for column in range(min(flat.shape[1], max(1, (_MOST_ROWS - 3) // len(named)))):
            place = [*map(str, path), str(column)] if flat.shape[1] > 1 else [*map(str, path)]
            yield " ".join([role, "/".join(place)]).strip(), flat[:, column]
