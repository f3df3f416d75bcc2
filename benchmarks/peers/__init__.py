"""Other libraries on the same tasks; each trains in its own virtual environment, which `setup` creates.

The modules in `inside` run there, and import nothing from Callboard.
"""

from .rounds import measure

__all__ = ["measure"]
