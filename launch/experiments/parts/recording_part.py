"""Recorded episodes: those that are learned from, and those that are written."""

import dataclasses

from .quantities import Gigabytes


@dataclasses.dataclass(frozen=True)
class RecordingPart:
    """Recorded episodes: those that are learned from, and those that are written.

    Attributes:
      dataset: data sets of recorded episodes to learn from, see docs/guides/recorded_data.md: runs, paths, or names in
        Minari's folder, each with its share such as `PATH:0.3`; a list or separated by commas.  With `actors` 0 alone,
        and else beside what the actors play.
      record_episodes: whether whole training episodes are written to `episodes/` in the run directory, as a Minari data
        set; see docs/guides/recorded_data.md.
      record_infos: names of infos of the environment that are recorded with the episodes, such as `success,distance`;
        a list, or separated by commas.  `a.b` is the key `b` in a mapping `a`.
      record_limit: gigabytes of the data set beyond which no more episodes are recorded.
    """

    dataset: str | tuple[str, ...] = ()
    record_episodes: bool = False
    record_infos: str | tuple[str, ...] = ()
    record_limit: Gigabytes = 10.0
