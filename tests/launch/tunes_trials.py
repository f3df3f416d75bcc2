"""Trials as Ray Tune shows them to its schedulers and callbacks."""

import types


class TunesTrial(types.SimpleNamespace):
    """A trial as Tune's schedulers see it."""

    def __hash__(self):
        return id(self)
