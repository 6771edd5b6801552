"""How a model translates best: its length penalty, shortlist and splitting, chosen on validation text when published.

The paper chose an exponent of 0.6 on its development set (§6.1); another corpus has another best value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from multihead.config.schema import ALPHA, BEAM, ModelSearch, SearchConfig, TrainConfig
from multihead.evaluation.metrics import bleu
from multihead.model.transformer import Transformer
from multihead.runs.learn_shortlist import SIZES, Lexicon, shortlist_of
from multihead.storage.shortlist import Shortlist
from multihead.text.sentences import split_sentences
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.engine import SearchResult, Segment, length_penalty
from multihead.translation.engines.torch_engine import TorchEngine

ALPHAS = (ALPHA, 0.8, 1.0, 1.25, 1.5)
RANKED = 1.0  # exponent of the search whose hypotheses are ranked with each of them
TIE_BLEU = 0.1  # BLEU; a smaller difference is chance
MAX_LOSS = 0.2  # BLEU that a shortlist may cost
MAX_SENTENCES = 512  # validation sentences that decide


@dataclass(frozen=True, slots=True)
class ValidationText:
    """Validation pairs: ids and text of the sources, and their translations by people."""

    segments: list[Segment]
    sources: list[str]
    references: list[str]
    source_lang: str
    target_lang: str

    def first(self, n_sentences: int) -> "ValidationText":
        return replace(
            self,
            segments=self.segments[:n_sentences],
            sources=self.sources[:n_sentences],
            references=self.references[:n_sentences],
        )


@dataclass(frozen=True, slots=True)
class Tuned:
    """The search that suits a model."""

    search: ModelSearch
    shortlist: Shortlist | None


class Tuner:
    """Searches validation text with a model and keeps what scores best."""

    def __init__(self, model: Transformer, tokenizer: SubwordTokenizer, text: ValidationText) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._text = text.first(MAX_SENTENCES)

    def tune(self, train: TrainConfig, candidates: Sequence[Shortlist]) -> Tuned:
        """Choose the search; `candidates` are shortlists, the smallest first."""
        alpha = self.best_alpha() if train.alpha == "auto" else train.alpha
        search = ModelSearch(alpha=alpha, split=not self._has_documents())
        return Tuned(search, self._cheapest(candidates, alpha))

    def best_alpha(self) -> float:
        """The exponent of the length penalty that scores best; of those that are as good, the smallest.

        The hypotheses of one search are ranked with each exponent, which takes a fifth of the time of five searches.
        """
        found = self._search(SearchConfig(alpha=RANKED, n_best=BEAM), None)
        scores = {alpha: self._bleu([_best(one, alpha) for one in found]) for alpha in ALPHAS}
        return min(alpha for alpha in ALPHAS if scores[alpha] >= max(scores.values()) - TIE_BLEU)

    def _cheapest(self, candidates: Sequence[Shortlist], alpha: float) -> Shortlist | None:
        """The smallest shortlist that costs little; none if all of them cost too much."""
        config = SearchConfig(alpha=alpha)
        wanted = self._score(config, None) - MAX_LOSS if candidates else 0.0
        return next((words for words in candidates if self._score(config, words) > wanted), None)

    def _has_documents(self) -> bool:
        """Whether most lines hold several sentences: then the model has learned to read them together."""
        several = [len(split_sentences(source, self._text.source_lang)[0]) > 1 for source in self._text.sources]
        return sum(several) > len(several) / 2

    def _score(self, config: SearchConfig, words: Shortlist | None) -> float:
        return self._bleu([one.best(1)[0].tokens for one in self._search(config, words)])

    def _search(self, config: SearchConfig, words: Shortlist | None) -> list[SearchResult]:
        return TorchEngine([self._model], words).search(self._text.segments, config)

    def _bleu(self, hypotheses: list[list[int]]) -> float:
        return bleu(translated(self._tokenizer, hypotheses), self._text.references, self._text.target_lang)


def translated(tokenizer: SubwordTokenizer, hypotheses: list[list[int]]) -> list[str]:
    return [tokenizer.decode(tokens).strip() for tokens in hypotheses]


def _best(found: SearchResult, alpha: float) -> list[int]:
    """The tokens of the hypothesis that this exponent ranks first."""
    hypotheses = found.best(BEAM)
    scores = [one.log_prob / float(length_penalty(len(one.tokens) + one.finished, alpha)) for one in hypotheses]
    return hypotheses[scores.index(max(scores))].tokens


def shortlists(lexicons: Sequence[Lexicon]) -> list[Shortlist]:
    """Shortlists of every size, the smallest first."""
    return [shortlist_of(lexicons, size) for size in SIZES]
