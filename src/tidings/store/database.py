"""What the store asks of a database: six tables, plain SQL with `?`, transactions, and errors as StoreError.

| table   | one row is                                                     | written                          |
|---------|----------------------------------------------------------------|----------------------------------|
| event   | an event at its offset                                         | with its group                   |
| journal | all other records of one group, in order                       | with its group                   |
| state   | a live subscription or advertisement, or a mark of the store   | when a stretch of journal folds  |
| pair    | an open (event, subscription) pair                             | when a stretch of journal folds  |
| tally, age | counters of the ledger                                     | when a stretch of journal folds  |

Names are kept as UTF-8 bytes: PostgreSQL's text takes no NUL, and bytes have one order everywhere.
"""

import abc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

VERSION = 1

SCHEMA = """
CREATE TABLE event (pos {integer} PRIMARY KEY, due_s {real} NOT NULL, body {blob} NOT NULL);
CREATE INDEX event_due ON event (due_s);
CREATE TABLE journal (pos {integer} PRIMARY KEY, records {integer} NOT NULL, at_s {real} NOT NULL, body {blob} NOT NULL);
CREATE TABLE state (kind TEXT NOT NULL, name {blob} NOT NULL, body {blob} NOT NULL, PRIMARY KEY (kind, name)) {keyed};
CREATE TABLE pair (event {blob} NOT NULL, subscription {blob} NOT NULL, pos {integer} NOT NULL, born_s {real} NOT NULL,
    PRIMARY KEY (event, subscription)) {keyed};
CREATE INDEX pair_pos ON pair (pos);
CREATE TABLE tally (kind TEXT NOT NULL, name {blob} NOT NULL, matched {integer} NOT NULL, on_time {integer} NOT NULL,
    late {integer} NOT NULL, expired {integer} NOT NULL, undeliverable {integer} NOT NULL, earning {real} NOT NULL,
    age_s {real} NOT NULL, at_s {real} NOT NULL, PRIMARY KEY (kind, name)) {keyed};
CREATE TABLE age (kind TEXT NOT NULL, name {blob} NOT NULL, bucket {integer} NOT NULL, events {integer} NOT NULL,
    PRIMARY KEY (kind, name, bucket)) {keyed};
"""

Row = tuple[Any, ...]


class Database(abc.ABC):
    """One connection. A writer holds the store's lock as long as it is open."""

    types: ClassVar[dict[str, str]]

    @abc.abstractmethod
    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement."""

    @abc.abstractmethod
    def many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run one statement for each row."""

    @abc.abstractmethod
    def _begin(self, write: bool) -> None: ...

    @abc.abstractmethod
    def _commit(self) -> None:
        """When this returns, what was written is on the disk."""

    @abc.abstractmethod
    def _rollback(self) -> None:
        """Never raises."""

    @abc.abstractmethod
    def close(self) -> None:
        """Never raises."""

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """All or nothing; readers see one moment."""
        self._begin(write)
        try:
            yield
            self._commit()
        except BaseException:
            self._rollback()
            raise

    def create(self) -> None:
        for statement in SCHEMA.format(**self.types).split(";"):
            if statement.strip():
                self.rows(statement)
