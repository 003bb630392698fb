#!/usr/bin/env python
"""Embed every sentence of a corpus with a stored biLM, into one HDF5 file.

Examples:
  dump_embeddings.py --dataset_file corpus.txt.gz --options_file options.json \\
      --weight_file weights.hdf5 --outfile corpus.hdf5
  dump_embeddings.py --dataset_file en_ewt.conllu --options_file options.json \\
      --weight_file weights.hdf5 --outfile en_ewt.hdf5 --layers average --dtype float16

--dataset_file holds a tokenized sentence a line, plain or gzip, or CoNLL-U by its name
(.conllu, .conllu.gz). The file holds a dataset a sentence, named 0, 1, 2, ... by line, with its
words as the attribute `sentence`; an empty line has an empty one. Its shape is
(layers + 1, tokens, dim) for --layers all, (2, tokens, dim) for --layers 0,2, and (tokens, dim)
for top and average. An interrupted command continues when it is given again: closed
parts stand in <outfile>.parts until the end. bilm.read_embeddings reads the file in order.
"""

from bilm.commands import command, flag_kinds
from bilm.commands.command import FLAGS, flags

flag_kinds.define_path("vocab_file", None, "One word a line, for a model that reads words.")
flag_kinds.define_path("dataset_file", None, "The corpus.")
flag_kinds.define_path("options_file", None, "options.json of the model, or what stands for both.")
flag_kinds.define_path("weight_file", None, "HDF5 weights of the model.")
flag_kinds.define_path("outfile", None, "The HDF5 file to write.")
flags.DEFINE_string("layers", "all", "all, top, average, or numbers with commas: 0,2.")
flags.DEFINE_enum("dtype", "float32", ["float32", "float16"], "What values are stored as.")
flags.DEFINE_enum(
    "precision", "float32", ["float32", "bfloat16"],
    "Of the operands of products; bfloat16 is faster and changes vectors by less than 1 %.",
)  # fmt: skip
flags.DEFINE_integer("part_sentences", 1000, "The most that an interruption can cost.", 1)
flag_kinds.define_on_bad_utf8()


def main() -> None:
    from bilm.embedding.corpus import dump_bilm_embeddings

    n_sentences = dump_bilm_embeddings(
        FLAGS.vocab_file,
        FLAGS.dataset_file,
        FLAGS.options_file,
        FLAGS.weight_file,
        FLAGS.outfile,
        layers=FLAGS.layers,
        dtype=FLAGS.dtype,
        part_sentences=FLAGS.part_sentences,
        precision=FLAGS.precision,
        on_bad_utf8=FLAGS.on_bad_utf8,
    )
    print(f"wrote {FLAGS.outfile}: {n_sentences:,} sentences")


if __name__ == "__main__":
    command.run(main, required=["dataset_file", "options_file", "outfile"])
