"""One process of latency.py: embeds the sentence of each line and prints the milliseconds.

Usage: python latency_worker.py SYSTEM ARGUMENT...

A line of the input is a JSON list of words. The first line of the output that starts with {
contains the versions; then one such line answers each sentence. Other lines are the log of a
library. AllenNLP and bilm-tf run on old versions of Python, so this file is for Python 3.6.
"""

import json
import sys
import time


def bilm(precision, *model):
    from importlib.metadata import version

    from bilm import ElmoEmbedder, __version__

    embedder = ElmoEmbedder(*model, precision=precision)
    versions = {"bilm": __version__, "keras": version("keras"), "numpy": version("numpy")}
    return embedder.embed_sentence, versions, embedder.clear_cache


def bilm_tf(options_file, weight_file, vocab_file):
    import tensorflow as tf

    from bilm import Batcher, BidirectionalLanguageModel

    batcher = Batcher(vocab_file, 50)
    ids = tf.compat.v1.placeholder("int32", (None, None, 50))
    vectors = BidirectionalLanguageModel(options_file, weight_file)(ids)["lm_embeddings"]
    session = tf.compat.v1.Session()
    session.run(tf.compat.v1.global_variables_initializer())

    def embed(words):
        return session.run(vectors, {ids: batcher.batch_sentences([words])})

    return embed, {"tensorflow": tf.__version__}, None


def allennlp(options_file, weight_file):
    import torch
    from allennlp.modules.elmo import Elmo, batch_to_ids
    from allennlp.version import VERSION

    elmo = Elmo(options_file, weight_file, 1, dropout=0).train(False)

    def embed(words):
        with torch.no_grad():
            return elmo(batch_to_ids([words]))["elmo_representations"][0].numpy()

    return embed, {"allennlp": VERSION, "torch": torch.__version__}, None


def minilm(model):
    import sentence_transformers
    import torch

    encoder = sentence_transformers.SentenceTransformer(model, device="cpu")
    versions = {"sentence-transformers": sentence_transformers.__version__}
    versions["torch"] = torch.__version__

    def embed(words):
        return encoder.encode(" ".join(words), show_progress_bar=False)

    return embed, versions, None


def timed(embed, words):
    """Return the milliseconds of embedding a sentence."""
    start = time.perf_counter()
    embed(words)
    return 1000 * (time.perf_counter() - start)


def main():
    systems = {"bilm": bilm, "bilm_tf": bilm_tf, "allennlp": allennlp, "minilm": minilm}
    embed, versions, clear_cache = systems[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(versions), flush=True)
    for line in sys.stdin:
        words = json.loads(line)
        if clear_cache is None:
            times = {"uncached": timed(embed, words)}
        else:
            clear_cache()
            times = {"uncached": timed(embed, words), "cached": timed(embed, words)}
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
