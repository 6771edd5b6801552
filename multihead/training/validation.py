"""Validation: loss, greedy translations and BLEU on the validation pairs of a corpus."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import torch

from multihead.config.schema import DataConfig, SearchConfig
from multihead.data.shards import Shards
from multihead.evaluation.by_direction import bleu_by_direction, mean_bleu
from multihead.hardware.device import autocast
from multihead.model.transformer import Transformer
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.batch import validation_batches
from multihead.training.metrics import Metrics, perplexity
from multihead.training.objective import Objective
from multihead.translation.confidence import mean_log_prob
from multihead.translation.search.beam import search
from multihead.translation.search.candidates import Candidates

GREEDY = SearchConfig(beam=1)  # fast, and close enough to beam search to follow a run


class TranslatedPair(NamedTuple):
    """A validation pair and the model's translation of its source."""

    source: str
    mean_log_prob: float  # of a token of the translation
    translation: str
    reference: str
    direction: str = ""  # in a model of several directions


@dataclass(frozen=True, slots=True)
class Validator:
    """Measures a model on validation pairs."""

    model: Transformer
    tokenizer: SubwordTokenizer
    shards: Shards
    config: DataConfig
    precision: torch.dtype = torch.float32  # of matrix products

    def metrics(self, bleu_sentences: int) -> Metrics:
        """Return loss and perplexity on all pairs, and greedy BLEU on the first `bleu_sentences` unless that is 0."""
        loss = self.loss()
        metrics = {"valid_loss": loss, "valid_perplexity": perplexity(loss)}
        if bleu_sentences:
            pairs = self.translate(bleu_sentences)
            metrics["valid_bleu"] = self._bleu(pairs)
            translations, references, directions = _columns(pairs)
            by_direction = bleu_by_direction(translations, references, directions) if self.shards.labels else {}
            metrics |= {f"valid_bleu.{name}": value for name, value in by_direction.items()}
            metrics["valid_bleu_pairs"] = min(bleu_sentences, len(self.shards))
        return metrics

    @torch.inference_mode()
    def loss(self, n_pairs: int | None = None) -> float:
        """Return the cross-entropy of all or of the first pairs in nats per token, without smoothing or dropout."""
        self.model.eval()
        objective, device, n_tokens = Objective(self.model), self._device, 0
        total = torch.zeros((), dtype=torch.float64, device=device)  # read once, since that waits for a GPU
        with self._autocast():
            for _, batch in validation_batches(self.shards, self.config.batch_tokens, n_pairs):
                total += objective(batch.to(device), smoothing=0.0, r_drop=0.0)[1]
                n_tokens += batch.n_tokens
        return float(total) / n_tokens

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _autocast(self) -> AbstractContextManager[None]:
        return autocast(self._device, self.precision)

    def direction_of(self, pair: int) -> str:
        """Return the direction of a pair; empty in a model of one pair of languages."""
        return self.config.directions[self.shards.labels[pair]] if self.shards.labels else ""

    def bleu(self, n_pairs: int) -> float:
        """Return BLEU of greedy translations of the first pairs; of several directions the mean."""
        return self._bleu(self.translate(n_pairs))

    def _bleu(self, pairs: list[TranslatedPair]) -> float:
        translations, references, directions = _columns(pairs)
        return mean_bleu(translations, references, directions if self.shards.labels else [], self.config.target_lang)

    def translate(
        self, n_pairs: int, config: SearchConfig = GREEDY, shortlist: Shortlist | None = None
    ) -> list[TranslatedPair]:
        """Translate the first pairs, in the order of the corpus."""
        self.model.eval()
        device = self._device
        candidates = Candidates(shortlist, device) if shortlist else None
        translated: dict[int, TranslatedPair] = {}
        for pairs, batch in validation_batches(self.shards, self.config.batch_tokens, n_pairs):
            batch = batch.to(device)
            with self._autocast():
                results = search([self.model], batch.source, config, candidates, batch.source_heads)
            for pair, result in zip(pairs.tolist(), results, strict=True):
                source, reference = (self.tokenizer.decode(ids.tolist()) for ids in self.shards[pair])
                best = result.best(1)[0]
                translation = self.tokenizer.decode(best.tokens)
                translated[pair] = TranslatedPair(
                    source, mean_log_prob([best]), translation, reference, self.direction_of(pair)
                )
        return [translated[pair] for pair in sorted(translated)]


def _columns(pairs: list[TranslatedPair]) -> tuple[list[str], list[str], list[str]]:
    """Return the translations, references and directions of pairs."""
    return [one.translation for one in pairs], [one.reference for one in pairs], [one.direction for one in pairs]
