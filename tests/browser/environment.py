"""Prepares what the browser tests need: `python -m tests.browser.environment`.

Chromium comes from Debian's package, which is installed if this user may do so; axe-core comes from
npm, into a cache outside the checkout. Without Chromium, prints why and exits with 3.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

AXE = "axe-core@4.10.3"
#: Options for a browser in a container, which contacts nobody by itself.
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def cache() -> Path:
    """Returns the folder in which downloads are kept."""
    default = Path.home() / ".cache" / "lm_eval_test_browser"
    return Path(os.environ.get("LMEVAL_TEST_BROWSER_DIR", default))


def find_chromium() -> str | None:
    """Returns the path of an installed Chromium or Chrome; None if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def find_axe() -> Path | None:
    """Returns the script of axe-core in the cache; None if it was not downloaded."""
    file = cache() / AXE / "package" / "axe.min.js"
    return file if file.is_file() else None


def main() -> int:
    """Installs Chromium and axe-core if they are missing; returns 0, or 3 without a browser."""
    if find_chromium() is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            print(
                "==> Skipped: there is no Chromium, and it cannot be installed without root and "
                "apt-get. Install the package `chromium` and run the target again."
            )
            return 3
        print("==> Installing Chromium from the distribution")
        quiet = {"stdout": subprocess.DEVNULL}
        for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
            done = subprocess.run(["apt-get", "-qq", *command], check=False, **quiet)
        if done.returncode != 0 or find_chromium() is None:
            print("==> Skipped: apt-get could not install Chromium.")
            return 3
    if find_axe() is None:
        _fetch_axe()
    return 0


def _fetch_axe() -> None:
    """Downloads axe-core with npm; says so if that fails, and the test with it is skipped."""
    folder = cache() / AXE
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["npm", "pack", "--silent", AXE], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        with tarfile.open(next(folder.glob("*.tgz"))) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            target = folder / "package" / "axe.min.js"
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(member.read())
    except (OSError, subprocess.CalledProcessError, StopIteration, KeyError) as error:
        print(f"==> Cannot download axe-core from npm ({error}); its test is skipped.")


if __name__ == "__main__":
    sys.exit(main())
