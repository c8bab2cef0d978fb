"""The tables of an answer store, and how files of older formats are brought up to date."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

#: SQLite application id in the file header ("LMev"). It distinguishes stores from other databases.
APPLICATION_ID = 0x4C4D6576
#: Version of the file format, kept in SQLite's `user_version`. Formats 1 to 3 have no checksums:
#: their table `answers` is kept under the name `UNCHECKED` when a newer version writes to the file.
FORMAT = 4
#: The table with the answers of formats 1 to 3.
UNCHECKED = "unchecked_answers"

_TABLES = """
CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY, identity TEXT UNIQUE NOT NULL);
CREATE TABLE answers (
    model INTEGER NOT NULL, kind TEXT NOT NULL, keys BLOB NOT NULL, answers BLOB NOT NULL,
    checksums BLOB NOT NULL
);
CREATE INDEX answers_with_checksums_of_model ON answers (model);
"""


class StoreConnection(sqlite3.Connection):
    """A connection that reads damaged text too; it is recognized by its checksum."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.text_factory = lambda content: content.decode(errors="replace")

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Executes a statement; raises `sqlite3.Error` also if a damaged name is in the message."""
        try:
            return super().execute(*arguments)
        except UnicodeDecodeError as error:  # of the message: it quotes a name in the file
            raise sqlite3.DatabaseError(error.object.decode(errors="replace")) from error


@dataclass(frozen=True)
class Schema:
    """Which tables a file has."""

    empty: bool
    """Whether it has none, because it is new."""
    checked: bool
    """Whether its table `answers` has checksums."""
    unchecked: str | None
    """Name of the table with answers without checksums, or None."""

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> Schema:
        """Returns the schema of a file. Raises `sqlite3.Error` if it cannot be read."""
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        columns = [row[1] for row in connection.execute("PRAGMA table_info(answers)")]
        checked = "checksums" in columns
        old = UNCHECKED if UNCHECKED in tables else None
        return cls(not tables, checked, "answers" if columns and not checked else old)


def create_tables(connection: sqlite3.Connection) -> None:
    """Creates the tables of a new file, or those that a file of an older format lacks.

    Does nothing if another process has done it meanwhile. Raises `sqlite3.Error` if it fails.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        schema = Schema.of(connection)
        if not schema.checked:
            if schema.unchecked == "answers":
                connection.execute(f"ALTER TABLE answers RENAME TO {UNCHECKED}")
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
