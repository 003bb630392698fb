"""Measure a perplexity as a script for bilm-tf does."""

import argparse

from bilm.data import BidirectionalLMDataset, LMDataset
from bilm.training import load_options_latest_checkpoint, load_vocab
from bilm.training import test as measure


def main(args):
    options, ckpt_file = load_options_latest_checkpoint(args.save_dir)
    max_word_length = None
    if "char_cnn" in options:
        max_word_length = options["char_cnn"]["max_characters_per_token"]
    vocab = load_vocab(args.vocab_file, max_word_length)
    how = {"test": True, "shuffle_on_load": False}
    if options.get("bidirectional"):
        data = BidirectionalLMDataset(args.test_prefix, vocab, **how)
    else:
        data = LMDataset(args.test_prefix, vocab, **how)
    measure(options, ckpt_file, data, batch_size=args.batch_size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--test_prefix")
    parser.add_argument("--vocab_file")
    parser.add_argument("--save_dir")
    parser.add_argument("--batch_size", type=int, default=256)
    main(parser.parse_args())
