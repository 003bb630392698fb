"""Features of the words of tokenized sentences, as scripts for ELMoForManyLangs extract them."""

import json
import sys

import numpy as np
from elmoformanylangs import Embedder

folder, path, output = sys.argv[1:]
with open(path, encoding="utf-8") as file:
    sentences = json.load(file)

e = Embedder(folder, batch_size=16)
average = e.sents2elmo(sentences)
layers = np.concatenate(e.sents2elmo(sentences, output_layer=-2), axis=1)
first = np.concatenate(e.sents2elmo(sentences, 1))

max_length = max(len(words) for words in sentences)
features = np.zeros((len(sentences), max_length, average[0].shape[1]), np.float32)
for i, vectors in enumerate(average):
    features[i, : len(vectors)] = vectors
np.savez(output, features=features, first=first, layers=layers)
