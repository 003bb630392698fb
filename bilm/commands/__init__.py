"""The program `bilm`: a module per subcommand. The public names are for other packages."""

from bilm.support.imports import lazily

MODULES = {
    "commands.main": "command start_tensorflow",
    "commands.output": "MISSING Row as_json print_table printable show write_table",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
__all__ += ["options", "scoring_options"]  # modules
