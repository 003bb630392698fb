"""The program `bilm`: one module per subcommand, one function each, declared with click.

`main` lists the subcommands, imports each when it is used, and runs it: it starts the log and
TensorFlow, handles Ctrl-C, and turns errors into one line and an exit status. `listing` finds the
subcommands of other packages and of `studies` by their entry points. `options` contains the types
of option values and the options that several commands share, `scoring_options` those of commands
that score text. `output` prepares the standard streams, prints results and writes tables.

The public names are for commands outside this package (docs/commands.md).
"""

from bilm.support.imports import lazily

MODULES = {
    "commands.main": "command",
    "commands.output": "MISSING Row as_json print_table printable show write_table",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
__all__ += ["options", "scoring_options"]  # modules
