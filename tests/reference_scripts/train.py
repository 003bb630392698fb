"""Train as a script for bilm-tf does: an options dict, a dataset, and `train`."""

import argparse

from bilm.data import BidirectionalLMDataset
from bilm.training import load_vocab, train


def main(args):
    vocab = load_vocab(args.vocab_file, 50)
    options = {
        "bidirectional": True,
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": 4},
            "filters": [[1, 4], [2, 8]],
            "max_characters_per_token": 50,
            "n_characters": 261,
            "n_highway": 1,
        },
        "dropout": 0.1,
        "lstm": {
            "cell_clip": 3,
            "dim": 16,
            "n_layers": 2,
            "proj_clip": 3,
            "projection_dim": 8,
            "use_skip_connections": True,
        },
        "all_clip_norm_val": 10.0,
        "n_epochs": args.n_epochs,
        "n_train_tokens": args.n_train_tokens,
        "batch_size": 4,
        "n_tokens_vocab": vocab.size,
        "unroll_steps": 10,
        "n_negative_samples_batch": 16,
    }
    data = BidirectionalLMDataset(args.train_prefix, vocab, test=False, shuffle_on_load=True)
    train(options, data, args.n_gpus, args.save_dir, args.save_dir)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save_dir")
    parser.add_argument("--vocab_file")
    parser.add_argument("--train_prefix")
    parser.add_argument("--n_gpus", type=int, default=3)
    parser.add_argument("--n_epochs", type=int, default=2)
    parser.add_argument("--n_train_tokens", type=int, default=400)
    main(parser.parse_args())
