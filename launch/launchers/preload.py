"""What the forkserver imports once, so that no node has to.

Nothing here may touch a TensorFlow device or start a thread: the nodes are forks of the process that imported this.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import courier  # noqa: F401
import gymnasium  # noqa: F401
import launchpad  # noqa: F401
import reverb  # noqa: F401
import tensorflow as tf

# Keras is loaded when it is first looked at.
tf.keras.layers  # noqa: B018

from ...agents import impala  # noqa: F401, E402
from ..cli import command  # noqa: F401, E402
