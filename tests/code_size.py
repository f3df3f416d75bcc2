"""Prints how many modules, lines and classes each package of the library has: `python tests/code_size.py`."""

import pathlib
import re
from collections import Counter

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = (
    "agents",
    "cli",
    "environments",
    "files",
    "launch",
    "messages",
    "networks",
    "replay",
    "runtime",
    "settings",
    "studies",
)


def code_size():
    """Returns modules, lines and classes by package, as counters; those in the root are the package `callboard`."""
    modules, lines, classes = Counter(), Counter(), Counter()
    found = [("callboard", path) for path in ROOT.glob("*.py")]
    found += [(package, path) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    for package, path in found:
        text = path.read_text()
        modules[package] += 1
        lines[package] += text.count("\n")
        classes[package] += len(re.findall(r"^\s*class \w+", text, re.MULTILINE))
    return modules, lines, classes


if __name__ == "__main__":
    counts = code_size()
    print(f"{'package':<14}{'modules':>8}{'lines':>8}{'classes':>8}")
    for package in sorted(counts[0]):
        print(f"{package:<14}" + "".join(f"{count[package]:>8}" for count in counts))
    print(f"{'in all':<14}" + "".join(f"{count.total():>8}" for count in counts))
