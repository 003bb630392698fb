"""What a biLM says about reading: surprisal of words and regions, and minimal pairs."""

from bilm.support import lazily

MODULES = {
    "studies.reading.minimal_pairs": (
        "Accuracy MinimalPair PairResults PairScore read_pairs score_pairs"
    ),
    "studies.reading.surprisal": "load_trigrams surprisal_table word_surprisals",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
