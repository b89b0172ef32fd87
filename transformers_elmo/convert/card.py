# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The section about the source in the model card of a converted checkpoint."""

import re
from dataclasses import dataclass, field
from importlib.metadata import version

from ..model_card import fill_template, table
from ..text import printable
from .verification import TOLERANCE, Verification


@dataclass(frozen=True)
class Provenance:
    """The files that a checkpoint was converted from, and how closely it reproduces them."""

    format: str
    files: list[tuple[str, int, str]]  # name, bytes, SHA-256
    verification: Verification
    notes: list[str] = field(default_factory=list)

    def section(self) -> str:
        """Return the section as Markdown."""
        return fill_template(
            "source",
            version=version("transformers-elmo"),
            format=self.format,
            files=table((f"`{markdown_name(file)}`", f"{size:,}", f"`{digest}`") for file, size, digest in self.files),
            notes="".join(f"\n- {markdown_text(note)}" for note in self.notes) + ("\n" if self.notes else ""),
            words=self.verification.words,
            sentences=self.verification.sentences,
            tolerance=TOLERANCE,
            parity=table((row.name, f"{row.largest:.2f}", f"{row.difference:.1e}") for row in self.verification.rows),
        )


def markdown_text(note: str) -> str:
    """Return a note, which may quote a stranger's names, without what would become a link, a picture or HTML."""
    return re.sub(r"[][<>`|*!&]", "?", note)


def markdown_name(file: str) -> str:
    """Return a stranger's file name as code in a cell of a table, without what would end either."""
    return printable(file).replace("`", "?").replace("|", "?")
