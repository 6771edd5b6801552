"""Choose the search settings of a published model on validation text: length penalty, shortlist, sentence splitting,
and the layer whose attention aligns words.

The paper chose an exponent of 0.6 on its development set (§6.1); other corpora have other best values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from multihead.config.directions import languages_of
from multihead.config.schema import ALPHA, BEAM, ModelSearch, SearchConfig, TrainConfig
from multihead.evaluation.by_direction import mean_bleu
from multihead.inspection.attention_maps import best_alignment_layer
from multihead.inspection.record import record
from multihead.model.transformer import Transformer
from multihead.runs.learn_shortlist import SIZES, Lexicon, shortlist_of
from multihead.storage.shortlist import Shortlist
from multihead.text.dependency_trees import NO_HEAD
from multihead.text.sentences import split_sentences
from multihead.text.tokenizer import BOS_ID, EOS_ID, SubwordTokenizer
from multihead.translation.engine import SearchResult, Segment, length_penalty
from multihead.translation.engines.torch_engine import TorchEngine

ALPHAS = (ALPHA, 0.8, 1.0, 1.25, 1.5)
SEARCH_ALPHA = 1.0  # exponent of the search whose hypotheses are ranked with each of ALPHAS
TIE_BLEU = 0.1  # smaller differences are chance
MAX_BLEU_LOSS = 0.2  # that a shortlist may cost
MAX_SENTENCES = 512  # validation sentences used
N_ALIGNED = 100  # validation pairs that the alignment layer is chosen on


@dataclass(frozen=True, slots=True)
class ValidationText:
    """Validation pairs: ids and text of the sources, and reference translations."""

    segments: list[Segment]
    sources: list[str]
    references: list[str]
    source_lang: str
    target_lang: str
    directions: list[str] = field(default_factory=list)  # of each pair, in a model of several directions

    def first(self, n_sentences: int) -> "ValidationText":
        """Return the first pairs."""
        return replace(
            self,
            segments=self.segments[:n_sentences],
            sources=self.sources[:n_sentences],
            references=self.references[:n_sentences],
            directions=self.directions[:n_sentences],
        )


@dataclass(frozen=True, slots=True)
class Tuned:
    """The search settings that suit a model."""

    search: ModelSearch
    shortlist: Shortlist | None

    def calibrated(self, levels: tuple[float, ...], shares: tuple[float, ...]) -> "Tuned":
        """Return a copy with the confidence in translations by their log-probability."""
        return replace(self, search=replace(self.search, confidence_levels=levels, confidence=shares))


class Tuner:
    """Translates validation text with several search settings, and chooses the best."""

    def __init__(self, model: Transformer, tokenizer: SubwordTokenizer, text: ValidationText) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._text = text.first(MAX_SENTENCES)

    def tune(self, train: TrainConfig, candidates: Sequence[Shortlist]) -> Tuned:
        """Return the best search settings; `candidates` are shortlists, smallest first."""
        alpha = self.best_alpha() if train.alpha == "auto" else train.alpha
        search = ModelSearch(alpha=alpha, split=not self._has_documents(), alignment_layer=self._alignment_layer())
        return Tuned(search, self._cheapest(candidates, alpha))

    def best_alpha(self) -> float:
        """Return the exponent of the length penalty with the best BLEU; of equally good ones the smallest.

        One search, whose hypotheses are ranked with each exponent, takes a fifth of the time of five searches.
        """
        results = self._search(SearchConfig(alpha=SEARCH_ALPHA, n_best=BEAM), None)
        scores = {alpha: self._bleu([_best(result, alpha) for result in results]) for alpha in ALPHAS}
        return min(alpha for alpha in ALPHAS if scores[alpha] >= max(scores.values()) - TIE_BLEU)

    def _alignment_layer(self) -> int | None:
        return self.best_alignment_layer() if self._model.config.attends_to_source else None

    def best_alignment_layer(self) -> int:
        """Return the decoder layer that aligns the words of validation pairs best."""
        max_len, text = self._model.config.max_len, self._text.first(N_ALIGNED)
        targets = [[BOS_ID, *self._tokenizer.encode(reference)][:max_len] for reference in text.references]
        maps = [
            record(self._model, [*one.ids, EOS_ID], target, None if one.heads is None else [*one.heads, NO_HEAD])
            for one, target in zip(text.segments, targets, strict=True)
        ]
        return best_alignment_layer(cross for _, _, cross in maps)

    def _cheapest(self, candidates: Sequence[Shortlist], alpha: float) -> Shortlist | None:
        """Return the smallest shortlist that costs little BLEU, or None if all cost too much."""
        config = SearchConfig(alpha=alpha)
        min_bleu = self._score(config, None) - MAX_BLEU_LOSS if candidates else 0.0
        return next((words for words in candidates if self._score(config, words) > min_bleu), None)

    def _has_documents(self) -> bool:
        """Return whether most lines have several sentences; such a model translates lines as a whole."""
        languages = [languages_of(name)[0] for name in self._text.directions]
        languages = languages or [self._text.source_lang] * len(self._text.sources)
        several = [
            len(split_sentences(source, language)[0]) > 1
            for source, language in zip(self._text.sources, languages, strict=True)
        ]
        return sum(several) > len(several) / 2

    def _score(self, config: SearchConfig, words: Shortlist | None) -> float:
        return self._bleu([result.best(1)[0].tokens for result in self._search(config, words)])

    def _search(self, config: SearchConfig, words: Shortlist | None) -> list[SearchResult]:
        return TorchEngine([self._model], words).search(self._text.segments, config)

    def _bleu(self, hypotheses: list[list[int]]) -> float:
        text = self._text
        return mean_bleu(translated(self._tokenizer, hypotheses), text.references, text.directions, text.target_lang)


def translated(tokenizer: SubwordTokenizer, hypotheses: list[list[int]]) -> list[str]:
    """Return the text of hypotheses."""
    return [tokenizer.decode(tokens).strip() for tokens in hypotheses]


def _best(result: SearchResult, alpha: float) -> list[int]:
    """Return the tokens of the hypothesis that this exponent ranks first."""
    hypotheses = result.best(BEAM)
    scores = [h.log_prob / float(length_penalty(len(h.tokens) + h.finished, alpha)) for h in hypotheses]
    return hypotheses[scores.index(max(scores))].tokens


def shortlists(lexicons: Sequence[Lexicon]) -> list[Shortlist]:
    """Return shortlists of every size, smallest first."""
    return [shortlist_of(lexicons, size) for size in SIZES]
