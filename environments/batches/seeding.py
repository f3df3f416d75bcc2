"""Seeds of environments, derived from the seed of the run."""

from typing import Literal

import numpy as np

Role = Literal["actor", "evaluator"]

_ROLES: tuple[Role, ...] = ("actor", "evaluator")


def environment_seeds(run_seed: int, role: Role, first_slot: int, count: int, incarnation: int = 0) -> list[int]:
    """Returns the seeds of the environments in slots `first_slot` to `first_slot + count - 1`.

    A slot is an environment's global index among those of its role, so seeds do not depend on how environments are
    assigned to nodes.  Every slot is hashed to 31 bits, the most that some environments take; with a thousand slots,
    one run in four thousand has two slots with the same seed.

    Args:
      run_seed: seed of the run, at least 0.
      role: role of the node; actors and evaluators have different seeds.
      first_slot: the first slot, at least 0.
      count: the number of seeds.
      incarnation: number of earlier starts of the node that steps the environments, so that a restarted node or a
        resumed run begins different episodes.

    Raises:
      ValueError: if an argument is negative or the role is unknown.
    """
    if min(run_seed, first_slot, count, incarnation) < 0:
        raise ValueError(
            f"run seed {run_seed}, first slot {first_slot}, count {count} and incarnation {incarnation} must not be "
            "negative"
        )
    role_index = _ROLES.index(role)
    key = (incarnation,) if incarnation else ()
    return [
        int(np.random.SeedSequence(run_seed, spawn_key=(role_index, slot, *key)).generate_state(1)[0]) >> 1
        for slot in range(first_slot, first_slot + count)
    ]
