"""The texts and the vocabulary of a run: made if requested, opened, counted and checked."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from absl import logging

from bilm.data.profile import Profile
from bilm.data.shards import Shards, resolve_shards, sentence_digest
from bilm.data.stream import check_shards, describe_shards
from bilm.data.survey import LONG_TEXT, check_training_text, log_survey, once_from, survey
from bilm.data.vocabulary import Vocabulary
from bilm.errors import ArgumentError, DataError
from bilm.options import schema
from bilm.options.run_options import RunOptions
from bilm.options.schema import Checked, key
from bilm.scoring.ngrams import Ngrams, text_ids
from bilm.scoring.verdict import Comparison
from bilm.storage.run_record import HeldoutFiles, RunRecord
from bilm.support.remote import RemoteError
from bilm.training.hosts import Hosts
from bilm.training.request import RunRequest
from bilm.training.run_folder import RunFolder
from bilm.training.spec import Heldout, RunTexts


def new_texts(request: RunRequest, folder: RunFolder, options: RunOptions | None) -> RunTexts:
    """Return the texts of a new run, counted, with the vocabulary and the held-out part that are
    made in its folder if they were not requested. A text of more than `LONG_TEXT` predictions is
    not counted if their number is given. `options`: None if they will be chosen by the text.
    Raises: DataError, OptionsError.
    """
    # Nothing is held out if there is a vocabulary, which may be of the whole text.
    makes_vocab = request.vocab is None
    holds_out = makes_vocab and request.heldout is None
    hosts = request.devices.hosts
    hosts.from_chief("inputs", lambda: folder.make_inputs(request.text, makes_vocab, holds_out))

    inputs = _open_inputs(request, folder)
    source = request.source
    if source is None or source.has_new_words:
        check_words(inputs.vocab)
    of_model = None if source is None else source.model.profile
    n_train_tokens = request.changes.get("n_train_tokens")
    check_order = True
    if options is not None:
        if options.n_tokens_vocab not in (None, inputs.vocab.size):
            raise schema.unexpected(
                f"{options.file}n_tokens_vocab",
                options.n_tokens_vocab,
                f"{inputs.vocab.size}, the number of words of {inputs.vocab.filename}, or no such "
                "key",
            )
        n_train_tokens = options.n_train_tokens
        check_order = options.sample_softmax
    facts = count(inputs, n_train_tokens, check_order, of_model) if hosts.is_chief else None
    return _with_facts(inputs, hosts, facts)


def same_texts(
    request: RunRequest, folder: RunFolder, record: RunRecord, n_train_tokens: int | None
) -> RunTexts:
    """Return the texts of a resumed run. Raises: DataError if one is not a text of the run."""
    inputs = _open_inputs(request, folder)
    if inputs.vocab.digest != record.vocabulary:
        raise DataError(
            f"{folder.vocab_file}: the vocabulary of this folder's run differs from "
            f"{inputs.vocab.filename}"
        )
    check_shards(inputs.text.paths, record.shards)
    n_left_out = len(inputs.text.left_out)
    if record.left_out not in (None, n_left_out):
        raise DataError(
            f"{folder.heldout_file}: found {n_left_out} sentences to leave out of the text, but "
            f"the run in this folder left out {record.left_out}; restore the file or use another "
            "folder"
        )
    hosts = request.devices.hosts
    facts = count(inputs, n_train_tokens, record=record) if hosts.is_chief else None
    return _with_facts(inputs, hosts, facts)


class Inputs(NamedTuple):
    """The texts and the vocabulary of a run, not read yet."""

    text: Shards
    heldout: Shards | None
    vocab: Vocabulary


def _open_inputs(request: RunRequest, folder: RunFolder) -> Inputs:
    """Open the texts and the vocabulary that were requested, or those in the folder of the run.
    Raises: DataError; ArgumentError if the run lacks its vocabulary."""
    vocab = request.vocab or folder.vocab_file
    if request.vocab is None and not folder.vocab_file.is_file():
        raise ArgumentError(f"--vocab is required: {vocab} does not exist any more")
    if isinstance(vocab, Path):
        vocab = Vocabulary(vocab, validate_file=True)
    heldout = request.heldout
    if heldout is None and folder.heldout_file.is_file():
        heldout = resolve_shards(folder.heldout_file, request.settings.on_bad_utf8)
    return Inputs(folder.training_part(request.text), heldout, vocab)


# --- what the chief finds in the texts ---


@dataclass(frozen=True)
class Facts(Checked):
    """What the chief found in the texts of a run, and sends to the other workers: see `RunTexts`
    and `Heldout`; `files` and `compared` are None without held-out text. It keeps the `ngrams`."""

    n_train_tokens: int = key(schema.NUMBER)
    once_from: int | None = key(schema.SIZE, None)
    files: HeldoutFiles | None = key(HeldoutFiles, None)
    compared: Comparison | None = key(Comparison, None)
    ngrams: Ngrams | None = field(default=None, repr=False)


def _with_facts(inputs: Inputs, hosts: Hosts, of_chief: Facts | None) -> RunTexts:
    """Return the texts with the facts that the chief found."""
    facts = Facts.from_dict(hosts.from_chief("texts", lambda: of_chief and of_chief.to_dict()))
    heldout = None
    if inputs.heldout is not None and facts.files is not None and facts.compared is not None:
        shards = inputs.heldout.leaving_out(set(facts.files.repeated))
        heldout = Heldout(shards, facts.files, facts.compared)
    return RunTexts(
        text=inputs.text,
        text_files=describe_shards(inputs.text.paths),
        vocab=inputs.vocab,
        n_train_tokens=facts.n_train_tokens,
        once_from=facts.once_from,
        heldout=heldout,
        ngrams=None if of_chief is None else of_chief.ngrams,
    )


def count(
    inputs: Inputs,
    n_train_tokens: int | None,
    check_order: bool = True,
    of_model: Profile | None = None,
    record: RunRecord | None = None,
) -> Facts:
    """Read the texts of a new run, or of the run with a `record`, whose text is read only if there
    is held-out text, and whole only to compare it with held-out text that is new. `check_order`:
    see `log_survey`; `of_model`: profile of the text of a model to fine-tune. Raises: DataError."""
    text, heldout, vocab = inputs
    check_training_text(text, heldout, vocab.filename)
    files = None  # of the held-out text, once they are compared
    if record is None:
        text.examine(vocab, of_model)
    else:
        stored = record.options
        facts = Facts(n_train_tokens or stored["n_train_tokens"], stored.get("once_from"))
        if heldout is None:
            return facts
        if record.heldout and record.heldout.text == describe_shards(heldout.paths):
            files = record.heldout

    is_whole = files is None and (n_train_tokens or 0) <= LONG_TEXT
    known = survey(text, vocab, is_whole, heldout)
    ngrams = Ngrams.of(known.sample, vocab)
    if record is None:
        log_survey(known, vocab, check_order)
        n_counted = known.counts.n_predictions
        is_given = n_train_tokens not in (None, n_counted)
        facts = Facts(n_train_tokens or n_counted, None if is_given else once_from(known, vocab))
    facts = facts.replace(ngrams=ngrams)
    if heldout is None:
        return facts

    files = files or compare_texts(heldout, known.repeated)
    heldout.examine(vocab, text.profile())
    ids = text_ids(heldout.leaving_out(set(files.repeated)), vocab)
    return facts.replace(files=files, compared=Comparison.of(ids, vocab, ngrams))


def compare_texts(heldout: Shards, repeated: Collection[int]) -> HeldoutFiles:
    """Return the files of held-out text, and the digests of its sentences that are `repeated` in
    the training text, unless all are; warn of them."""
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
    """Raise DataError for a word of a new run's vocabulary with a blank or a tab: published ones
    may contain other whitespace."""
    wrong = next((word for word in vocab.words if " " in word or "\t" in word), None)
    if wrong is not None:
        raise DataError(
            f"{vocab.filename}: {wrong!r} contains whitespace, so it never occurs as a word of a "
            "text; expected one word per line and nothing else"
        )


def check_unchanged(shards: Shards, described: Sequence[str], step: int) -> None:
    """Raise DataError if a text's file differs from its description at the start of training."""
    try:
        described_now = describe_shards(shards.paths)
    except (OSError, RemoteError):  # missing for now; if it is needed, reading it raises an error
        return
    for path, now, before in zip(shards.paths, described_now, described, strict=True):
        if now != before:
            raise DataError(
                f"{path}: has changed during training: found {now}, but {before} when it began; "
                f"nothing was saved after step {step}. Restore the file and continue from the "
                "last checkpoint"
            )
