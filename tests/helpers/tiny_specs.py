"""`RunSpec`s of tiny runs, without files and without TensorFlow."""

import math

from bilm.data.shards import Shards
from bilm.data.vocabulary import Vocabulary
from bilm.options.run_options import RunOptions
from bilm.scoring.verdict import Comparison
from bilm.storage.run_record import HeldoutFiles
from bilm.training.settings import RunSettings
from bilm.training.spec import Heldout, RunSpec, RunTexts, epoch_steps, evaluation_steps

WORDS = ["<S>", "</S>", "<UNK>", *(f"w{k}" for k in range(46))]


def heldout_of(n_predictions: int, repeated: tuple[int, ...] = ()) -> Heldout:
    """A held-out text of so many predictions per direction."""
    shards = Shards(["heldout.txt"], left_out=set(repeated))
    compared = Comparison(0.1, 500.0, 400.0, 200.0, 150.0, n_predictions=n_predictions)
    files = HeldoutFiles(["heldout.txt, 9 bytes"], list(repeated))
    return Heldout(shards, files, compared)


def spec_of(
    options: RunOptions,
    n_steps: int | None = None,
    heldout: Heldout | None = None,
    n_rows: int | None = None,
    **others,
) -> RunSpec:
    """A run with these options; its length follows from `n_epochs` unless `n_steps` is given."""
    n_rows = n_rows or options.batch_size
    n_heldout = heldout.n_predictions if heldout else 0
    texts = RunTexts(
        text=Shards(["text.txt"]),
        text_files=["text.txt, 9 bytes"],
        vocab=Vocabulary("vocab.txt", words=WORDS),
        n_train_tokens=options.n_train_tokens,
        once_from=None,
        heldout=heldout,
    )
    values = {
        "options": options,
        "n_rows": n_rows,
        "texts": texts,
        "n_steps": n_steps or options.n_epochs * epoch_steps(options, n_rows),
        "eval_steps": evaluation_steps(options, n_rows, n_heldout),
        "settings": RunSettings(),
        "deadline": math.inf,
    }
    return RunSpec(**values | others)
