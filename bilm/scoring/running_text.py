"""Perplexity of held-out text by a biLM in Keras, whose state continues from sentence to sentence.

Training and `bilm test` use it; `Scorer` scores single sentences.
"""

from keras import ops

from bilm.data.dataset import BidirectionalLMDataset, LMDataset, Windows
from bilm.data.shards import TextFiles
from bilm.data.vocabulary import Vocabulary
from bilm.data.windows import model_batch
from bilm.errors import DataError, explaining_memory
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.layers.types import State
from bilm.scoring.perplexity import LossCounter, Perplexity
from bilm.support.progress import Progress

N_STEPS = 20  # minimum number of steps in a window
PREDICTIONS_A_WINDOW = 640  # predictions in a window, unless N_STEPS requires more


def heldout_dataset(filepattern: TextFiles, vocab: Vocabulary, bidirectional: bool) -> LMDataset:
    """Return a dataset that reads each sentence of held-out text once, in order."""
    reader = BidirectionalLMDataset if bidirectional else LMDataset
    return reader(filepattern, vocab, test=True)


def heldout_windows(dataset: LMDataset, batch_size: int, drop_remainder: bool = False) -> Windows:
    """Yield the windows of held-out text: see `perplexity`."""
    n_steps = max(N_STEPS, PREDICTIONS_A_WINDOW // batch_size)
    windows = dataset.iter_evaluation(batch_size, n_steps, drop_remainder)
    first = next(windows, None)
    if first is None:
        raise DataError(
            f"{dataset.shards.name}: no predictions to measure: the text is empty or has fewer "
            f"sentences than the {batch_size} rows requested; reduce batch_size"
        )
    yield first
    yield from windows


class Evaluator:
    """Computes the perplexity of a `BiLM` with its softmax; compiled once for all texts. `unk` is
    the id of unknown words; -1 for none."""

    def __init__(self, model: BiLM, unk: int):
        self.model = model
        self.unk = unk
        self._run = compiled(self._window, gradients=False)

    def __call__(
        self, windows: Windows, state: State | None = None, bar: Progress | None = None
    ) -> Perplexity:
        """Return the perplexity of the text of `heldout_windows`; `state`: the initial one of the
        rows, None for zero state."""
        counter = LossCounter()
        for window in windows:
            mask = window["mask"]
            if state is None:
                state = self.model.zero_state(len(mask))
            batch = model_batch(window, self.model.options)
            losses, state = self._run(batch, mask, state)
            for direction, targets in batch["targets"].items():
                of_places = ops.convert_to_numpy(losses[direction])
                counter.add_losses(direction, of_places[mask], targets[mask] != self.unk)
            if bar is not None:
                bar.add(int(mask.sum()))
        return counter.perplexity()

    def _window(self, batch, mask, state):
        """Return the loss at each place by direction, float (B, T), and the next state."""
        outputs, state = self.model.windows(self.model.encode(batch), state, mask=mask)
        return self.model.losses(outputs, batch["targets"]), state


def perplexity(
    model: BiLM,
    dataset: LMDataset,
    batch_size: int,
    drop_remainder: bool = False,
    state: State | None = None,
) -> Perplexity:
    """Return the perplexity of a `BiLM` with its softmax on held-out text.

    Args:
        dataset: reads the text with `test=True`, in the directions of the model.
        batch_size: number of rows. Each sentence is read by the first row that is free, from the
            state after that row's previous sentence, so the result depends on the number of rows.
        drop_remainder: stop at the step at which a row finds no more text, as the reference does.
        state: see `Evaluator`.
    Raises: DataError if there are no predictions; OutOfMemoryError.
    """
    with explaining_memory(dataset.shards.name, "batch_size"):
        windows = heldout_windows(dataset, batch_size, drop_remainder)
        bar = Progress("evaluating", "predictions per direction")
        return Evaluator(model, dataset.vocab.unk)(windows, state, bar)
