"""The command `validate` as the published class."""

from __future__ import annotations

from lm_eval._cli.subcommand import SubCommand


class Validate(SubCommand):
    """The command that checks task files."""

    name = "validate"
