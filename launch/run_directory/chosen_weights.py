"""Which weights of a run are meant, found by the names of its files, without TensorFlow."""

from collections.abc import Callable, Sequence

from ...errors import CallboardError
from .layout import CHECKPOINT_NAME, POLICIES, RunDirectory


def chosen_checkpoint(
    run_directory: RunDirectory,
    checkpoint: str,
    notify: Callable[[str], object] = lambda text: None,
    name: str = "",
    of_all: bool = False,
    others: Sequence[RunDirectory] = (),
) -> str:
    """Returns which weights to load: those that are named, or the best, or the latest of a run without a best.

    Args:
      run_directory: directory of the run, or of one of its policies.
      checkpoint: as in `RunReference`.
      notify: receives a line if the latest are taken because the run was never evaluated.
      name: the run as the user named it; its path by default.
      of_all: whether weights of all policies of the run are meant, not of one.
      others: directories of other policies that act with the same checkpoint, for the advice in the error.

    Raises:
      CallboardError: the run has no such checkpoint, or its policies have directories of their own.
    """
    policies = run_directory.policies
    if policies and not of_all:
        paths = [str(run_directory.path / POLICIES / policy) for policy in policies]
        if len(paths) == 1:
            raise CallboardError(
                f"the policy of the run in {run_directory.path} has a directory of its own; name {paths[0]}"
            )
        raise CallboardError(f"the run in {run_directory.path} has several policies; name one of {', '.join(paths)}")
    parts = [part for part in policies.values() if _choices(part)] or [run_directory]
    if not checkpoint:
        if all(_has_best(part) for part in parts):
            return "best"
        if all(_steps(part) for part in parts):
            was = "has damaged best weights" if any(_is_damaged(part, "best") for part in parts) else ""
            was = was or "was never evaluated, so it has no best weights"
            notify(f"{name or run_directory.path} {was}: takes the latest")
            return "latest"
    for part in parts:
        damaged = checkpoint == "latest" and any(part.checkpoints.glob("damaged-*"))
        if not damaged and _key(checkpoint) not in _choices(part):
            raise no_checkpoint(part, checkpoint, others or parts)
    return checkpoint


def no_checkpoint(run_directory: RunDirectory, checkpoint: str, others: Sequence[RunDirectory]) -> CallboardError:
    """Returns the error for weights that a run does not have, or that are damaged; see `chosen_checkpoint`."""
    choices = [choice for choice in _choices(run_directory) if all(choice in _choices(other) for other in others)]
    key = _key(checkpoint)
    if _is_damaged(run_directory, key):
        alone = choices[-2:] == ["latest", key]
        others_too = [choice for choice in choices if choice != key and not (alone and choice == "latest")]
        hint = f", or choose from {', '.join(others_too)}" if others_too else ""
        which = (
            f"{run_directory.best_policy} is"
            if key == "best"
            else f"{run_directory.path} has a checkpoint {key} that is"
        )
        return CallboardError(f"{which} damaged; replace it by a copy{hint}")
    hint = f"choose from {', '.join(choices)}" if choices else "train it for longer"
    why = ", since it was never evaluated" if checkpoint == "best" else ""
    return CallboardError(f"{run_directory.path} has no checkpoint{checkpoint and f' {checkpoint}'}{why}; {hint}")


def _choices(run_directory: RunDirectory) -> list[str]:
    """Returns the checkpoints of a policy: `best`, `latest` and the learner steps that there are."""
    steps = _steps(run_directory)
    return [*(["best"] if _has_best(run_directory) else []), *(["latest"] if steps else []), *map(str, steps)]


def _has_best(run_directory: RunDirectory) -> bool:
    return any(path.exists() for path in (run_directory.best_policy, run_directory.best_policy_before))


def _is_damaged(run_directory: RunDirectory, checkpoint: str) -> bool:
    """Returns whether a checkpoint that cannot be used is there, perhaps set aside."""
    name = f"{int(checkpoint):012d}" if checkpoint.isdecimal() else checkpoint or "[!.]"
    return checkpoint in _choices(run_directory) or any(run_directory.checkpoints.glob(f"damaged-{name}*"))


def _steps(run_directory: RunDirectory) -> list[int]:
    names = (CHECKPOINT_NAME.fullmatch(path.name) for path in run_directory.checkpoints.glob("*"))
    return sorted({int(name[1]) for name in names if name})


def _key(checkpoint: str) -> str:
    """Returns a checkpoint as in `_choices`; the name of a directory stands for its learner step."""
    found = CHECKPOINT_NAME.fullmatch(checkpoint)
    return str(int(found[1])) if found else checkpoint
