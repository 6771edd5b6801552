"""What a user asks for, and what it is settled as: text, preset, vocabulary, dropout; a run is a function of that."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from multihead.config.schema import Settings
from multihead.data import embedded_corpus
from multihead.data.parallel_text import (
    Files,
    ParallelText,
    from_files,
    guess_languages,
)
from multihead.errors import UsageError

MODEL_VOCAB = "model.vocab_size"
START_FROM = "train.base_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """What a user asks for. Without `source` and `data` the embedded corpus is taken."""

    output: Path
    source: Files | None = None  # one corpus, or several
    target: Files | None = None
    weights: Sequence[float] = ()  # how often the pairs of each corpus come in an epoch; once, if nothing is said
    valid_source: Path | None = None
    valid_target: Path | None = None
    data: Path | None = None  # a corpus that `multihead prepare` made
    preset: str | None = None
    settings: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one, other in (("source", "target"), ("valid_source", "valid_target")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise UsageError(f"--{one} and --{other} go together".replace("_", "-"))
        if self.data and (self.source or self.valid_source):
            raise UsageError("--data is a corpus that is prepared already: it takes no --source or --valid-source")
        if self.valid_source and not self.source:
            raise UsageError("--valid-source needs --source")

    def text(self) -> ParallelText:
        if self.source and self.target:
            valid = (self.valid_source, self.valid_target) if self.valid_source and self.valid_target else None
            return from_files(self.source, self.target, valid, self.weights)
        return embedded_corpus.embedded_text()

    def languages(self) -> Settings:
        if self.data:
            return {}
        if not self.source or not self.target:
            return embedded_corpus.LANGUAGES
        return guess_languages(self.source, self.target)
