"""Waiting until a replay server has taken what a writer has sent."""

import reverb


def flushed(writer: reverb.TrajectoryWriter, timeout: float, max_pending: int) -> bool:
    """Sends what a writer holds, and waits until the server has confirmed it.

    Args:
      writer: the writer.
      timeout: maximum time to wait, in seconds; at least a millisecond is waited.
      max_pending: number of items that may remain unconfirmed.

    Returns:
      Whether only that many are unconfirmed.
    """
    try:
        # Reverb waits forever if the timeout is 0.
        writer.flush(max_pending, max(1, int(1000 * timeout)))
    except reverb.errors.DeadlineExceededError:
        return False
    return True
