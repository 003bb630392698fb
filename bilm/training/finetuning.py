"""Fine-tuning: a run that starts from the weights, options and vocabulary of a stored model."""

from pathlib import Path
from typing import Any

from bilm.data.shards import TextFiles
from bilm.errors import BilmError
from bilm.storage.stored_model import StoredModel
from bilm.support.files import expanded
from bilm.training.devices import Devices
from bilm.training.request import RunRequest
from bilm.training.run import TrainResult, carry_out
from bilm.training.source import Source


def finetune(
    model: str | Path | StoredModel,
    text: TextFiles,
    folder: str | Path,
    *,
    weights: str | Path | None = None,
    vocab: str | Path | None = None,
    new_vocab: str | Path | None = None,
    heldout: TextFiles | None = None,
    devices: Devices | None = None,
    **others: Any,
) -> TrainResult:
    """Continue to train a stored model on another text, as the command `bilm finetune` does, as a
    new run in `folder`, with new slots, LSTM states and step count.

    Args:
        model, weights: the model to start from, see `open_model`.
        text, folder, heldout: see `bilm.train`; held-out text is also measured before the first
            step.
        vocab: the vocabulary of the model; None for the words of its softmax, or its `vocab.txt`.
        new_vocab: another vocabulary to predict, with a new softmax. Words that the model's
            vocabulary also contains keep their softmax rows if the model has a softmax. Required
            if the model reads characters and has no softmax; not allowed if it reads words.
        devices, others: see `bilm.train`. For options that are not given, see `Source.run_options`.
    Raises: BilmError if an input cannot be used.

    Example:
        result = bilm.finetune("novels-en", "letters.txt", "tuned", heldout="dev.txt")
        print(result.before, result.heldout)
    """
    source = Source(model, weights)
    if source.model.folder.resolve() == Path(expanded(folder)).resolve():
        raise BilmError(f"{folder}: model and folder are the same; use another folder")
    words = source.choose_vocabulary(vocab, new_vocab)
    request = RunRequest(text, others, heldout=heldout, vocab=words, devices=devices, source=source)
    return carry_out(request, folder)
