"""A lock for Python code that makes TensorFlow operations for the first time, as building and tracing do.

The dispatcher of an operation in TensorFlow 2.12 is not safe in several threads at once: processes whose nodes built
their networks in threads at the same time have crashed in it.  So they build networks, learners and datasets,
and trace functions, in turn.
"""

import threading

TRACING = threading.RLock()
