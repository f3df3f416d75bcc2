"""Imports that the forkserver performs once for all nodes.

Nothing here may touch a TensorFlow device or start a thread, because nodes are forks of the process that imports this
module.
"""

import courier  # noqa: F401
import gymnasium  # noqa: F401
import launchpad  # noqa: F401
import reverb  # noqa: F401
import tensorflow as tf

# Keras is loaded lazily, on first access.
tf.keras.layers  # noqa: B018

from ..agents import impala  # noqa: F401, E402
from . import program  # noqa: F401, E402
