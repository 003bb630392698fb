#!/usr/bin/env python
"""`bilm export`; flags have their old names too. docs/migration.md lists both."""

from bilm.commands.main import script

if __name__ == "__main__":
    script("export")
