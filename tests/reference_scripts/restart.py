"""Continue a run as a script for bilm-tf does: options and checkpoint from the folder."""

import argparse

from bilm.data import BidirectionalLMDataset, LMDataset
from bilm.training import load_options_latest_checkpoint, load_vocab, train


def main(args):
    options, ckpt_file = load_options_latest_checkpoint(args.save_dir)
    max_word_length = None
    if "char_cnn" in options:
        max_word_length = options["char_cnn"]["max_characters_per_token"]
    vocab = load_vocab(args.vocab_file, max_word_length)
    how = {"test": False, "shuffle_on_load": True}
    if options.get("bidirectional"):
        data = BidirectionalLMDataset(args.train_prefix, vocab, **how)
    else:
        data = LMDataset(args.train_prefix, vocab, **how)
    if args.n_train_tokens > 0:
        options["n_train_tokens"] = args.n_train_tokens
    if args.n_epochs > 0:
        options["n_epochs"] = args.n_epochs
    if args.batch_size > 0:
        options["batch_size"] = args.batch_size
    train(options, data, args.n_gpus, args.save_dir, args.save_dir, restart_ckpt_file=ckpt_file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save_dir")
    parser.add_argument("--vocab_file")
    parser.add_argument("--train_prefix")
    parser.add_argument("--n_gpus", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=0)
    parser.add_argument("--n_train_tokens", type=int, default=0)
    parser.add_argument("--n_epochs", type=int, default=0)
    main(parser.parse_args())
