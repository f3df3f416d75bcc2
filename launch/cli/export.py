"""`callboard export`: writes the policy of a run as a SavedModel."""

import pathlib
from collections.abc import Sequence

from ..run_directory.remote_storage import local_copy
from ..settings import read_settings
from .command_parser import CommandParser
from .run_arguments import add_run_arguments


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser("callboard export", description="Writes the policy of a run as a SavedModel.")
    add_run_arguments(parser)
    parser.add_argument("directory", type=pathlib.Path, help="the directory of the SavedModel, new or empty")
    known = parser.parse_args(arguments)
    # The environment is not needed: the run has saved its spaces.
    experiment = read_settings(known.run, trust=known.trust).experiment()
    from ..trained.export import export_run

    with local_copy(known.run, known.checkpoint) as directory:
        exported = export_run(experiment, directory, known.directory, known.checkpoint)
    print(f"{known.run}/{exported.policy.relative_to(directory.path)} is now the SavedModel {known.directory}")
    for name in ("inputs", "outputs"):
        tensors = getattr(exported.signatures, name).items()
        print(f"{name}: " + ", ".join(f"{leaf} {spec.dtype.name}{spec.shape}" for leaf, spec in tensors))
    return 0
