"""The texts and the vocabulary of a run: opened, counted by the chief, compared and checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from absl import logging

from bilm.data.profile import Profile
from bilm.data.shards import Shards, sentence_digest
from bilm.data.stream import check_shards, describe_shards
from bilm.data.survey import LONG_TEXT, check_training_text, log_survey, once_from, survey
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError
from bilm.options import schema
from bilm.options.schema import Checked, key
from bilm.scoring.ngrams import Ngrams, text_ids
from bilm.scoring.verdict import Comparison
from bilm.storage.run_record import HeldoutFiles, RunRecord
from bilm.support.remote import RemoteError
from bilm.training.hosts.exchange import Hosts
from bilm.training.spec import Heldout


class Inputs(NamedTuple):
    """The texts and the vocabulary of a run."""

    text: Shards
    heldout: Shards | None
    vocab: Vocabulary


@dataclass(frozen=True)
class Facts(Checked):
    """What the chief found in the texts of a run, and sends to the other workers.

    Args:
        n_train_tokens: predictions per epoch and direction.
        once_from: see `RunOptions`.
        heldout: files of the held-out text; None without it.
        n_heldout: its predictions per direction; `compared`: what a model is compared with.
    """

    n_train_tokens: int = key(schema.NUMBER)
    once_from: int | None = key(schema.SIZE, None)
    heldout: HeldoutFiles | None = key(HeldoutFiles, None)
    n_heldout: int = key(schema.COUNT, 0)
    compared: Comparison | None = key(Comparison, None)


class RunTexts(NamedTuple):
    """The texts of a run, and what the chief found in them."""

    inputs: Inputs
    facts: Facts
    ngrams: Ngrams | None  # of the training text; None if they are not stored by this process

    @property
    def heldout(self) -> Heldout | None:
        """The held-out text; None without it."""
        facts = self.facts
        if self.inputs.heldout is None or facts.heldout is None or facts.compared is None:
            return None
        shards = self.inputs.heldout.without(set(facts.heldout.repeated))
        return Heldout(shards, facts.heldout, facts.n_heldout, facts.compared)


def read_texts(
    inputs: Inputs, hosts: Hosts, read: Callable[[Inputs], tuple[Facts, Ngrams | None]]
) -> RunTexts:
    """Return the texts with the facts that `read` returns, which only the chief calls."""
    ngrams = None
    content: Mapping[str, Any] = {}
    if hosts.is_chief:
        facts, ngrams = read(inputs)
        content = facts.to_dict()
    return RunTexts(inputs, Facts.from_dict(hosts.from_chief("texts", lambda: content)), ngrams)


def count_new(
    inputs: Inputs, n_train_tokens: int | None, check_order: bool, model: Profile | None = None
) -> tuple[Facts, Ngrams | None]:
    """Read the texts of a new run. A training text of more than `LONG_TEXT` predictions is not
    counted if their number is given. `check_order`: see `log_survey`; `model`: of the text of a
    model to fine-tune. Raises: DataError."""
    text, heldout, vocab = inputs
    check_training_text(text, heldout, vocab.filename)
    is_whole = (n_train_tokens or 0) <= LONG_TEXT
    known = survey(text, vocab, is_whole, heldout=heldout, model=model)
    log_survey(known, vocab, check_order)
    n_counted = known.counts.n_predictions
    n_train_tokens = n_train_tokens or n_counted
    first_rare = once_from(known, vocab) if n_train_tokens == n_counted else None
    ngrams = Ngrams.of(known.sample, vocab)
    facts = Facts(n_train_tokens, first_rare)
    if heldout is not None:
        files = compare_texts(heldout, known.repeated)
        facts = _with_heldout(facts, heldout, files, inputs, ngrams)
    return facts, ngrams


def count_again(
    inputs: Inputs, record: RunRecord, n_train_tokens: int | None
) -> tuple[Facts, Ngrams | None]:
    """Read the texts of a resumed run. The text is compared with held-out text only if it was not
    compared before; without held-out text, it is not read. Raises: DataError."""
    text, heldout, vocab = inputs
    check_training_text(text, heldout, vocab.filename)
    n_predictions = n_train_tokens or record.options["n_train_tokens"]
    facts = Facts(n_predictions, record.options.get("once_from"), record.heldout)
    if heldout is None:
        return facts, None
    files = record.heldout
    is_compared = files is not None and files.text == describe_shards(heldout.paths)
    is_whole = not is_compared and (n_train_tokens or 0) <= LONG_TEXT
    known = survey(text, vocab, is_whole, warns=False, heldout=heldout)
    if files is None or not is_compared:
        files = compare_texts(heldout, known.repeated)
    ngrams = Ngrams.of(known.sample, vocab)
    return _with_heldout(facts, heldout, files, inputs, ngrams), ngrams


def _with_heldout(
    facts: Facts, heldout: Shards, files: HeldoutFiles, inputs: Inputs, ngrams: Ngrams
) -> Facts:
    """Return the facts with those of held-out text. Raises: DataError."""
    heldout = heldout.without(set(files.repeated))
    vocab = inputs.vocab
    heldout.examine(vocab, inputs.text.profile)
    ids = text_ids(heldout, vocab)
    if len(ids) == 1:
        raise DataError(f"{heldout.name}: no sentence; every line is blank")
    compared = Comparison.of(ids, vocab, ngrams)
    return facts.replace(heldout=files, n_heldout=len(ids) - 1, compared=compared)


def compare_texts(heldout: Shards, repeated: Collection[int]) -> HeldoutFiles:
    """Return the files of held-out text, and the digests of its sentences that are `repeated` in
    the training text, unless all are; log the number of these sentences."""
    digests = [sentence_digest(words) for words in heldout.sentences()] if repeated else []
    n_repeated = sum(digest in repeated for digest in digests)
    has_others = n_repeated < len(digests)
    if n_repeated:
        logging.warning(
            "%s: the training text contains %d of the %d sentences; %s", heldout.name, n_repeated,
            len(digests), "held-out perplexity leaves them out" if has_others else "use other text",
        )  # fmt: skip
    return HeldoutFiles(describe_shards(heldout.paths), sorted(repeated) if has_others else [])


# --- checks ---


def check_words(vocab: Vocabulary) -> None:
    """Raise DataError for a word of a new run's vocabulary with a blank or a tab; published
    vocabularies may contain other whitespace."""
    wrong = next((word for word in vocab.words if " " in word or "\t" in word), None)
    if wrong is not None:
        raise DataError(
            f"{vocab.filename}: {wrong!r} contains whitespace, so it never occurs as a word of a "
            "text; expected one word per line and nothing else"
        )


def check_same_text(text: Shards, record: RunRecord, left_out_file: object) -> None:
    """Raise DataError if a text differs from the text of the run; `left_out_file` contains the
    sentences that it leaves out."""
    check_shards(text.paths, record.shards)
    n_left_out = len(text.left_out)
    if record.left_out not in (None, n_left_out):
        raise DataError(
            f"{left_out_file}: found {n_left_out} sentences to leave out of the text, but the run "
            f"in this folder left out {record.left_out}; restore the file or use another folder"
        )


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
