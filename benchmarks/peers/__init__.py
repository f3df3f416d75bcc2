"""Other libraries on the same work: each trains in a virtual environment of its own, which `setup` makes.

What is in `inside` runs there, and imports nothing of ours.
"""

from .rounds import measure

__all__ = ["measure"]
