"""The check of what an environment that cannot be made is refused with."""

import pytest

from callboard import environments
from callboard.errors import CallboardError


def assert_refused(name, options, message):
    """Asserts that an environment is refused with this one line, when it is made and when it is only checked."""
    for refuse in (lambda: environments.make(name, 2, [0, 1], options), lambda: environments.check(name, options)):
        with pytest.raises(CallboardError) as caught:
            refuse()
        assert str(caught.value) == message
