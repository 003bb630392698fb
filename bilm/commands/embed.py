"""Embed every sentence of a corpus with a stored biLM, into one HDF5 file.

Examples:
  bilm embed --model elmo --input corpus.txt.gz --output corpus.hdf5
  bilm embed --model options.json --weights weights.hdf5 --input en_ewt.conllu \\
      --output en_ewt.hdf5 --layers average --dtype float16

--input holds one tokenized sentence per line, plain or gzip, or CoNLL-U by its name (.conllu,
.conllu.gz).

The output holds one dataset per line, named 0, 1, 2, ..., with its words as the attribute
`sentence`; that of an empty line is empty. Its shape is (layers + 1, tokens, dim) for --layers all,
(2, tokens, dim) for --layers 0,2, and (tokens, dim) for top and average. The same command continues
after an interruption; until the end, finished parts are in <output>.parts. bilm.read_embeddings
reads the file in order.
"""

from __future__ import annotations

from argparse import Namespace

from bilm.commands.flags import Flags
from bilm.commands.model_flags import MODEL
from bilm.commands.text_flags import define_on_bad_utf8

__doc__ = f"{__doc__}{MODEL}"


def define_flags(flags: Flags) -> None:
    flags.group("files")
    flags.path("model", "A stored biLM.", "MODEL", required=True, old=["options_file"])
    flags.path("weights", "HDF5 weights, where MODEL is options.json.", old=["weight_file"])
    flags.path("input", "The corpus.", required=True, old=["dataset_file"])
    flags.path("output", "The HDF5 file to write.", required=True, old=["outfile"])
    flags.path("vocab", "One word per line, for a model that reads words.", old=["vocab_file"])
    define_on_bad_utf8(flags)
    flags.group("vectors")
    flags.text("layers", "all, top, average, or numbers with commas: 0,2.", "LAYERS", default="all")
    flags.choice("dtype", "What values are stored as.", ["float32", "float16"], default="float32")
    flags.choice(
        "precision",
        "Of the operands of products; bfloat16 is faster and changes vectors by less than 1 %.",
        ["float32", "bfloat16"],
        default="float32",
    )
    flags.integer(
        "part_sentences", "The most sentences that an interruption can cost.", 1, default=1000
    )


def main(args: Namespace) -> None:
    from bilm.embedding.corpus import dump_bilm_embeddings

    n_sentences = dump_bilm_embeddings(
        args.vocab,
        args.input,
        args.model,
        args.weights,
        args.output,
        layers=args.layers,
        dtype=args.dtype,
        part_sentences=args.part_sentences,
        precision=args.precision,
        on_bad_utf8=args.on_bad_utf8,
    )
    print(f"wrote {args.output}: {n_sentences:,} sentences")
