"""Shows a recorded episode as a video: its own pictures, those of its environment, or a graph of its numbers."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tree

from ...environments import BatchedEnvironment, factory
from ...environments.recorded import open_data
from ...environments.recorded.recorded_data import RecordedData, RecordedEpisode
from ...errors import CallboardError, check_type, exits_refused, named_path
from ...launch.experiments.recorded_metadata import is_harmless, recorded_environment
from ...launch.pictures.video_files import FRAMES_PER_SECOND, even, video_file
from ...settings.setting_arguments import checked_names
from ...settings.setting_types import converted

_LEAST_SIDE = 256
"""Smaller pictures are enlarged."""
_TOLERANCE = 1e-4


class EpisodeVideo(NamedTuple):
    """The video of an episode."""

    path: pathlib.Path
    why_graph: str
    """Why it shows a graph of the recorded numbers; empty if it shows pictures."""


@exits_refused()
@checked_names
def dataset_video(
    dataset: str | os.PathLike[str],
    episode: int,
    path: str | os.PathLike[str] | None = None,
    env: str | None = None,
) -> pathlib.Path:
    """Writes a recorded episode as a video, one frame for each observation.

      The frames are the first picture in the observations.  Without one, the episode's environment is made, reset with
      the episode's seed, and plays the recorded actions; that its observations are those that were recorded is checked.
      Where there is no seed, no environment that may be made, or one that plays differently, the frames are a graph of
    the recorded numbers.

      Args:
        dataset: a run that has recorded its episodes, the path of a data set, or the name of one in Minari's folder.
        episode: number of the episode, from 0 on.
        path: the MP4 file; None for `episode-N.mp4` in the working directory.
        env: name of the environment that plays it again; by default the one that the data set names, if it is one of a
          library that Callboard knows, with options that name no file.

      Returns:
        The path of the file.

      Raises:
        CallboardError: there is no such episode, or `env` plays it differently.
    """
    return write_video(dataset, episode, path, env).path


def write_video(
    dataset: str | os.PathLike[str], episode: int, path: str | os.PathLike[str] | None, env: str | None
) -> EpisodeVideo:
    """Writes a recorded episode as a video, see `dataset_video`."""
    episode = converted("episode", episode, int)
    check_type("env", env, str | None, "the name of an environment")
    data = open_data(dataset)
    if not 0 <= episode < data.total_episodes:
        raise CallboardError(
            f"there is no episode {episode} in the data set {data.name}, which has {data.total_episodes:,}; they are "
            "numbered from 0"
        )
    path = pathlib.Path(f"episode-{episode}.mp4" if path is None else named_path(path, "video"))
    if path.suffix != ".mp4":
        raise CallboardError(f"a video is an MP4 file: name one that ends in .mp4, not {path.name!r}")
    (recorded,) = data.episodes([episode])
    pictures = _pictures(recorded.observation)
    if pictures is not None:
        with video_file(path, FRAMES_PER_SECOND) as write:
            for picture in pictures:
                write(even(_enlarged(picture)))
        return EpisodeVideo(path, "")
    named, seed = recorded_environment(data.metadata), data.seed(episode)
    why = _why_not_played(data, named, seed, env)
    not_shown = f"episode {episode} of the data set {data.name} cannot be shown"
    if why and env is not None:
        raise CallboardError(f"{not_shown} in {env}: {why}; leave env out for a graph of the recorded numbers")
    if not why:
        assert seed is not None
        name, options = named if named is not None and env in (None, named[0]) else (env or "", {})
        try:
            with contextlib.closing(_made(name, seed, options)) as environment:
                data.require_fit(environment.spec)
                with video_file(path, environment.frames_per_second or FRAMES_PER_SECOND) as write:
                    _play(environment, recorded, lambda frame: write(even(frame)))
            return EpisodeVideo(path, "")
        except CallboardError as error:
            if env is not None:
                raise CallboardError(f"{not_shown}: {error}") from error
            why = str(error)
    with video_file(path, FRAMES_PER_SECOND) as write:
        for frame in episode_frames(recorded):
            write(even(frame))
    return EpisodeVideo(path, why)


def _why_not_played(
    data: RecordedData, named: tuple[str, dict[str, Any]] | None, seed: int | None, env: str | None
) -> str:
    """Returns why no environment plays an episode again; empty if one does."""
    if seed is None:
        seeded = [str(index) for index in range(data.total_episodes) if data.seed(index) is not None][:5]
        others = f"; those of episodes {', '.join(seeded)} are known" if seeded else ""
        return f"it is not known with which seed the episode began{others}"
    if env is None and named is None:
        return "the data set names no environment that could play it again: name it with --env"
    if env is None and not is_harmless(*(named or ("", {}))):
        return (
            f"the data set names the environment {named and named[0]!r}, and only those of libraries are made for a "
            "data set, with options that name no file: name it with --env if you trust it"
        )
    return ""


def _pictures(observation: Any) -> np.ndarray | None:
    """Returns the first pictures of observations, uint8 `[T + 1, H, W, 3]`; None if there are none."""
    for leaf in tree.flatten(observation):
        if leaf.ndim == 4 and leaf.dtype == np.uint8 and leaf.shape[-1] in (1, 3, 4):
            # Four channels are frames of one channel, or colors with transparency.
            one = leaf[..., -1:] if leaf.shape[-1] in (1, 4) else leaf
            return np.broadcast_to(one, (*one.shape[:-1], 3))
    return None


def _enlarged(picture: np.ndarray) -> np.ndarray:
    factor = max(1, -(-_LEAST_SIDE // min(picture.shape[:2])))
    return np.ascontiguousarray(picture.repeat(factor, axis=0).repeat(factor, axis=1))


def _made(name: str, seed: int, options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes the environment of an episode, which its reset begins as the recorded one began."""
    # Without this, SDL, with which Gymnasium renders, requires a display.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    return factory.made_to_draw(lambda further: factory.make(name, 1, [seed], {**options, **further}))


def _play(environment: BatchedEnvironment, recorded: RecordedEpisode, write: Callable[[np.ndarray], None]) -> None:
    """Plays a recorded episode and passes on a frame for each observation."""
    timestep = environment.reset()
    for time in range(recorded.length + 1):
        if timestep.last[0] and time < recorded.length:
            break
        same = tree.map_structure(
            lambda seen, kept, time=time: np.allclose(seen[0], kept[time], atol=_TOLERANCE, rtol=_TOLERANCE),
            timestep.observation,
            recorded.observation,
        )
        if not all(tree.flatten(same)):
            raise CallboardError(
                f"played again, it differs from step {time} on; its environment has changed, or is not deterministic"
            )
        write(environment.render())
        if time < recorded.length:
            timestep = environment.step(
                tree.map_structure(lambda leaf, time=time: leaf[time][np.newaxis], recorded.action)
            )


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
