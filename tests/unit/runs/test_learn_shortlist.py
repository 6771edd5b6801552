"""What a shortlist allows, and that it is learned from text."""

import numpy as np
import pytest
import torch

from multihead.config.schema import SearchConfig
from multihead.data.shards import Shards
from multihead.runs.learn_shortlist import Size, Vary, _sample, learn_shortlists, shortlist_of
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import EOS_ID
from multihead.translation.search.beam import search
from multihead.translation.search.candidates import Candidates, CandidateTokens
from tests.unit.translation.test_search import make, sources

CPU = torch.device("cpu")


def for_batch(shortlist: Shortlist, source_ids: torch.Tensor) -> CandidateTokens:
    return Candidates(shortlist, CPU).for_batch(source_ids)


class Pairs(Shards):
    """A corpus that is a list."""

    parts = ()

    def __init__(self, pairs: list[tuple[list[int], list[int]]]) -> None:
        self._pairs = [
            (np.array(source, dtype=np.uint16), np.array(target, dtype=np.uint16)) for source, target in pairs
        ]

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, pair: int) -> tuple[np.ndarray, np.ndarray]:
        return self._pairs[pair]

    def lengths(self, first: int = 0, end: int | None = None) -> np.ndarray:
        return np.array([[len(source), len(target)] for source, target in self._pairs[first:end]], dtype=np.int32)


def a_dictionary() -> Pairs:
    """Words 10 to 19 are translated by 30 to 39, in any order, and every sentence has a 50."""
    rng = np.random.default_rng(1)
    drawn = [rng.choice(np.arange(10, 20), size=4, replace=False).tolist() for _ in range(300)]
    return Pairs([(source, [*reversed([word + 20 for word in source]), 50]) for source in drawn])


def test_the_likeliest_translation_of_a_word_comes_first() -> None:
    learned = learned_from(a_dictionary())
    assert learned.candidates[10:20, 0].tolist() == list(range(30, 40))
    assert learned.frequent[0] == 50


def learned_from(pairs: Pairs, vary: Vary | None = None) -> Shortlist:
    return shortlist_of(learn_shortlists(pairs, vocab_size=60, vary=vary), Size(5, 10))


def test_a_larger_size_allows_more_words() -> None:
    lexicons = learn_shortlists(a_dictionary(), vocab_size=60)
    few, many = (shortlist_of(lexicons, size) for size in (Size(1, 1), Size(4, 8)))
    assert (few.candidates.shape, len(few.frequent)) == ((60, 1), 1)
    assert (many.candidates.shape, len(many.frequent)) == ((60, 4), 8)
    assert np.array_equal(many.candidates[:, :1], few.candidates)


def test_words_of_another_form_have_candidates_too() -> None:
    """Word 5 stands for 10 in lower case, and is in no pair as it is written."""

    def small(pair: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return np.where(pair[0] == 10, 5, pair[0]), pair[1]

    plain, both = learned_from(a_dictionary()), learned_from(a_dictionary(), small)
    assert plain.candidates[5].tolist() == [EOS_ID] * 5
    assert 30 in both.candidates[5].tolist()
    # What is learned from other forms takes nothing away from the pairs as they are.
    assert all(
        set(was) <= {*now, EOS_ID} for was, now in zip(plain.candidates.tolist(), both.candidates.tolist(), strict=True)
    )


def test_of_a_large_corpus_a_part_is_enough_if_every_word_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = a_dictionary()
    pairs._pairs += Pairs([([21, 10], [41, 30, 50]), ([21, 11], [41, 31, 50])])._pairs
    monkeypatch.setattr("multihead.runs.learn_shortlist.MAX_LINKS", 2000)
    assert len(_sample(pairs, 60, 2000)) < 150
    learned = learned_from(pairs)
    assert learned.candidates[10:20, 0].tolist() == list(range(30, 40))
    assert 41 in learned.candidates[21].tolist()


def a_shortlist() -> Shortlist:
    candidates = np.full((20, 2), EOS_ID)
    for word, translations in {0: [18, 18], 5: [15, 16], 6: [16, 17]}.items():  # padding's are never asked for
        candidates[word] = translations
    return Shortlist(candidates, frequent=np.array([12]))


def test_a_sentence_may_say_candidates_frequent_words_and_its_own() -> None:
    words = for_batch(a_shortlist(), torch.tensor([[5, EOS_ID, 0], [6, 7, EOS_ID]]))
    allowed = [words.ids[row == 0].tolist() for row in words.log_mask]
    assert allowed == [[3, 5, 12, 15, 16], [3, 6, 7, 12, 16, 17]]
    assert words.ids[words.end] == EOS_ID


def test_a_search_with_every_word_on_the_list_is_the_search_without_one() -> None:
    model, source = make(), sources(5, 7, 3, 6)
    everything = Shortlist(candidates=np.full((31, 1), EOS_ID), frequent=np.arange(31))
    config = SearchConfig(max_extra=8, n_best=4, no_repeat=2, min_length=3)
    plain, listed = (
        search([model], source, config),
        search([model], source, config, shortlist=Candidates(everything, CPU)),
    )
    for one, other in zip(plain, listed, strict=True):
        assert [best.tokens for best in one.best(4)] == [best.tokens for best in other.best(4)]
        # A probability is now a share of what can be said; pad, unknown and start symbols cannot.
        assert one.best(1)[0].log_prob == pytest.approx(other.best(1)[0].log_prob, abs=1.0)


def test_only_words_of_the_list_are_said() -> None:
    few = Shortlist(candidates=np.random.default_rng(0).integers(4, 31, (31, 2)), frequent=np.array([4]))
    source = sources(5, 7, 3, 6)
    words = for_batch(few, source)
    for row, found in enumerate(search([make()], source, SearchConfig(max_extra=8), shortlist=Candidates(few, CPU))):
        assert set(found.best(1)[0].tokens) <= set(words.ids[words.log_mask[row] == 0].tolist())
