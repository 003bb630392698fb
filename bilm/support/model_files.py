"""The names of the files of stored models that several packages or formats use."""

import re

OPTIONS, VOCABULARY, WEIGHTS = "options.json", "vocab.txt", "weights.hdf5"
CARD, META = "README.md", "meta.json"
CHECKPOINT, CHECKPOINT_LIST = "model.ckpt", "checkpoint"  # TensorFlow's prefix, and its list
CHECKPOINT_ENDING = r"(index|data-\d+-of-\d+|json)"
CHECKPOINT_FILE = re.compile(rf"{re.escape(CHECKPOINT)}-(\d+)\.{CHECKPOINT_ENDING}")
CONFIG = "config.json"  # of AllenNLP and ELMoForManyLangs
HDF5_SUFFIXES = (".hdf5", ".h5")
SOFTMAX_ENDING = "_softmax.hdf5"
# Other files of a run.
MEASURED, HISTORY, LOCK, NGRAMS = "heldout.json", "history.csv", ".lock", "ngrams.hdf5"
NGRAM_COUNTS = "ngrams"  # dataset of `NGRAMS` and of softmax files
HELDOUT = "heldout.txt"  # a part of the training text
