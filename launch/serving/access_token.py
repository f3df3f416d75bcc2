"""The token that clients of a policy server must send."""

import contextlib
import hmac
import os
import pathlib
import secrets
import stat
import tempfile

from ...errors import CallboardError

_LEAST, _MOST = 16, 1024


def read_token(path: pathlib.Path) -> str:
    """Returns the token in a file.

    Raises:
      CallboardError: there is none, it is too short, or other users can read the file.
    """
    try:
        with open(path, encoding="ascii") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise CallboardError(f"other users can read the token in {path}: chmod 600 {path}")
            token = file.read(_MOST + 2).strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise CallboardError(f"the token file {path} cannot be read: {reason}") from error
    if not (_LEAST <= len(token) <= _MOST and token.isprintable() and " " not in token):
        raise CallboardError(f"the token in {path} must have {_LEAST} to {_MOST} letters and digits in one line")
    return token


def make_token(path: pathlib.Path) -> str:
    """Returns the token in a file of the run's own; a new one if there is none, or if others know that one.

    They do if the run directory was shared, or made by another user.
    """
    if path.exists() and _is_known(path):
        path.unlink()
    if not path.exists():
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{secrets.token_urlsafe(24)}\n")
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            os.unlink(draft)
    return read_token(path)


def _is_known(path: pathlib.Path) -> bool:
    """Returns whether another user owns the file of a token, or can read it."""
    status = os.lstat(path)
    return status.st_uid != os.geteuid() or bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def is_token(given: str, token: str) -> bool:
    """Returns whether the value of an `Authorization` header holds the token, in a time that does not depend on it."""
    scheme, _, rest = given.partition(" ")
    # What is not UTF-8 has been decoded to surrogates.
    is_right = hmac.compare_digest(rest.strip(" ").encode(errors="surrogatepass"), token.encode())
    return is_right and scheme.lower() == "bearer"
