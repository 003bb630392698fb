"""`bilm memory`: a memory of the training text of a model."""

from pathlib import Path

from bilm.commands import command
from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring

NOTE = """
The file (HDF5) has about 6 bytes per token of the training text. The shares of the mixture are
fitted on the sentences of the held-out text that the training text does not contain, and the
perplexities describe them. Many unknown words, whose share is printed, lower a perplexity: <UNK> is
easy to predict. The part that a run held out of its text, RUN/heldout.txt, is not remembered if it
is the held-out text. The time of a prediction grows with the training text.
"""


@command(tensorflow=False, notes=[NOTE, opt.SOFTMAX_NOTE, opt.MODEL_FORMS])
@scoring.model_options
@opt.group(
    "Text",
    opt.text_input("Training text of the model: a file or a quoted pattern."),
    opt.option("--heldout", opt.FILE_OR_URL, "Held-out text, as --input.", "RUN/heldout.txt"),
    opt.option("--output", opt.FILE, "File to write.", required=True),
    opt.option("--hours", opt.Number(0), "Time of the command on this machine.",
               "as long as is useful"),
)  # fmt: skip
def memory(
    model: scoring.Model, input_: str, heldout: str | None, output: str, hours: float | None
) -> None:
    """Write a memory of the training text, for --memory.

    Examples:
      bilm memory --model run --input text.txt --output memory.hdf5
      bilm memory --model elmo --input 'corpus/*.gz' --heldout dev.txt --output memory.hdf5
    """
    from bilm.data import check_training_text, count_tokens, resolve_shards
    from bilm.studies.gaps.filling import N_FITTED, n_predictions
    from bilm.studies.gaps.fitting import build_memory
    from bilm.support import HELDOUT, OPTIONS, protect

    part = Path(heldout or model.stored.folder / HELDOUT).expanduser()
    text = resolve_shards(input_, reads_once=True)
    heldout_text = resolve_shards(heldout or part)
    if part.name == HELDOUT and part.with_name(OPTIONS).exists():
        text = text.leaving_out(heldout_text.digests())  # a run has not read its held-out part
    protect(output, *text.paths, *heldout_text.paths, *model.files, *model.stored.own_files)
    text.examine(model.vocabulary, model.stored.profile)
    check_training_text(text, None, model.vocabulary.filename)

    counts = count_tokens(heldout_text)
    mean_length = counts.n_tokens // max(counts.n_sentences, 1)
    n_fitting = min(counts.n_tokens, N_FITTED) * n_predictions(mean_length)
    scorer = model.scorer(counts.n_predictions + n_fitting)
    sentences = text.sentences(), heldout_text.sentences()
    stored, mixed, alone, unknown = build_memory(scorer, *sentences, hours)
    stored.save(output, model.stored)
    print(f"PERPLEXITY WITH MEMORY = {mixed}")
    print(f"AVERAGE PERPLEXITY = {alone}")
    print(f"UNKNOWN WORDS = {100 * unknown:.1f} %")
