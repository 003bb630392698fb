#!/usr/bin/env python
"""Export weights with the options of bilm-tf's script of this name; `bilm export` has more."""

import click

from bilm.commands.export import export
from bilm.commands.main import command, run_script
from bilm.commands.options import FILE, option


@command()
@option("--save_dir", FILE, "Folder of the run.", metavar="FOLDER", required=True)
@option("--outfile", FILE, "HDF5 file to write.", required=True)
@click.pass_context
def dump_weights(context: click.Context, save_dir: str, outfile: str) -> None:
    """Write a run's latest checkpoint as HDF5. The same as "bilm export".

    Example:
      python bin/dump_weights.py --save_dir run --outfile elmo/weights.hdf5
    """
    context.invoke(export, model=save_dir, output=outfile)


if __name__ == "__main__":
    run_script(dump_weights)
