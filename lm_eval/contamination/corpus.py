"""The files of a corpus, and the shards into which they are divided."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_eval.errors import ConfigError, DataError, suggestion

#: Bytes of an uncompressed file that are one shard. A process that is killed has read at most this
#: much in vain. Findings depend on it, so it does not depend on the number of processes.
SHARD = 8 << 20
#: The format of a file, by the end of its name.
SUFFIXES = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
FORMATS = ("text", "jsonl", "parquet", "arrow")
#: Compressed files have one of these after the suffix of their format.
COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
STANDARD_INPUT = "-"


@dataclass(frozen=True)
class CorpusPath:
    """A file of the corpus."""

    name: str
    """The path as it was given or found."""
    format: str
    compression: str = ""
    """The suffix of the compression, or "" if there is none."""
    size: int = 0
    modified: int = 0
    """The time of the last change, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The unit of work, and of resuming: a file, or a range of a large uncompressed file."""

    path: CorpusPath
    begin: int = 0
    end: int | None = None
    """The range in bytes; the end is None for the rest of the file."""

    @property
    def key(self) -> str:
        """What identifies the shard in a journal. It changes if the file changes."""
        path, end = self.path, "" if self.end is None else self.end
        return f"{path.name}|{path.format}|{path.size}|{path.modified}|{self.begin}-{end}"

    @property
    def size(self) -> int:
        """The number of bytes of the shard, compressed if the file is."""
        return (self.path.size if self.end is None else self.end) - self.begin


def find_files(
    given: Sequence[str], format: str | None = None, own: Sequence[Path] = ()
) -> list[CorpusPath]:
    """Returns the files of a corpus, sorted by name; each file once.

    Args:
        given: files, folders (searched with their subfolders for files with known suffixes),
            patterns such as `data/*.jsonl.gz` (`**` stands for any number of folders), and `-` for
            the standard input.
        format: the format of all files, one of `FORMATS`; None to decide by their names.
        own: files and folders that the scan itself writes. They are left out of folders and
            patterns.

    Raises `DataError` if a file does not exist, a pattern or folder has no files, or the format of
    a file is not known, and `ConfigError` if a name is one of `own`.
    """
    found: dict[str, CorpusPath] = {}
    for name in given:
        try:
            for path in _expand(name, format, own):
                found.setdefault(path.name, path)
        except OSError as error:
            raise DataError(
                f"the corpus {name} cannot be read: {error.strerror or error}."
            ) from error
    if STANDARD_INPUT in found and len(found) > 1:
        raise ConfigError(
            "the standard input (`-`) cannot be scanned together with files. Scan it alone, and "
            "combine the findings with `lm-eval contamination merge`."
        )
    return [found[name] for name in sorted(found)]


def _expand(name: str, format: str | None, own: Sequence[Path]) -> Iterator[CorpusPath]:
    if name == STANDARD_INPUT:
        if format not in (None, "text", "jsonl"):
            raise ConfigError(
                f"{format} files cannot be read from the standard input; pass their names."
            )
        yield CorpusPath(name, format or "text")
        return
    if not name:
        raise ConfigError('a name of the corpus is empty (""). Pass `.` for the present folder.')
    path = Path(name).expanduser()
    if path.is_dir():
        files = [file for file in _files_in(path) if not _is_own(file, own)]
        known = [file for file in files if format is not None or _kind_of(file.name) is not None]
        if not known:
            raise DataError(
                f"the folder {name} has no files with a known suffix ({', '.join(SUFFIXES)}, "
                f"each also with {', '.join(COMPRESSIONS)}). Pass --format if its files have "
                "another one."
            )
    elif path.exists():
        known = [path]
        if any(path.samefile(mine) for mine in own if mine.exists()):
            raise ConfigError(
                f"{name} is both a file of the corpus and the file for the findings, which would "
                "replace it. Give another --output."
            )
    elif glob.has_magic(name):
        known = [Path(file) for file in glob.glob(str(path), recursive=True)]  # noqa: PTH207 - absolute
        known = [file for file in known if file.is_file() and not _is_own(file, own)]
        if not known:
            raise DataError(f"no file matches the pattern {name}.")
    elif path.is_symlink():
        raise DataError(f"the corpus file {name} is a link to a file that does not exist.")
    else:
        names = [str(other) for other in path.parent.glob("*")] if path.parent.is_dir() else []
        raise DataError(f"the corpus file {name} does not exist.{suggestion(str(path), names)}")
    for file in known:
        yield _described(file, format)


def _files_in(folder: Path) -> list[Path]:
    """Returns the files in a folder and its subfolders, sorted, without hidden ones.

    Raises `OSError` if a folder cannot be read: its files would be missing in the result.
    """

    def stop(error: OSError) -> None:
        raise error

    found = [
        Path(where, name)
        for where, _, names in os.walk(folder, onerror=stop)
        for name in names
        if not _hidden(Path(where, name), folder)
    ]
    return sorted(file for file in found if file.is_file())


def _is_own(file: Path, own: Sequence[Path]) -> bool:
    """Returns whether a file is one of `own`, or in one of these folders."""
    if not any(mine.name in file.parts for mine in own):
        return False
    place = file.resolve()
    return any(mine.resolve() in (place, *place.parents) for mine in own)


def _hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _kind_of(name: str) -> tuple[str, str] | None:
    """Returns the format and the compression of a file by its name; None if it is not known."""
    stem, _, last = name.rpartition(".")
    compression = f".{last}" if f".{last}" in COMPRESSIONS else ""
    suffix = Path(stem if compression else name).suffix.lower()
    return (SUFFIXES[suffix], compression) if suffix in SUFFIXES else None


def _described(path: Path, given: str | None) -> CorpusPath:
    kind = _kind_of(path.name)
    compression = kind[1] if kind else path.suffix if path.suffix in COMPRESSIONS else ""
    kept = given or (kind[0] if kind else None)
    if kept is None:
        raise DataError(
            f"{path}: the format of this file is not known by its name. Pass --format "
            f"({', '.join(FORMATS)})."
        )
    if compression and kept in ("parquet", "arrow"):
        raise DataError(
            f"{path}: {kept} files are compressed inside; this one is compressed again. "
            f"Decompress it first ({compression})."
        )
    found = path.stat()
    return CorpusPath(str(path), kept, compression, found.st_size, found.st_mtime_ns)


def shards_of(files: Iterable[CorpusPath]) -> list[Shard]:
    """Returns the shards of the files, in the order of the corpus.

    Large files of text or JSON lines that are not compressed are divided into ranges; all others
    are one shard each.
    """
    shards: list[Shard] = []
    for file in files:
        if file.compression or file.format not in ("text", "jsonl") or file.size <= SHARD:
            shards.append(Shard(file))
            continue
        starts = range(0, file.size, SHARD)
        shards += [Shard(file, begin, min(begin + SHARD, file.size)) for begin in starts]
    return shards
