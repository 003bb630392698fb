"""Options that the commands of this study share."""

from bilm.commands import options as opt

usages_option = opt.option(
    "--usages", opt.FILE, "Table that bilm usages wrote.", required=True, metavar="PARQUET"
)
