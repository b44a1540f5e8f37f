"""The batches of a rank as a `tf.data.Dataset`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from tierfeed._native import Reconfigure
from tierfeed.feed import Feed
from tierfeed.loader import TRANSFORMED, feed_of
from tierfeed.position import order_digest
from tierfeed.tensorflow.fields import BESIDE_ROWS, UNNAMED, Fields
from tierfeed.tensorflow.library import library
from tierfeed.tensorflow.source import Source

Samples = Literal["array", "rows", "strings"]

# Calls that ask for batches in parallel. More hide no more of the round trip to the agent, and each
# keeps a batch.
CALLS_MAX = 4

# The batch in use, and the next one.
TRAINING_HOLDS = 2

# Nothing in these functions is for AutoGraph to rewrite.
_as_written = tf.autograph.experimental.do_not_convert


class Rows(NamedTuple):
    """Samples of different lengths, in one tensor of bytes."""

    data: Any
    """The whole batch, uint8; not copied."""
    starts: Any
    """Where each sample starts, int64."""
    lengths: Any
    """How long each sample is, int64."""

    def strings(self) -> Any:
        """The samples as a tensor of `tf.string`. Copies them."""
        return library().ops.tierfeed_strings(data=self.data, starts=self.starts, lengths=self.lengths)

    def ragged(self) -> Any:
        """The samples as a `tf.RaggedTensor` of uint8. Copies them."""
        bytes_of = tf.io.decode_raw(tf.strings.reduce_join(self.strings()), tf.uint8)
        return tf.RaggedTensor.from_row_lengths(bytes_of, self.lengths)


def dataset(
    source: Feed | str | os.PathLike[str] | None = None,
    *,
    epoch: int | range | None = None,
    start_step: int = 0,
    samples: Samples | None = None,
    sample_spec: Any = None,
    decode: Callable[[Any, Any], Any] | None = None,
    fields: Mapping[str, Any] | None = None,
    num_parallel_calls: int | None = None,
    dataset: str | None = None,
    **keys: Any,
) -> Any:
    """The batches of this rank, in the order of the job, as a `tf.data.Dataset`.

    `dataset("/data/train", batch_size=256, seed=42, epochs=90)` starts what it needs, as
    `tierfeed.connect` does; `keys` are the keys of a job file. Under `tierfeed run`, whose job file says
    all this, it is `dataset()`. It may also be made of a feed, several times.

    `dataset="validation"` names one of the `datasets` of that job file; the epochs are those of the job.

    It has all epochs of the job one after the other, or those of `epoch`, a number or a range; the first
    one from `start_step` on.

    An element is `(samples, labels)`; labels are int64, -1 without a label. The samples are

    - in a job with a transform (`transform=` of `tierfeed.transforms`) one tensor of all rows;
    - an array of uint8, `[batch, length]`, if all samples of the dataset have one length (`"array"`),
      or with `sample_spec`, a `tf.TensorSpec`, of that type and shape;
    - else `Rows` (`"rows"`), whose `strings()` and `ragged()` copy them;
    - or a tensor of `tf.string` (`"strings"`), which is a copy.

    Where a transform takes one of several fields of a sample, an element of
    `fields={"cls": tf.int64, "txt": tf.string}` is `(rows, {"cls": ..., "txt": ...})`: a tensor for each
    field by its type, or by a `tf.TensorSpec` if each sample has several numbers.

    With `decode(sample, label)`, a function of TensorFlow's graph, an element is a batch of what that
    returned for each sample, whose bytes it gets as a scalar `tf.string`.

    A batch keeps its place in staging memory until its last tensor is gone. Up to `num_parallel_calls`
    batches are held by the dataset itself; more than the agent stages become copies.
    """
    if num_parallel_calls is not None and num_parallel_calls < 1:
        raise ValueError(
            f"num_parallel_calls is {num_parallel_calls}; it must be 1 or more. Without it there are as"
            " many as hide the round trip to the agent, which tf.data.AUTOTUNE does not know"
        )
    is_given = isinstance(source, Feed)
    feed = _feed(source, keys if dataset is None else {**keys, "dataset": dataset})
    try:
        made = _Pipeline(feed, samples, sample_spec, decode, fields, owns_feed=not is_given)
        return made.dataset(_numbers(feed, epoch, start_step), num_parallel_calls)
    except BaseException:
        if not is_given:
            feed.close()
        raise


def source_of(data: Any) -> Source:
    """The source of a dataset that `dataset` made, for its figures; one derived from it has none."""
    source = getattr(data, "tierfeed", None)
    if not isinstance(source, Source):
        raise TypeError(f"{data!r} was not made by tierfeed.tensorflow.dataset()")
    return source


def _feed(source: object, keys: dict[str, Any]) -> Feed:
    return feed_of(source, keys, of=dataset)


def _numbers(feed: Feed, epoch: int | range | None, start_step: int) -> tuple[int, int]:
    """The numbers of the first batch, and of that after the last one, as the op counts them."""
    first_epoch = feed.order.start[0]
    epochs = range(first_epoch, feed.epochs) if epoch is None else epoch
    if isinstance(epochs, int):
        epochs = range(epochs, epochs + 1)
    if epochs.step != 1 or not 0 <= epochs.start <= epochs.stop <= feed.epochs:
        raise IndexError(f"epochs {epochs}; the job has {feed.epochs}, from 0, one after the other")
    epochs = range(max(epochs.start, first_epoch), epochs.stop)
    steps = feed.order.steps_in(epochs.start, feed.rank) if epochs else 0
    if not 0 <= start_step <= steps:
        raise IndexError(f"step {start_step}; epoch {epochs.start} has {steps}, from 0")
    whole = feed.steps_per_epoch
    # An epoch that the job starts in lacks its first numbers.
    return epochs.start * whole + whole - steps + start_step, epochs.stop * whole


def _given(**arguments: Any) -> str | None:
    """The name of the first argument that was passed."""
    return next((name for name, it in arguments.items() if it is not None), None)


class _Pipeline:
    """The stages of a dataset."""

    def __init__(
        self,
        feed: Feed,
        samples: Samples | None,
        spec: Any,
        decode: Callable[[Any, Any], Any] | None,
        fields: Mapping[str, Any] | None,
        *,
        owns_feed: bool,
    ) -> None:
        if (transform := feed.transform) is not None:
            if (given := _given(samples=samples, sample_spec=spec, decode=decode)) is not None:
                raise ValueError(TRANSFORMED.format(given))
            spec = tf.TensorSpec(transform.shape, tf.as_dtype(transform.dtype))
        has_fields = transform is not None and transform.has_fields
        if fields is not None and not has_fields:
            raise ValueError(BESIDE_ROWS)
        if decode is not None and (samples is not None or spec is not None):
            raise TypeError("decode gets the bytes of a sample: leave samples= and sample_spec= out")
        if spec is not None and samples not in (None, "array"):
            raise TypeError(f'sample_spec is of arrays, not of samples="{samples}"')
        form: str | None = "array" if spec is not None else samples
        if decode is not None or samples == "strings":
            form = "rows"
        elif samples not in (None, "array", "rows"):
            raise ValueError(f'samples is {samples!r}; it may be "array", "rows" or "strings"')
        self._feed = feed
        self._order = order_digest(feed)
        self._decode = decode
        self._is_strings = samples == "strings"
        self._fields = None if fields is None else Fields(fields)
        request = [] if self._fields is None else self._fields.request()
        self._source = Source(feed, form, request, owns_feed=owns_feed)
        if has_fields and self._fields is None and not self._source.has_labels:
            raise ValueError(UNNAMED)
        self._spec = spec
        self._check_spec()

    def dataset(self, numbers: tuple[int, int], calls: int | None) -> Any:
        """The dataset of the batches from one number up to another."""
        ops, feed = library().ops, self._source.number
        ahead = self._source.batches_ahead
        calls = max(1, min(CALLS_MAX, ahead - TRAINING_HOLDS)) if calls is None else calls
        order = tf.data.Dataset.range(*numbers)
        # A zip takes from its inputs in turn, and a scan never runs in parallel: so the time of the
        # first is when the pipeline asks, and the second runs when it takes the batch.
        wanted = order.scan(
            0, lambda state, number: (state, ops.tierfeed_wanted(number=number, feed=feed))
        )
        batches = order.map(
            lambda number: ops.tierfeed_batch(number=number, feed=feed),
            num_parallel_calls=calls,
            deterministic=True,
        )
        # The state of a scan is in checkpoints, where it says which order a number belongs to.
        saved = tf.constant(self._order, tf.int64)
        data = tf.data.Dataset.zip((wanted, batches)).scan(saved, _as_written(self._take))
        if self._decode is not None or self._is_strings:
            data = data.map(_as_written(self._decoded), num_parallel_calls=calls, deterministic=True)
        options = tf.data.Options()
        # A checkpoint holds the position, not the batches that are ahead of it.
        options.experimental_symbolic_checkpoint = True
        # The batches are those of this rank already.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        # A call that waits for a batch keeps its thread: those of the training are not for that.
        options.threading.private_threadpool_size = calls + len(os.sched_getaffinity(0))
        # Each batch that is prefetched keeps its place in staging memory.
        options.experimental_optimization.inject_prefetch = False
        data = data.with_options(options)
        # Kept by every dataset and iterator that is derived from it.
        data.tierfeed = self._source
        return data

    def _take(self, state: Any, element: tuple[Any, Any]) -> tuple[Any, Any]:
        wanted_ns, batch = element
        labels, fields = library().ops.tierfeed_delivered(
            wanted_ns=wanted_ns,
            ticket=batch.ticket,
            labels=batch.labels,
            fields=batch.fields,
            saved_order=state,
            order=tf.constant(self._order, tf.int64),
            feed=self._source.number,
        )
        count = self._static_count()
        labels.set_shape([count])
        data, length = batch.data, self._source.sample_bytes
        if length is not None:
            data.set_shape([count, length])
            beside = labels if self._fields is None else self._fields.tensors(fields, count)
            return state, (self._typed(data), beside)
        data.set_shape([None])
        batch.starts.set_shape([count])
        batch.lengths.set_shape([count])
        return state, (Rows(data, batch.starts, batch.lengths), labels)

    def _static_count(self) -> int | None:
        """The number of samples of every batch, if it is the same."""
        order = self._feed.order
        is_whole = order.samples_per_rank % order.batch_size == 0 and order.start[1] == 0
        # Batches may lack samples with `on_error: skip`.
        return order.batch_size if is_whole and self._feed.on_error == "fail" else None

    def _check_spec(self) -> None:
        spec, length = self._spec, self._source.sample_bytes
        if spec is None or length is None:
            return
        if not spec.shape.is_fully_defined() or spec.dtype.size == 0:
            raise ValueError(f"sample_spec is {spec}; it needs a number in each dimension")
        needed = spec.shape.num_elements() * spec.dtype.size
        if needed != length:
            raise Reconfigure(
                f"sample_spec is {spec}, of {needed} bytes; a sample of this dataset has {length}"
            )

    def _typed(self, data: Any) -> Any:
        if self._spec is None:
            return data
        shape, dtype = self._spec.shape.as_list(), self._spec.dtype
        if dtype.size > 1:
            data = tf.bitcast(tf.reshape(data, [-1, self._spec.shape.num_elements(), dtype.size]), dtype)
        elif dtype != tf.uint8:
            data = tf.bitcast(data, dtype)
        data = tf.reshape(data, [-1, *shape])
        data.set_shape([self._static_count(), *shape])
        return data

    def _decoded(self, rows: Rows, labels: Any) -> Any:
        strings = rows.strings()
        strings.set_shape([self._static_count()])
        if self._decode is None:
            return strings, labels
        decode = self._decode
        traced = tf.function(decode).get_concrete_function(
            tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
        )
        signature = tf.nest.map_structure(tf.type_spec_from_value, traced.structured_outputs)
        return tf.map_fn(lambda of: decode(*of), (strings, labels), fn_output_signature=signature)
