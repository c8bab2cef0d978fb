"""Import hook for the Python files of installed packs: `import lm_eval.tasks.<family>.utils`.

The published package contains every family, so code imports their helpers from there. Here, most
families come from packs. The hook is installed when `lm_eval.tasks` is imported, and reads nothing
until a module is imported that the library does not contain.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_PACKAGE = "lm_eval.tasks"


class _PackFinder:  # not an `importlib.abc.MetaPathFinder`, whose module is slow to import
    """Finds modules of `lm_eval.tasks` in packs.

    It is on `sys.meta_path` behind the finder of files, so modules of the library come first.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the module `name` in the oldest pack that contains it; None if none does.

        The pack is prepared as before a task of it is built: see `packs.verify`, which raises
        `ConfigError` if its files have changed.
        """
        parent, _, _ = name.rpartition(".")
        if parent != _PACKAGE and not parent.startswith(f"{_PACKAGE}."):
            return None
        # Imported here, so that importing `lm_eval.tasks` stays fast.
        from lm_eval.tasks import import_shims, packs
        from lm_eval.tasks.index import make_importable

        below = name.removeprefix(f"{_PACKAGE}.").split(".")
        for pack in packs.installed():
            file = pack.tasks.joinpath(*below)
            if file.is_dir() or file.with_name(f"{file.name}.py").is_file():
                packs.verify(pack, ())
                make_importable(pack.tasks, last=True)
                import_shims.install()
                # The path of a package that is several folders is computed again when it is read.
                return PathFinder.find_spec(name, sys.modules[parent].__path__, target)
        return None


def install() -> None:
    """Adds the import hook to `sys.meta_path`, unless it is there."""
    if not any(isinstance(finder, _PackFinder) for finder in sys.meta_path):
        sys.meta_path.append(_PackFinder())
