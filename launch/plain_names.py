"""Names that users give, in the letters that other libraries accept: TensorFlow, Prometheus and MLflow."""

import re
from collections import Counter
from collections.abc import Sequence


def plain_names(names: Sequence[str], also: str = "") -> list[str]:
    """Returns a name of ASCII letters, digits and `_` for each name, no two of them the same.

    Another character becomes `_`, and one beyond ASCII its number, as `_xf6_` for `ö`.  In names that would then be the
    same, every character becomes its number.

    Args:
      names: the names, in an order that does not change.
      also: further characters that may stay.
    """
    short = [_plain(name, also, by_number=False) for name in names]
    counts = Counter(short)
    found: dict[str, None] = {}
    for name, brief in zip(names, short, strict=True):
        plain = brief if counts[brief] == 1 else _plain(name, also, by_number=True)
        while plain in found or (counts[plain] and plain != brief):
            plain += "_"
        found[plain] = None
    return list(found)


def _plain(name: str, also: str, by_number: bool) -> str:
    def replacement(match: re.Match[str]) -> str:
        return f"_x{ord(match[0]):x}_" if by_number or not match[0].isascii() else "_"

    return re.sub(rf"[^0-9A-Za-z_{re.escape(also)}]", replacement, name)
