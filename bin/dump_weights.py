#!/usr/bin/env python
"""Write a run's latest checkpoint as HDF5.

The script accepts the options of "bilm export" and those of bilm-tf's script of this name:
--save_dir (--model) and --outfile (--output).

Example:
  python bin/dump_weights.py --save_dir run --outfile elmo/weights.hdf5
"""

from bilm.commands.export import export
from bilm.commands.main import like_reference, run_script

if __name__ == "__main__":
    run_script(like_reference(export, __doc__, {"save_dir": "model", "outfile": "output"}))
