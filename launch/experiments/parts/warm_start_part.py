"""The weights that a run begins with, and those that it does not train."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class WarmStartPart:
    """The weights that a run begins with, and those that it does not train.

    Attributes:
      init_from: another run whose weights a new run begins with: `RUN`, `RUN@latest`, `RUN@best` or `RUN@STEP`, where
        RUN is a run directory, a path or a URL, and STEP a learner step; see docs/guides/warm_start.md.
      init_parts: only these parts of the network, such as `torso/*`; one pattern or several, in a list or separated by
        commas.  All parts by default.
      freeze: parts of the network that are not trained, given as for `init_parts`.
    """

    init_from: str | None = None
    init_parts: str | tuple[str, ...] = ()
    freeze: str | tuple[str, ...] = ()
