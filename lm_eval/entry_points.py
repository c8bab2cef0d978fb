"""The entry points of installed packages, through which plug-ins add tasks, models, metrics, …."""

from __future__ import annotations

import importlib.metadata
import logging
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PluginEntry:
    """One line of an entry-point group: `name = value`, and the package that it belongs to."""

    name: str
    value: str
    package: str

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r} of the package {self.package}"


def plugin_entries(group: str) -> list[PluginEntry]:
    """Returns the entries of a group, sorted by name and package; imports none of the packages.

    The value is without extras (`module:object [extra]`). Of several entries with the same name and
    package, the first is returned. A package whose entry points cannot be read is left out, and a
    warning is logged: it must not break unrelated commands.
    """
    found: dict[tuple[str, str], PluginEntry] = {}
    for distribution in importlib.metadata.distributions():
        package = "?"
        try:
            package = str(distribution.metadata["Name"])
            for point in distribution.entry_points:
                if point.group == group:
                    value = point.value.partition("[")[0].strip()
                    entry = PluginEntry(point.name, value, package)
                    found.setdefault((point.name, package), entry)
        except Exception as error:  # metadata is a text file that anybody may have written
            logger.warning(
                "The entry points of the installed package %s cannot be read (%s: %s), so its "
                "plug-ins are missing. Reinstall or uninstall it.",
                package,
                type(error).__name__,
                error,
            )
    return [found[key] for key in sorted(found)]
