"""Makes `scripted_environments` importable by name, as a module in a user's working directory is."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
