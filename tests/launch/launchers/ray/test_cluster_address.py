"""The address of a Ray cluster."""

import pytest

from callboard.errors import CallboardError
from callboard.launch.launchers.ray.cluster_address import check_address


@pytest.mark.parametrize("address", [None, "", "auto", "local", "10.0.0.1:6379"])
def test_addresses_of_clusters_are_accepted(address):
    check_address(address)


def test_the_address_of_a_ray_client_is_refused_in_one_line():
    with pytest.raises(CallboardError, match="not reach it through ray://head:10001; log in there") as raised:
        check_address("ray://head:10001")
    assert "\n" not in str(raised.value)
