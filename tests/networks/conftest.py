"""Seeds of random weights."""

import pytest
import tensorflow as tf


@pytest.fixture(autouse=True)
def seed():
    """Gives every test the same weights in every run, since some compare rounded results of deep networks."""
    tf.keras.utils.set_random_seed(1)
