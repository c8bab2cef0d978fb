"""Finds, counts and kills processes, and removes what they leave, where no namespace does it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

#: The users from here on are nobody's; each supervisor takes one for itself.
FIRST_OWN_USER = 1_000_000_000
NOBODY = 65534

#: How long to go on killing processes that start others.
_PATIENCE = 10.0


def count_of_user() -> int:
    """Returns how many threads the present user has, which a limit on processes counts as well."""
    count = 0
    for pid in _process_ids():
        with suppress(OSError, ValueError):
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{pid}/task"))
    return count


def _process_ids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def descendants(ancestor: int) -> set[int]:
    """Returns the processes below another one that have not ended."""
    parents = {}
    for pid in _process_ids():
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state not in (b"Z", b"X"):
                parents[pid] = int(parent)
    found = {ancestor}
    grown = True
    while grown:
        below = {pid for pid, parent in parents.items() if parent in found}
        grown = not below <= found
        found |= below
    return found - {ancestor}


def seconds_without_processor(pids: Iterable[int]) -> float:
    """Returns how long the process that waited longest had work to do but no processor to do it."""
    longest = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/schedstat") as file:
            longest = max(longest, int(file.read().split()[1]))
    return longest / 1e9


def kill_descendants(user: int | None) -> None:
    """Kills all processes that this one's children have started and left behind.

    Args:
        user: the user that only they run as, if there is one: then a single signal reaches all.
    """
    if sys.platform != "linux":
        return
    if not _has_children():
        return
    if user is not None and user >= FIRST_OWN_USER:
        _as_user(user, lambda: os.kill(-1, signal.SIGKILL))
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not _has_children():
            return
        # Orphans are below this process again, as it is their subreaper.
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _as_user(user: int, action: Callable[[], object]) -> bool:
    """Does something in a child process with another user; returns whether it succeeded."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            action()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def usable_user(wanted: int | None) -> int | None:
    """Returns the unprivileged user that this process can become; None if it cannot be another."""
    for user in (wanted, NOBODY):
        if wanted is not None and user is not None and _as_user(user, lambda: None):
            return user
    return None


def can_reach(user: int, path: str) -> bool:
    """Returns whether a user can read a folder."""

    def look() -> None:
        if not os.access(path, os.R_OK | os.X_OK):
            raise PermissionError(path)

    return _as_user(user, look)


def remove_folder(folder: str) -> None:
    """Removes a folder, whatever permissions a program has given to it and its subfolders."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            os.unlink(folder)  # a link in its place, which must not be followed
            return
        os.chmod(folder, 0o700)
    except FileNotFoundError:
        return
    for path, folders, _ in os.walk(folder):
        for name in folders:
            inner = os.path.join(path, name)
            # Folders cannot be hard links; a symbolic link is not followed.
            if stat.S_ISDIR(os.lstat(inner).st_mode):
                os.chmod(inner, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def folder_exceeds(folder: str, most_bytes: int, most_files: int) -> bool:
    """Returns whether a folder has more bytes or files than it may have, or hides some of them."""
    size = files = 0
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                # Counted one by one, since a program can be faster than a list of its files.
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    with suppress(FileNotFoundError):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if size > most_bytes or files > most_files:
                        return True
        except FileNotFoundError:
            continue
        except PermissionError:
            return True
    return False
