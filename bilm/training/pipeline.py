"""Windows of text -> what a training step eats, made on the host beside the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from bilm.errors import BilmError
from bilm.language_model import DIRECTIONS
from bilm.layers.sampled_softmax import Negatives
from bilm.options import ModelOptions
from bilm.training.sampling import LogUniformSampler
from bilm.data.vocabulary import PAD_CHAR

PREFETCH = 8
# Of the distinct words in a window of English 37 % are up to 6 bytes long with their marks, 77 % up
# to 9, 98 % up to 14. The character CNN then works at 0.65 of the places it had in one group.
GROUP_LENGTHS = (6, 9, 14, 24)
GROUP_ROWS, GROUP_ROWS_MIN, CHARACTER_STEP = 16, 8, 4
SUFFIX = {"forward": "", "backward": "_reverse"}


def model_batch(window: dict, options: ModelOptions) -> dict:
    """Replace a window's tokens by the list of the distinct ones and places in it.

    The encoder then sees each distinct token once. Nothing in it depends on the place, so the
    numbers are the same; of the tokens in 32 x 20 windows of two directions, 43 % are distinct.

    Args:
        window: as `LMDataset.iter_batches` gives it.
        options: what shapes the model.
    Returns: dict of `distinct` int32 (U,), or of characters in groups as `grouped` gives them, and
        for each direction `places` and `targets`, int32 (B, T).
    """
    directions = DIRECTIONS if options.bidirectional else DIRECTIONS[:1]
    key = "token_ids" if options.char_cnn is None else "tokens_characters"
    tokens = np.stack([window[key + SUFFIX[d]] for d in directions])
    lead = tokens.shape[:3]
    if options.char_cnn is None:
        distinct, places = np.unique(tokens.reshape(-1), return_inverse=True)
        distinct = distinct.astype(np.int32)
    else:
        rows, places = _distinct_rows(tokens.reshape(-1, tokens.shape[-1]).astype(np.int16))
        distinct, order = grouped(rows, options)
        places = order[places]
    places = places.reshape(lead).astype(np.int32)
    return {
        "distinct": distinct,
        "places": dict(zip(directions, places, strict=True)),
        "targets": {d: window["next_token_id" + SUFFIX[d]].astype(np.int32) for d in directions},
    }


def group_lengths(options: ModelOptions) -> list[int]:
    """Give how many characters a token of each group has at most; the last group has no bound."""
    widest = max(width for width, _ in options.char_cnn.filters)
    limit = options.char_cnn.max_characters_per_token
    return [length for length in GROUP_LENGTHS if length + widest < limit]


def grouped(rows: np.ndarray, options: ModelOptions) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Put tokens of like length together and cut the characters after them.

    Every window past a token and the widest filter sees padding alone, as one before it does: what
    is cut off changes no maximum. Rows of padding fill a group up to a few sizes, for each of
    which oneDNN makes and keeps code of its own.

    Args:
        rows: integer (U, C), a token each.
        options: what shapes the model.
    Returns: the groups, int32 (U_i, C_i), and the place of each token among all their rows, (U,).
        C_i is the bound of `group_lengths` and the widest filter, in the last group what its
        tokens need.
    """
    widest = max(width for width, _ in options.char_cnn.filters)
    lengths = (rows != PAD_CHAR).sum(axis=1)
    bounds = group_lengths(options)
    longest = int(lengths.max(initial=0))
    last = -(-(longest + widest) // CHARACTER_STEP) * CHARACTER_STEP
    widths = [bound + widest for bound in bounds] + [min(last, rows.shape[1])]
    member = np.searchsorted(bounds, lengths)
    groups, order, n_before = [], np.empty(len(rows), np.int64), 0
    for k, width in enumerate(widths):
        places = np.flatnonzero(member == k)
        step = GROUP_ROWS if len(places) > GROUP_ROWS_MIN else GROUP_ROWS_MIN
        n_rows = max(-(-len(places) // step) * step, step)
        group = np.full((n_rows, width), PAD_CHAR, np.int32)
        n_chars = min(width, rows.shape[1])
        group[: len(places), :n_chars] = rows[places, :n_chars]
        order[places] = n_before + np.arange(len(places))
        groups.append(group)
        n_before += n_rows
    return tuple(groups), order


def distinct_shapes(options: ModelOptions):
    """Give the shapes of `distinct` in a batch: one, or one a group of characters."""
    if options.char_cnn is None:
        return (None,)
    widest = max(width for width, _ in options.char_cnn.filters)
    return [(None, length + widest) for length in group_lengths(options)] + [(None, None)]


def _distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the distinct rows of a matrix and each row's place among them; bytes are compared."""
    rows = np.ascontiguousarray(rows)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    _, first, places = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], places


def replica_batches(
    windows: Iterable[dict],
    options: ModelOptions,
    n_replicas: int,
    sampler: LogUniformSampler | None,
    first_step: int = 0,
) -> Iterator[dict]:
    """Cut each window into its replicas' rows, replica after replica, and add their negatives.

    Args:
        windows: global windows; the rows of replica 0 stand above those of replica 1.
        options: what shapes the model.
        n_replicas: how many replicas share a window.
        sampler: draws the negatives; None for the full softmax.
        first_step: the number of the first window, by which draws are keyed.
    """
    for step, window in enumerate(windows, start=first_step):
        n_rows = window["token_ids"].shape[0] // n_replicas
        for replica in range(n_replicas):
            rows = slice(replica * n_rows, (replica + 1) * n_rows)
            part = {k: v[rows] for k, v in window.items() if v is not None}
            batch = model_batch(part, options)
            if sampler is not None:
                # They are compared with the draws: TensorFlow has no kernel for that on a GPU
                # with int32.
                targets = {d: ids.astype(np.int64) for d, ids in batch["targets"].items()}
                batch["targets"] = targets
                batch["negatives"] = {
                    d: sampler.draw((step, replica, k), ids.reshape(-1))
                    for k, (d, ids) in enumerate(targets.items())
                }
            yield batch


def batch_signature(options: ModelOptions, batch_size: int, unroll_steps: int, n_negatives: int):
    """Give the `tf.TensorSpec` of each part of a replica's batch; 0 negatives for none."""
    directions = DIRECTIONS if options.bidirectional else DIRECTIONS[:1]
    shape = batch_size, unroll_steps
    shapes = distinct_shapes(options)
    signature = {
        "distinct": (
            tf.TensorSpec(shapes, tf.int32)
            if options.char_cnn is None
            else tuple(tf.TensorSpec(shape, tf.int32) for shape in shapes)
        ),
        "places": dict.fromkeys(directions, tf.TensorSpec(shape, tf.int32)),
        "targets": dict.fromkeys(
            directions, tf.TensorSpec(shape, tf.int64 if n_negatives else tf.int32)
        ),
    }
    if n_negatives:
        draws = Negatives(
            tf.TensorSpec((n_negatives,), tf.int64),
            tf.TensorSpec((n_negatives,), tf.float32),
            tf.TensorSpec((batch_size * unroll_steps,), tf.float32),
        )
        signature["negatives"] = dict.fromkeys(directions, draws)
    return signature


def as_dataset(
    batches: Callable[[], Iterator[dict]],
    signature: dict,
    strategy: tf.distribute.Strategy,
    failures: list[BilmError] | None = None,
):
    """Make a distributed `tf.data` pipeline that prefetches.

    Args:
        batches: makes the iterator over replicas' batches anew.
        signature: of a batch, from `batch_signature`.
        strategy: where the batches go.
        failures: takes the errors of bad text; TensorFlow raises one of its own instead.
    """

    def remembering():
        try:
            yield from batches()
        except BilmError as error:
            if failures is not None:
                failures.append(error)
            raise

    def make(_):
        dataset = tf.data.Dataset.from_generator(remembering, output_signature=signature)
        return dataset.prefetch(PREFETCH)

    return strategy.distribute_datasets_from_function(make)
