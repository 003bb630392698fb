"""Studies: what linguists and editors do with a biLM. Each folder contains the commands of a
subject, their computations, files and pictures. A study imports what the packages of the core, and
other studies, list in their `__init__`. The core does not import studies: `bilm` finds their
commands by the entry points in pyproject.toml.
"""
