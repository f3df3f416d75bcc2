"""`callboard export`: writes the policy of a run as a SavedModel."""

import pathlib
from collections.abc import Sequence

from ..errors import printable
from ..launch.experiments.settings import read_settings
from .command_parser import CommandParser
from .run_arguments import add_run_arguments, chosen_run, named_weights


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser("callboard export", description="Writes the policy of a run as a SavedModel.")
    add_run_arguments(parser)
    parser.add_argument("directory", type=pathlib.Path, help="the directory of the SavedModel, new or empty")
    known = parser.parse_args(arguments)
    reference = named_weights(known)
    # The environment is not needed: the run has saved its spaces.
    settings = read_settings(reference.run, trust=known.trust)
    with chosen_run(reference) as (directory, checkpoint):
        experiment = settings.experiment()
        from ..launch.trained.export import export_run

        exported = export_run(experiment, directory, known.directory, checkpoint)
    policy = exported.policy.relative_to(directory.path)
    print(printable(f"{reference.run}/{policy} is now the SavedModel {known.directory}"))
    for name in ("inputs", "outputs"):
        tensors = getattr(exported.signatures, name).items()
        print(printable(f"{name}: " + ", ".join(f"{leaf} {spec.dtype.name}{spec.shape}" for leaf, spec in tensors)))
    return 0
