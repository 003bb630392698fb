"""The program `bilm`: one module per command, and what the commands share.

`main` starts a command and lists them all; `command` runs one: a quiet TensorFlow, a plain log, one
line for an error; `flags` and `values` read the command line; `terminal` owns the standard streams
and Ctrl-C; `run_flags`, `model_flags` and `text_flags` are flags that several commands have. The
scripts of `bin/` and the examples come in through here too. Nothing else imports this package.
"""
