"""The address of a Ray cluster, checked before Ray is imported."""

from ....errors import CallboardError


def check_address(address: str | None) -> None:
    """Raises `CallboardError` for a Ray client address, from which the cluster cannot reach this process."""
    if (address or "").startswith("ray://"):
        raise CallboardError(
            f"the command must run on a machine of the cluster, not reach it through {address}; log in there, or use "
            "`ray job submit`, with --ray-address auto"
        )
