"""`callboard dataset`: the numbers and videos of recorded episodes."""

import json
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from ..environments.recorded.dataset_summary import DatasetInfo, statistics
from ..errors import CallboardError, printable
from .command_parser import CommandParser

_MOST_CHOICES = 100


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        "callboard dataset",
        description="Shows recorded episodes: their returns, lengths and actions, or one as a video.",
    )
    parser.add_argument("what", choices=("info", "video"), help="what is shown")
    parser.add_argument(
        "dataset",
        metavar="PATH",
        help="a run that has recorded its episodes, the path of a data set, or the name of one in Minari's folder",
    )
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE", help="info: file of histograms (.png, .svg, .pdf)")
    parser.add_argument("--json", action="store_true", help="info: print JSON")
    parser.add_argument("--episode", type=int, metavar="N", help="video: number of the episode, from 0 on")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="video: the MP4 file (episode-N.mp4)")
    parser.add_argument(
        "--env", metavar="NAME", help="video: the environment that plays the episode again (the recorded one)"
    )
    known = parser.parse_args(arguments)
    others = ("episode", "output", "env") if known.what == "info" else ("plot", "json")
    for name in others:
        if getattr(known, name) not in (None, False):
            raise CallboardError(f"--{name} is not for callboard dataset {known.what}: leave it out")
    if known.what == "info":
        _show_info(known.dataset, known.plot, known.json)
        return 0
    if known.episode is None:
        raise CallboardError("callboard dataset video needs --episode, the number of the episode, from 0 on")
    from ..studies.datasets.dataset_video import write_video

    video = write_video(known.dataset, known.episode, known.output, known.env)
    print(printable(f"video: {video.path}"))
    if video.why_graph:
        print(f"It shows the recorded numbers, because {printable(video.why_graph)}.")
    return 0


def _show_info(dataset: str, plot: pathlib.Path | None, as_json: bool) -> None:
    from ..studies.datasets.dataset_info import dataset_info

    if plot is not None:
        from ..studies.comparison.curve_plots import check_plot

        check_plot(plot)
    found = dataset_info(dataset)
    if as_json:
        print(json.dumps(found.plain))
    else:
        rows = list(_rows(found))
        width = max(len(name) for name, _ in rows)
        print("\n".join(f"{printable(name).ljust(width)}  {printable(text)}" for name, text in rows))
    if plot is not None:
        from ..studies.datasets.dataset_plots import plot_dataset

        plot_dataset(found, plot)
        if not as_json:
            print(printable(f"plot: {plot}"))


def _rows(info: DatasetInfo) -> Iterator[tuple[str, str]]:
    yield "data set", info.name
    yield "folder", str(info.path)
    yield "environment", info.environment or "not named"
    if info.recorded_by:
        yield "recorded by", info.recorded_by if info.seed is None else f"{info.recorded_by}, seed {info.seed}"
    yield "observation", info.observation
    yield "action", info.action
    terminated = int(info.terminated.sum())
    yield "episodes", f"{len(info.returns):,}: {terminated:,} terminated, {len(info.returns) - terminated:,} cut off"
    yield "steps", f"{info.lengths.sum():,}"
    yield "size", f"{info.size / 1e6:,.1f} MB"
    if not len(info.returns):
        return
    yield "returns", _spread(info.returns)
    yield "lengths", _spread(info.lengths)
    for one in info.actions:
        name = f"action {one.name}".strip()
        if one.choices is None:
            yield name, _spread(one.values)
        else:
            fractions = enumerate(one.fractions[:_MOST_CHOICES], one.first)
            shown = [f"{value}: {fraction:.1%}" for value, fraction in fractions]
            more = [f"... of {one.choices:,}"] if len(shown) < one.choices else []
            yield name, ", ".join([*shown, *more])


def _spread(values: np.ndarray) -> str:
    of = statistics(values)
    quartiles = ", ".join(f"{of[name]:,.4g}" for name in ("quartile_1", "median", "quartile_3"))
    return f"{of['mean']:,.4g} ± {of['std']:,.4g}, from {of['min']:,.4g} to {of['max']:,.4g}; quartiles {quartiles}"
