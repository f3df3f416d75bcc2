"""Experiments of bsuite (Osband et al. 2020), by name (`bsuite:catch/0`)."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..batches.batched import BatchedEnvironment, check_seeds
from ..batches.user_errors import creation_errors, keywords, needs_package, unknown_environment, unknown_option
from .dm_env_adapter import DmEnvBatch

_PREFIX = "bsuite:"


def make_bsuite(name: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes a batch of an experiment of bsuite.

    Every environment gets its own seed in place of the experiment's, where the experiment is random.  What defines the
    problem itself (`mapping_seed`) is the same in all.

    Args:
      name: `<experiment>/<setting>`, such as `catch/0`.
      batch_size: the number of environments.
      seeds: one seed per environment.
      options: arguments of the experiment that replace those of the setting, such as `memory_length`.

    Raises:
      CallboardError: if the experiment or an option is unknown, or bsuite is not installed.
    """
    create = check_bsuite(name, options)
    check_seeds(batch_size, seeds)
    takes_seed = "seed" in keywords(create)[0]
    own_seeds = [{"seed": int(seed)} if takes_seed else {} for seed in seeds]
    with creation_errors(_PREFIX + name, TypeError, ValueError, AssertionError):
        return DmEnvBatch([create(**own_seed) for own_seed in own_seeds])


def check_bsuite(name: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Checks an experiment and options without making an environment; returns what makes one, from a seed or nothing.

    Raises:
      CallboardError: if the experiment or an option is unknown, or bsuite is not installed.
    """
    full = _PREFIX + name
    with needs_package(full, "bsuite", "callboard[bsuite]"):
        known = bsuite_names()
        from bsuite import bsuite, sweep
    if name not in known:
        otherwise = "give an experiment and a setting, such as 'bsuite:catch/0'"
        raise unknown_environment(full, known, otherwise, _PREFIX)
    create = bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT[name.partition("/")[0]]
    taken = [key for key in keywords(create)[0] if key != "seed"]
    for key in options:
        if key not in taken:
            raise unknown_option(full, key, taken)
    arguments = {key: value for key, value in {**sweep.SETTINGS[name], **options}.items() if key != "seed"}
    return functools.partial(create, **arguments)


def bsuite_names() -> list[str]:
    """Returns the names of all experiments with their settings, such as `catch/0`.

    Raises:
      ImportError: bsuite is not installed.
    """
    from bsuite import sweep

    return list(sweep.SETTINGS)
