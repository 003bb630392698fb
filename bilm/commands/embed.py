"""`bilm embed`: the vectors of a corpus in one file."""

from __future__ import annotations

from typing import Any

from bilm.commands import options as opt
from bilm.commands.main import command, start_tensorflow
from bilm.commands.output import show
from bilm.embedding.choices import BACKENDS, FORMATS, HELP, POOLS
from bilm.errors import BilmError, OptionsError

READING = ("column", "id_column", "id_field", "tokenize", "on_bad_utf8")  # of a `Corpus`

OUTPUT_NOTE = """
The output contains layers + 1 vectors per word with --layers all, two with --layers 0,2, and one
with top, average or sum. --pool stores one vector per sentence instead of one per word. Parquet
requires the extra parquet, --tokenize the extra spacy. After an interruption, the same command
continues; finished parts are kept in the folder <output>.parts until the output is complete.
"""


def output_forms_help() -> str:
    """Return the paragraph about the output forms, made from the table that writes them."""
    lines = [
        f"  {', '.join(e for e in FORMATS if FORMATS[e] == form):<12} {HELP[form]}" for form in HELP
    ]
    return "\n".join(["The ending of --output selects the form:", *lines])


@command(
    tensorflow=False, notes=[opt.input_forms_help, output_forms_help, OUTPUT_NOTE, opt.MODEL_FORMS]
)
@opt.model_options()
@opt.group(
    "Corpus",
    opt.text_input("Corpus: a file or a quoted pattern.", "twice"),
    opt.column_option,
    opt.id_column_option,
    opt.option("--id_field", opt.Integer(0), "Index, from 0, of the part of a FASTA header "
               "to use as the id; the header is split at | and whitespace.", "the first word"),
    opt.bad_utf8_option,
    opt.tokenize_option,
    opt.option("--output", opt.FILE_OR_URL, "File to write the vectors to. With --shard or "
               "--engine, a name that ends with / is a folder of Parquet files.", required=True),
)  # fmt: skip
@opt.group(
    "Vectors",
    opt.option("--layers", opt.TEXT, "Layers to store: all, top, average, sum, or layer numbers "
               "separated by commas, such as 0,2.", default="all"),
    opt.option("--pool", opt.OneOf(POOLS), "How to pool the vectors of a sentence's words into one "
               "vector.", default="none"),
    opt.flag("--normalize", "Divide each pooled vector by its Euclidean norm."),
    opt.option("--dtype", opt.OneOf(["float32", "float16"]), "dtype of the stored vectors.",
               default="float32"),
    opt.precision_option,
    opt.option("--backend", opt.OneOf(BACKENDS), "Library that computes the vectors: keras, or "
               "numpy, which needs less memory and starts sooner, but is slower for long texts. "
               "numpy requires float32 and a model that reads characters.",
               "numpy for short texts, otherwise keras"),
    opt.option("--part_sentences", opt.Integer(1), "Number of sentences per part; an interruption "
               "loses at most one part.", "1000, or 100000 with --pool"),
)  # fmt: skip
@opt.group(
    "Several machines (docs/clusters.md)",
    opt.option("--shard", opt.TEXT, "Embed only share i, from 0, of n shares of the corpus, then "
               "run bilm merge; slurm: the array job sets i and n.", "the whole corpus",
               metavar="i/n|slurm"),
    opt.option("--engine", opt.OneOf(["spark"]), "Program that divides the work.", "this process"),
    opt.option("--master", opt.TEXT, "Address of Spark's master.",
               "that of Spark's settings, or local[*,4]", metavar="URL"),
    opt.option("--partitions", opt.Integer(1, 100_000), "Number of parts of the corpus, and of "
               "files that Spark writes.", "4 per core, or more for a large corpus"),
    opt.flag("--ship_model", "Send the model to Spark's workers, which otherwise open it by the "
             "same name or path."),
)  # fmt: skip
@opt.json_option
def embed(
    model: str, weights: str | None, vocab: str | None, input_: str, output: str, json: bool,
    shard: str | None, engine: str | None, master: str | None, partitions: int | None,
    ship_model: bool, **how: Any
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
    for_spark = {"--master": master, "--partitions": partitions, "--ship_model": ship_model or None}
    if engine is None:
        for name, value in for_spark.items():
            if value is not None:
                raise OptionsError(f"{name} applies only to --engine spark")
    elif shard is not None:
        raise OptionsError("--shard and --engine cannot be combined; Spark divides the work itself")
    if how["backend"] == "numpy" and (engine is not None or how["precision"] != "float32"):
        raise OptionsError(
            "--backend numpy computes in this process and in float32; expected no --engine and no "
            "other --precision"
        )
    uses_keras = shard is not None and how["backend"] != "numpy"
    if uses_keras or engine is not None or how["tokenize"]:  # spaCy imports TensorFlow
        start_tensorflow()
    if shard is not None:
        _embed_share(vocab, input_, model, weights, output, shard, how, json)
    elif engine is not None:
        spark = {"master": master, "n_partitions": partitions, "ship_model": ship_model}
        _embed_with_spark(vocab, input_, model, weights, output, spark, how, json)
    else:
        _embed_here(vocab, input_, model, weights, output, how, json)


def _embed_here(
    vocab: str | None, input_: str, model: str, weights: str | None, output: str,
    how: dict[str, Any], json: bool
) -> None:  # fmt: skip
    from absl import logging

    from bilm.embedding.corpus import dump_bilm_embeddings
    from bilm.support.files import beside, output_path

    if output.endswith("/"):
        raise OptionsError(
            f"{output}: a folder is written only with --shard or --engine spark; expected the name "
            "of a file"
        )
    try:
        n_sentences = dump_bilm_embeddings(
            vocab, input_, model, weights, output, before_keras=start_tensorflow, **how
        )
    except BilmError:  # its message says what to do
        raise
    except BaseException:
        if (parts := beside(output_path(output), ".parts")).is_dir():
            logging.warning("%s: contains the finished parts; the same command continues", parts)
        raise
    found = {"output": output, "sentences": n_sentences}
    show(found, f"wrote {output}: {n_sentences:,} sentences", json)


def _embed_share(
    vocab: str | None, input_: str, model: str, weights: str | None, output: str, shard: str,
    how: dict[str, Any], json: bool
) -> None:  # fmt: skip
    from bilm.cluster.array import embed_task, parse_shard

    task, n_tasks = parse_shard(shard)
    reading = {name: how.pop(name) for name in READING}
    done = embed_task(vocab, input_, model, weights, output, task, n_tasks, reading, **how)
    states = {
        "finished": f"; when all tasks are complete, run: bilm merge --output {output}",
        "complete": ", was complete before",
        "merged": f", was complete before; {output} is complete",
    }
    text = f"task {task} of {n_tasks}: {done.n_sentences:,} sentences{states[done.state]}"
    found = {"output": output, "task": task, "tasks": n_tasks, "sentences": done.n_sentences}
    show({**found, "state": done.state}, text, json)


def _embed_with_spark(
    vocab: str | None, input_: str, model: str, weights: str | None, output: str,
    spark: dict[str, Any], how: dict[str, Any], json: bool
) -> None:  # fmt: skip
    from bilm.cluster.spark import embed_corpus

    reading = {name: how.pop(name) for name in READING}
    del how["backend"]  # keras
    if how.pop("part_sentences") is not None:
        raise OptionsError("--part_sentences does not apply to --engine spark; use --partitions")
    n_sentences = embed_corpus(
        vocab, input_, model, weights, output, reading=reading, **spark, **how
    )
    found = {"output": output, "sentences": n_sentences}
    show(found, f"wrote {output}: {n_sentences:,} sentences", json)
