"""`bilm embed`: the vectors of a corpus in one file."""

from typing import Any

from bilm.commands import options as opt
from bilm.commands.main import command, start_tensorflow
from bilm.commands.output import show
from bilm.embedding.forms import FORMATS, HELP, PARTS, POOLS, Share
from bilm.errors import BilmError
from bilm.inference import BACKENDS

OUTPUT_NOTE = """
The output contains layers + 1 vectors per word with --layers all, two with --layers 0,2, and one
with top, average or sum. --pool stores one vector per sentence instead of one per word. Parquet
requires the extra parquet, --tokenize the extra spacy. After an interruption, the same command
continues; finished parts are kept in the folder <output>.parts until the output is complete.
"""
OUTPUT_FORMS = "The ending of --output selects the form:"
for form, help in HELP.items():
    endings = ", ".join(ending for ending in FORMATS if FORMATS[ending] == form)
    OUTPUT_FORMS += f"\n  {endings:<12} {help}"


@command(notes=[opt.INPUT_FORMS, OUTPUT_FORMS, OUTPUT_NOTE, opt.MODEL_FORMS])
@opt.model_options()
@opt.group(
    "Corpus",
    opt.text_input("Corpus: a file or a quoted pattern.", rereads=True),
    *opt.reading_options,
    opt.id_column_option,
    opt.reading_option("id_field", opt.Integer(0), unset="the first word"),
    opt.option("--output", opt.FILE_OR_URL, "File to write the vectors to.", required=True),
    opt.option("--shard", opt.TEXT, "Embed only share i, from 0, of n shares of the corpus; i and "
               "n become part of the name of the output (docs/clusters.md).", "the whole corpus",
               metavar="i/n"),
)  # fmt: skip
@opt.group(
    "Vectors",
    opt.option("--layers", opt.TEXT, "Layers to store: all, top, average, sum, or layer numbers "
               "separated by commas, such as 0,2.", default="all"),
    opt.option("--pool", opt.OneOf(POOLS), "How to pool the vectors of a sentence's words into one "
               "vector.", default="none"),
    opt.flag("--normalize", "Divide each pooled vector by its Euclidean norm."),
    opt.dtype_option,
    opt.precision_option,
    opt.option("--backend", opt.OneOf(BACKENDS), "Library that computes the vectors: keras, or "
               "numpy, which needs less memory and starts sooner, but is slower for long texts. "
               "numpy requires float32.",
               "numpy for short texts, otherwise keras"),
    opt.option("--part_sentences", opt.Integer(1), "Most sentences of a part; an interruption "
               "loses at most one part.", "a part of about half a minute"),
)  # fmt: skip
@opt.json_option
def embed(
    model: str, weights: str | None, vocab: str | None, input_: str, output: str,
    shard: str | None, json: bool, **how: Any
) -> None:  # fmt: skip
    """Write the vectors of a corpus to a file.

    Examples:
      bilm embed --model novels-en --input corpus.txt.gz --output corpus.hdf5
      bilm embed --model novels-en --input reviews.csv --column text --output reviews.parquet \\
          --layers average --pool mean
      bilm embed --model seqvec --input proteins.fasta --output proteins.npz \\
          --layers sum --pool mean
      bilm embed --model novels-en --input 'corpus/*.txt' --output vectors.npz --shard 0/4
    """
    from absl import logging

    from bilm.embedding.corpus import dump_bilm_embeddings
    from bilm.support.files import beside, output_path

    share = None
    if shard is not None:
        share = Share.parse(shard)
        output = share.file_name(output)
    try:
        n_sentences = dump_bilm_embeddings(
            vocab, input_, model, weights, output, before_keras=start_tensorflow, share=share, **how
        )
    except BaseException as error:
        folder = beside(output_path(output), PARTS)
        if folder.is_dir() and not isinstance(error, BilmError):  # whose message says what to do
            logging.warning("%s: contains the finished parts; the same command continues", folder)
        raise
    result = {"output": output, "sentences": n_sentences}
    show(result, f"wrote {output}: {n_sentences:,} sentences", json)
