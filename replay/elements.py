"""The elements of a dataset, with a wait for the next one that can be ended."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import tensorflow as tf
import tree
from tensorflow.python.eager import cancellation, context, execute

from ..data import Nest, rebuilt

# As in a call of a `tf.function`: where no kernel is for a device, the operation runs on the processor.
_SETTINGS = tf.compat.v1.ConfigProto(allow_soft_placement=True).SerializeToString()


Made = TypeVar("Made")


def made_again_if_changed(make: Callable[[], Made], key: Callable[[], object]) -> Callable[[], Made]:
    """A function that gives what `make` gave, until `key` gives something else.

    Datasets of one server are made once for all its incarnations: each that is made costs memory that stays.
    """
    kept: list[tuple[object, Made]] = []

    def get() -> Made:
        now = key()
        if not kept or kept[0][0] != now:
            kept[:] = [(now, make())]
        return kept[0][1]

    return get


class Elements(Iterable[Nest]):
    """The elements of a dataset, from its beginning each time.

    Args:
      dataset: of nests of tensors.
    """

    def __init__(self, dataset: tf.data.Dataset):
        self._dataset = dataset
        self._structure = dataset.element_spec
        # Traced once: what each trace adds to TensorFlow's memory stays there.
        self._next: Any = None

    def __iter__(self) -> "ElementIterator":
        iterator = iter(self._dataset)
        if self._next is None:
            following = tf.function(lambda iterator: tree.flatten(next(iterator)), autograph=False)
            self._next = following.get_concrete_function(iterator)
        return ElementIterator(iterator, self._next, self._structure)


class ElementIterator(Iterator[Nest]):
    """An iterator over a dataset, whose `next` can be ended.

    `next` of the dataset's own iterator takes a tenth of a millisecond of Python for an element of some ten tensors,
    and what waits in it for a server that is gone waits for ever, with its threads.

    Args:
      iterator: over the dataset.
      following: the function that gives the leaves of its next element.
      structure: of an element.
    """

    def __init__(self, iterator: Any, following: Any, structure: Nest):
        self._manager = cancellation.CancellationManager()
        self._iterator = iterator  # The dataset ends with it.
        self._structure = structure
        self._function = following
        self._inputs = [*tf.nest.flatten(iterator, expand_composites=True), *following.captured_inputs]
        types = [output.dtype.as_datatype_enum for output in following.outputs]
        self._outputs = len(types)
        self._attributes = (
            *("Tin", [value.dtype.as_datatype_enum for value in self._inputs], "Tout", types),
            *("f", following.name, "config", "", "config_proto", _SETTINGS, "executor_type", ""),
        )

    def __next__(self) -> Nest:
        try:
            outputs = execute.execute_with_cancellation(
                "StatefulPartitionedCall",
                self._outputs,
                self._inputs,
                self._attributes,
                context.context(),
                self._manager,
            )
        except tf.errors.OutOfRangeError:
            raise StopIteration from None
        return rebuilt(self._structure, iter(outputs))

    def cancel(self) -> None:
        """Ends what waits in `next`, from another thread: it raises `CanceledError`."""
        self._manager.start_cancel()
