"""Errors that the user can fix."""


class CallboardError(Exception):
    """An error that the user can fix.

    The message is one line that says what is wrong and how to fix it.  It is shown without a traceback, and a node that
    raises it is not restarted.
    """
