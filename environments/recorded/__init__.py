"""Recorded episodes: written from any environment as a Minari data set, and read again as an agent's timesteps."""

from .chosen_infos import parse_record_infos
from .episode_feed import EpisodeFeed
from .episode_files import EpisodeFiles
from .episode_recorder import EpisodeRecorder, RecordedEnvironment
from .minari_package import require_minari
from .recorded_data import RecordedData, Source, open_data, parse_sources, source_of

__all__ = [
    "EpisodeFeed",
    "EpisodeFiles",
    "EpisodeRecorder",
    "RecordedData",
    "RecordedEnvironment",
    "Source",
    "open_data",
    "parse_record_infos",
    "parse_sources",
    "require_minari",
    "source_of",
]
