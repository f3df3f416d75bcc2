"""Seeds of environments, from the seed of the run."""

from typing import Literal

import numpy as np

Role = Literal["actor", "evaluator"]

_ROLES: tuple[Role, ...] = ("actor", "evaluator")


def environment_seeds(run_seed: int, role: Role, first_slot: int, count: int, incarnation: int = 0) -> list[int]:
    """Seeds of the environments in slots `first_slot` to `first_slot + count - 1`.

    A slot is an environment's global index among those of its role, so that the seeds do not depend on how environments
    are shared out to nodes.  Every slot hashes to 31 bits (all that some environments take): two of a thousand slots
    share a seed in one run out of four thousand.

    Args:
        run_seed: 0 or more.
        role: actors and evaluators have different seeds.
        first_slot: 0 or more.
        count: the number of seeds.
        incarnation: number of earlier starts of the node that steps the environments, so that one that is started
            again, and a run that is resumed, see new episodes.

    Raises:
        ValueError: a negative argument or an unknown role.
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
