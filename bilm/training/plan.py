"""What a run reads and what it will do: vocabulary, texts, options and number of steps."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from absl import logging

from bilm.data.dataset import LMDataset
from bilm.data.shards import Shards, sentence_digest
from bilm.data.stream import describe_shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError, WeightsError
from bilm.options.run_options import RunOptions
from bilm.scoring.ngrams import Ngrams, text_ids
from bilm.scoring.verdict import Comparison
from bilm.storage.checkpoint import Checkpoint
from bilm.storage.run_record import RunRecord
from bilm.support.remote import RemoteError
from bilm.training.evaluation import heldout_dataset
from bilm.training.settings import RunSettings
from bilm.training.survey import Survey, log_survey, once_from


class Heldout(NamedTuple):
    """The held-out text, and what to compare the model with."""

    reader: LMDataset
    described: list[str]  # files before they were read, see `describe_shards`, and what is left out
    n_predictions: int  # per direction
    compared: Comparison


class Texts(NamedTuple):
    """The results of reading the texts of a run."""

    options: RunOptions  # the requested ones, with the sizes of corpus and vocabulary
    ngrams: Ngrams | None  # of the training text; None if a resumed run measures nothing
    compared: dict[str, Any] | None  # the result of `compare_texts`, which checkpoints store
    heldout: Heldout | None  # None to measure nothing


def check_words(vocab: Vocabulary) -> None:
    """Raise DataError for a word of a new run's vocabulary with a blank or a tab; published
    vocabularies may contain other whitespace."""
    wrong = next((word for word in vocab.words if " " in word or "\t" in word), None)
    if wrong is not None:
        raise DataError(
            f"{vocab.filename}: {wrong!r} contains whitespace, so it never occurs as a word of a "
            "text; expected one word per line and nothing else"
        )


def compare_texts(heldout: Shards, repeated: Collection[int]) -> dict[str, Any]:
    """Return the shards of held-out text, `text`, and the digests of its sentences that are
    `repeated` in the training text, unless all are; log the number of these sentences."""
    digests = [sentence_digest(words) for words in heldout.sentences()] if repeated else []
    n_repeated = sum(digest in repeated for digest in digests)
    has_others = n_repeated < len(digests)
    if n_repeated:
        logging.warning(
            "%s: the training text contains %d of the %d sentences; %s", heldout.name, n_repeated,
            len(digests), "held-out perplexity leaves them out" if has_others else "use other text",
        )  # fmt: skip
    left_out = sorted(repeated) if has_others else []
    return {"text": describe_shards(heldout.paths), "repeated": left_out}


def read_heldout(shards: Shards, ngrams: Ngrams, vocab: Vocabulary, options: RunOptions) -> Heldout:
    """Return the reader of a held-out text; `ngrams`: of the sample in `Survey`. Raises: DataError
    if the text contains no sentence."""
    described = describe_shards(shards.paths)
    if shards.left_out:
        described.append(f"without {len(shards.left_out)} sentences of the training text")
    shards.examine(vocab)
    ids = text_ids(shards, vocab)
    if len(ids) == 1:
        raise DataError(f"{shards.name}: no sentence; every line is blank")

    compared = Comparison.of(ids, vocab, ngrams)
    reader = heldout_dataset(shards, vocab, options.bidirectional)
    return Heldout(reader, described, len(ids) - 1, compared)


def check_unchanged(shards: Shards, described: Sequence[str], step: int) -> None:
    """Raise DataError if the size of a text's file differs from that at the start of training."""
    try:
        described_now = describe_shards(shards.paths)
    except (OSError, RemoteError):  # missing for now; if it is needed, reading it raises an error
        return
    for path, now, before in zip(shards.paths, described_now, described, strict=False):
        if now != before:
            raise DataError(
                f"{path}: has changed during training: found {now}, but {before} when it began; "
                f"nothing was saved after step {step}. Restore the file and continue from the "
                "last checkpoint"
            )


def complete_options(
    options: RunOptions, vocab: Vocabulary, survey: Survey | None, stored: RunRecord | None
) -> RunOptions:
    """Return the options with the sizes of corpus and vocabulary; log the survey of a new run.
    `stored`: the record of a resumed run."""
    if stored is not None:
        n_train_tokens = options.n_train_tokens or stored.options["n_train_tokens"]
        first_rare = stored.options.get("once_from")
    else:
        assert survey is not None
        log_survey(survey, vocab, check_order=options.sample_softmax)
        n_counted = survey.counts.n_predictions
        n_train_tokens = options.n_train_tokens or n_counted
        first_rare = once_from(survey, vocab) if n_train_tokens == n_counted else None
    sizes = {"n_train_tokens": n_train_tokens, "n_tokens_vocab": vocab.size}
    return options.replace(**sizes, once_from=first_rare)


def replica_options(
    options: RunOptions, n_words: int, n_replicas: int, checkpoint: Checkpoint | None = None
) -> RunOptions:
    """Return the options of one replica: its rows, and the full softmax for small vocabularies.

    The rows of the checkpoint of a resumed run are divided among the replicas.

    Raises: WeightsError if the number of replicas does not divide these rows, or if another
        `batch_size` was requested.
    """
    if options.sample_softmax and options.n_negative_samples_batch >= n_words:
        logging.warning(
            "%d negatives are not below the vocabulary's %d words: the full softmax is used",
            options.n_negative_samples_batch, n_words,
        )  # fmt: skip
        options = options.replace(sample_softmax=False)
    requested = options.batch_size * n_replicas
    n_rows = checkpoint.record.n_rows if checkpoint else requested
    if checkpoint is None or n_rows == requested:
        return options
    if options.batch_size != checkpoint.record.batch_size:
        raise WeightsError(
            f"{checkpoint.path}: saved with {n_rows} rows, but this run has "
            f"{requested} (batch_size times replicas)"
        )
    batch_size, left = divmod(n_rows, n_replicas)
    if left:
        raise WeightsError(
            f"{checkpoint.path}: its {n_rows} rows cannot be shared by {n_replicas} "
            "replicas; expected a number of replicas that divides them"
        )
    logging.info(
        "the run's %d rows are now shared by %d replicas x %d rows",
        n_rows, n_replicas, batch_size,
    )  # fmt: skip
    return options.replace(batch_size=batch_size)


class Plan:
    """Number of steps in an epoch, in the run and between evaluations; `options`: of a replica;
    `n_heldout`: held-out predictions per direction."""

    def __init__(
        self, options: RunOptions, n_replicas: int, settings: RunSettings, n_heldout: int = 0
    ):
        n_tokens = options.n_train_tokens or 0
        self.predictions_a_step = options.batch_size * options.unroll_steps * n_replicas
        self.epoch_steps = max(1, int(n_tokens // self.predictions_a_step))
        self.n_steps = settings.n_steps or options.n_epochs * self.epoch_steps
        # An evaluation reads less than half as much as the epochs before it.
        n_epochs = 1 + 2 * n_heldout // (self.epoch_steps * self.predictions_a_step)
        self.eval_steps = settings.eval_steps or n_epochs * self.epoch_steps
