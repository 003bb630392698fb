"""The program `bilm`: one module per subcommand, one function each, declared with click.

`main` lists the subcommands, imports each when it is used, and runs it: it starts the log and
TensorFlow, handles Ctrl-C, and turns errors into one line and an exit status. `options` contains
the types of option values and the options that several commands share. `output` prepares the
standard streams, prints results and writes tables.
"""
