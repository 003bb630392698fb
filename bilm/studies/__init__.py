"""Studies: what linguists and editors do with a biLM. Each folder contains the commands of a
subject, their computations, files and pictures.

`usages` collects the usages of words and measures their change, `gaps` fills gaps of damaged texts,
and `reading` measures surprisal and minimal pairs. A study imports what the packages of the core,
and other studies, list in their `__init__`. The core does not import studies: `bilm` finds their
commands by the entry points in pyproject.toml.
"""
