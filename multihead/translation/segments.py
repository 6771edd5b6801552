"""TODO."""

import re
from dataclasses import dataclass, field

LONG_PIECE = 50  # characters; no piece of a vocabulary is that long
SHORT, SHORT_TEXT = 0.4, 12  # an output of fewer tokens than this share of a source of so many is suspicious
# An imported model of several target languages is told which one at the start of a sentence.
LANGUAGE_CODE = re.compile(r"\s*>>[\w-]+<<\s*")
CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f]")  # characters that are neither text nor white space


@dataclass(slots=True, kw_only=True)
class SourceLine:
    """A text on its way: the segments that are searched for it, the gap before each, and warnings."""

    segments: list[list[int]] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, ids: list[int], gap: str) -> None:
        if ids:
            self.segments.append(ids)
            self.gaps.append(gap)
