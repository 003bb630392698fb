#!/usr/bin/env python
"""Search the sentences of a corpus that are similar to a query, with sentence-transformers.

Example:
  python examples/search.py --corpus corpus.txt --query "The bank closed early ."

The corpus contains one tokenized sentence per line. Requires sentence-transformers:
pip install '.[sentence-transformers]'.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import bilm


def main() -> None:
    flags = ArgumentParser(description=__doc__)
    flags.add_argument("--model", default="novels-en", help="a folder, archive, URL or name")
    flags.add_argument("--corpus", required=True, help="text with one sentence per line")
    flags.add_argument("--query", required=True, help="a sentence")
    flags.add_argument("--n", type=int, default=5, help="number of sentences")
    given = flags.parse_args()
    bilm.quiet()
    from sentence_transformers import SentenceTransformer, util  # imports TensorFlow

    from bilm.integrations.sentence_module import ElmoSentences

    corpus = Path(given.corpus).read_text(encoding="utf-8").splitlines()
    model = SentenceTransformer(modules=[ElmoSentences(given.model)], device="cpu")
    (hits,) = util.semantic_search(model.encode([given.query]), model.encode(corpus), top_k=given.n)
    for hit in hits:
        print(f"{hit['score']:.3f}  {corpus[hit['corpus_id']]}")


if __name__ == "__main__":
    main()
