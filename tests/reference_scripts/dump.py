"""Export weights as a script for bilm-tf does."""

import argparse

from bilm.training import dump_weights as dw

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save_dir")
    parser.add_argument("--outfile")
    args = parser.parse_args()
    dw(args.save_dir, args.outfile)
