"""The command `ls` as the published class."""

from __future__ import annotations

from lm_eval._cli.subcommand import SubCommand


class List(SubCommand):
    """The command that lists tasks."""

    name = "ls"
