"""Environment steps per second of an actor node whose episodes are recorded, relative to one whose episodes are not.

Both are the node of `acting`, with the recorder node in the other process.  A case counts the processor time of the
actor's main thread, which steps and acts, or seconds on the clock, which also pass while the thread that sends episodes
holds Python's lock.  Untrained policies play: in CartPole, every 20 timesteps of an environment end an episode.
"""

import functools
import time

from ..launch.node_rules import RULES
from .acting import Library, OurActor
from .harness import Case


def cases(quick: bool) -> list[Case]:
    sizes: list[tuple[Library, int]] = [("gymnasium vector", 64), ("gymnasium", 64), ("procgen", 64)]
    clocks = {"processor time": time.thread_time, "clock": time.perf_counter}
    return [
        Case(
            f"{library}, {name}",
            "environment steps/s",
            functools.partial(OurActor, library, batch_size, 0.5 if quick else 4.0, records=True, clock=clock),
            functools.partial(OurActor, library, batch_size, 0.5 if quick else 4.0, clock=clock),
            target=0.95,
            timestep=batch_size,
            rules=RULES["actor"],
        )
        for library, batch_size in sizes
        for name, clock in clocks.items()
    ]
