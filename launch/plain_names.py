"""Names that users give, as others take them: commands, TensorFlow, Prometheus, MLflow, Matplotlib, and Markdown."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from ..errors import printable

_DIGEST = 8
"""Digits of the hash at the end of a name that was too long."""


def in_markdown(text: str) -> str:
    """Returns a text for a line of Markdown, in which it makes no link, HTML, code or cell of its own."""
    return re.sub(r"([\\`<|]|\](?=[(\[:]))", r"\\\1", printable(text))


def as_code(text: str) -> str:
    """Returns a text for a line of Markdown as code, or as `in_markdown` where one of its characters would end that."""
    return f"`{text}`" if text and text.isprintable() and not set("`|") & set(text) else in_markdown(text)


def in_command(path: object) -> str:
    """Returns a path as a word of a command, which does not take it for an option."""
    text = str(path)
    return f"./{text}" if text.startswith("-") else text


def in_plot(text: str) -> str:
    """Returns a text for a plot, in which Matplotlib sees no formula, and no label that a legend leaves out."""
    shown = "\n".join(map(printable, text.split("\n"))).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def plain_names(names: Sequence[str], also: str = "", longest: int | None = None) -> list[str]:
    """Returns a name of ASCII letters, digits and `_` for each name, no two of them the same in small letters.

    Another character becomes `_`, and one beyond ASCII its number, as `_xf6_` for `ö`.  In names that would then be the
    same, every character becomes its number.

    Args:
      names: the names, in an order that does not change.
      also: further characters that may stay.
      longest: characters that a name may have; a longer one ends in a hash of itself.  None for any number.
    """
    if longest is not None:
        names = plain_names(names, also)
        return [name if len(name) <= longest else f"{name[: longest - _DIGEST]}{_digest(name)}" for name in names]
    short = [_plain(name, also, by_number=False) for name in names]
    # TensorFlow compares the names of tensors in small letters.
    counts = Counter(map(str.lower, short))
    found: dict[str, str] = {}
    for name, brief in zip(names, short, strict=True):
        plain = brief if counts[brief.lower()] == 1 else _plain(name, also, by_number=True)
        while plain.lower() in found or (counts[plain.lower()] and plain != brief):
            plain += "_"
        found[plain.lower()] = plain
    return list(found.values())


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]


def _plain(name: str, also: str, by_number: bool) -> str:
    def replacement(match: re.Match[str]) -> str:
        return f"_x{ord(match[0]):x}_" if by_number or not match[0].isascii() else "_"

    return re.sub(rf"[^0-9A-Za-z_{re.escape(also)}]", replacement, name)
