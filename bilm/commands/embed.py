"""Embed every sentence of a corpus with a stored biLM, into one file of vectors.

Examples:
  bilm embed --model novels-en --input corpus.txt.gz --output corpus.hdf5
  bilm embed --model novels-en --input reviews.csv --column text --output reviews.parquet \\
      --layers average --pool mean
  bilm embed --model seqvec --input proteins.fasta --output proteins.npz \\
      --layers sum --pool mean


The name of --input says how it is read, plain or gzip:
  .csv .tsv .jsonl .parquet  tables; --column holds the text, or lists of words
  .conllu                    the words are the FORM column
  .fasta .fa .faa .fna       proteins or DNA, a letter per word; ids are the first words of headers
  any other                  one sentence per line, words between blanks; --tokenize splits text

The name of --output says how it is written, and how Python reads it:
  .parquet  a row per sentence, with a column of vectors per layer: pandas.read_parquet(FILE)
  .npz      one array, numpy.load(FILE)["vectors"]; without --pool also "offsets", the row at which
            each sentence starts, and the end of the last
  .hdf5     one dataset per sentence, named 0, 1, 2, ... or by ids: bilm.read_embeddings(FILE);
            with --pool one for all: h5py.File(FILE)["vectors"]

Each word of a sentence has layers + 1 vectors for --layers all, two for --layers 0,2, and one for
top, average and sum. --pool stores one vector per sentence in place of one per word. Parquet and
--tokenize need the extras parquet and spacy. The same command continues after an interruption;
until the end, finished parts are in <output>.parts.
"""

from __future__ import annotations

from argparse import Namespace

from bilm.commands.flags import Flags
from bilm.commands.model_flags import MODEL
from bilm.commands.results import define_json, show
from bilm.commands.text_flags import define_corpus, define_on_bad_utf8

__doc__ = f"{__doc__}{MODEL}"


def define_flags(flags: Flags) -> None:
    flags.group("files")
    flags.path("model", "A stored biLM.", "MODEL", required=True, old=["options_file"])
    flags.path("weights", "HDF5 weights, where MODEL is options.json.", old=["weight_file"])
    flags.path("input", "The corpus.", required=True, old=["dataset_file"])
    flags.path("output", "The file to write.", required=True, old=["outfile"])
    flags.path(
        "vocab",
        "One word per line, for a model that reads words [vocab.txt in its folder].",
        old=["vocab_file"],
    )
    define_on_bad_utf8(flags)
    define_corpus(flags)
    flags.text("id_column", "Column of a table that holds ids.", "NAME")
    flags.integer(
        "id_field", "Which part of a FASTA header is the id, split at | and blanks, from 0.", 0
    )
    flags.group("vectors")
    flags.text(
        "layers", "all, top, average, sum, or numbers with commas: 0,2.", "LAYERS", default="all"
    )
    flags.choice(
        "pool", "One vector per sentence, over its words.", ["none", "mean", "max"], default="none"
    )
    flags.switch("normalize", "Divide the vector of a sentence by its Euclidean norm.")
    flags.choice("dtype", "What values are stored as.", ["float32", "float16"], default="float32")
    flags.choice(
        "precision",
        "Of the operands of products; bfloat16 is faster and changes vectors by less than 1 %.",
        ["float32", "bfloat16"],
        default="float32",
    )
    flags.integer(
        "part_sentences",
        "The most sentences that an interruption can cost [1000, or 100000 with --pool].",
        1,
    )
    define_json(flags)


def main(args: Namespace) -> None:
    from bilm.embedding.corpus import dump_bilm_embeddings

    alike = "layers dtype part_sentences precision on_bad_utf8 pool normalize"
    alike += " column id_column id_field tokenize"
    n_sentences = dump_bilm_embeddings(
        args.vocab,
        args.input,
        args.model,
        args.weights,
        args.output,
        **{name: getattr(args, name) for name in alike.split()},
    )
    found = {"output": args.output, "sentences": n_sentences}
    show(args, found, f"wrote {args.output}: {n_sentences:,} sentences")
