"""The names of environments that are known without the user's own code."""

import contextlib

import gymnasium

from . import minatar, procgen


def names() -> list[str]:
    """Every name that `make` takes, except for `package.module:factory`; the package of some may be missing."""
    # Registers its ids with Gymnasium, where it is installed.
    with contextlib.suppress(ImportError):
        import ale_py  # noqa: F401
    # Ids that only say that they have moved elsewhere have a function in place of an environment.
    made = (
        id
        for id, spec in gymnasium.registry.items()
        if not getattr(spec.entry_point, "__name__", "").startswith("_raise_")
    )
    games = (f"procgen:{game}" for game in procgen.GAMES)
    return sorted({*made, *games, *(minatar.NAMESPACE + id for id in minatar.IDS)})
