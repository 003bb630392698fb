"""The names of the files of stored models in all formats."""

import re

OPTIONS, VOCABULARY, WEIGHTS = "options.json", "vocab.txt", "weights.hdf5"
CARD, META = "README.md", "meta.json"
CHECKPOINT, CHECKPOINT_LIST = "model.ckpt", "checkpoint"  # TensorFlow's prefix, and its list
CHECKPOINT_ENDING = r"(index|data-\d+-of-\d+|json)"
CHECKPOINT_FILE = re.compile(rf"{re.escape(CHECKPOINT)}-(\d+)\.{CHECKPOINT_ENDING}")
CONFIG, ENCODER, EMBEDDER = "config.json", "encoder.pkl", "token_embedder.pkl"  # ELMoForManyLangs
ALLENNLP_WEIGHTS, ALLENNLP_FILES = "weights.th", "fta"  # and the folder of "files to archive"
ALLENNLP_BEST = "best.th"  # in the folder of a training
HUB_GRAPH, HUB_MARK = "saved_model.pb", "tfhub_module.pb"
HUB_INDEX = "variables/variables.index"
LEXICONS = {"words": "word.dic", "characters": "char.dic"}
HDF5_SUFFIXES = (".hdf5", ".h5")
SOFTMAX_ENDING = "_softmax.hdf5"
# Other files of a run.
MEASURED, HISTORY, LOCK, NGRAMS = "heldout.json", "history.csv", ".lock", "ngrams.hdf5"
HELDOUT = "heldout.txt"  # a part of the training text
