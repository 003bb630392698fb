"""The program `bilm`: one module per subcommand, one function each, declared with click. The public
names are for commands outside this package (docs/commands.md)."""

from bilm.support.imports import lazily

MODULES = {
    "commands.main": "command",
    "commands.output": "MISSING Row as_json print_table printable show write_table",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
__all__ += ["options", "scoring_options"]  # modules
