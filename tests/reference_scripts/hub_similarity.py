"""Similarities of sentences and a classifier, as scripts for TensorFlow Hub compute them."""

import sys

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub

handle, *sentences = sys.argv[1:]
elmo = hub.load(handle).signatures["default"]
vectors = elmo(tf.constant(sentences))["default"].numpy()
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
similarities = vectors @ vectors.T

module = hub.Module(handle, trainable=True)
tokens = [sentence.split() for sentence in sentences]
lengths = [len(words) for words in tokens]
tokens = [words + [""] * (max(lengths) - len(words)) for words in tokens]
inputs = {"tokens": tokens, "sequence_len": lengths}
words = module(inputs=inputs, signature="tokens", as_dict=True)["elmo"].numpy()

layer = hub.KerasLayer(handle, input_shape=[], dtype=tf.string, trainable=True)
classifier = tf.keras.Sequential([layer, tf.keras.layers.Dense(2, activation="softmax")])
classifier.compile("adam", "sparse_categorical_crossentropy")
classifier.fit(tf.constant(sentences), np.arange(len(sentences)) % 2, epochs=2, verbose=0)
