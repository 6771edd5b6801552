"""Which languages a model translates into, and how a source says so."""

from collections.abc import Sequence
from dataclasses import dataclass

from multihead.config.schema import DataConfig
from multihead.errors import UsageError
from multihead.text.language import find_code
from multihead.text.target_languages import target_ids
from multihead.text.tokenizer import SubwordTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A language to translate into."""

    data: DataConfig  # the settings of the model with the languages of this target; no source if there are several
    sources: Sequence[str] = ()  # languages that are translated into it, if the model has several directions
    prefix: Sequence[int] = ()  # ids at the start of a source


class Targets:
    """The directions of a model, of which one is chosen by its target.

    A source that does not say its target is possible for imported models, whose users type the piece themselves.
    """

    def __init__(self, name: str, data: DataConfig, tokenizer: SubwordTokenizer) -> None:
        self._name, self._data = name, data
        self._ids = target_ids(tokenizer)
        self._is_imported = data.tokenizer == "unigram"
        self._has_pieces = bool(data.directions) or (self._is_imported and len(self._ids) > 1)
        self.pairs = data.pairs
        if self._has_pieces and not data.directions:  # of a version that did not store directions
            self.pairs = [(data.source_lang, code) for code in self._ids]

    @property
    def languages(self) -> list[str]:
        """The languages that the model translates into."""
        return list(dict.fromkeys(target for _, target in self.pairs))

    @property
    def must_be_chosen(self) -> bool:
        """Whether a translation needs a target that the user names."""
        return self._has_pieces and not self._is_imported and len(self.languages) > 1

    @property
    def may_be_typed(self) -> bool:
        """Whether users may type the piece of the target themselves."""
        return self._has_pieces and self._is_imported and len(self.languages) > 1

    def choose(self, to: str | None, source: str | None = None) -> Target:
        """Return a target by its language, which may be left open if there is only one."""
        if to is None and self.must_be_chosen:
            raise UsageError(f"{self._offer()}: choose one with --to {self.languages[0]} (in Python: to=...)")
        if not self._has_pieces:
            self._check_only_target(to)
            return Target(data=self._data)
        if to is None and self.may_be_typed:
            return Target(data=self._data)
        target = find_code(to, self.languages) if to else self.languages[0]
        if target is None:
            raise UsageError(f"{self._offer()}, not into {to}")
        sources = [one for one, other in self.pairs if other == target and source in (None, one)]
        return Target(
            data=self._data.for_pair(sources[0] if len(sources) == 1 else "", target),
            sources=sources,
            prefix=[self._ids[code]] if (code := find_code(target, self._ids)) else [],
        )

    def _check_only_target(self, to: str | None) -> None:
        own = self._data.target_lang
        if to is not None and not own:
            raise UsageError(f"{self._name} does not name the language that it translates into: leave out --to {to}")
        if to is not None and not find_code(to, [own]):
            raise UsageError(f"{self._offer()}, not into {to}")

    def _offer(self) -> str:
        return f"{self._name} translates into {', '.join(self.languages)}"
