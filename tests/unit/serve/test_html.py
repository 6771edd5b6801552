"""HTML in, HTML out: every tag kept, none broken, those inside of a sentence around the right words."""

import html
import time
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from multihead.serve.html import Alignment, Sentence, parse, place_tags


def word_by_word(sentence: Sentence) -> str:
    """As if every word were translated by itself, in its place."""
    n_words = len(sentence.text.split())
    return place_tags(sentence, sentence.text, np.eye(n_words))


@pytest.mark.parametrize(
    "markup",
    [
        "plain text",
        "<p>Hello <b>big</b> world. How are you?</p>",
        "a &lt; b &amp; c",
        "<p>A <a href='u'>link <i>in</i> it</a> here.</p>",
        "line one<br>line two<br/>line three",
        "<ul>\n  <li>One.</li>\n  <li>Two.</li>\n</ul>",
        "<script>if (a < b && c) { run('<b>') }</script>Text",
        "<style>p > b { color: red }</style>",
        "<p>One. <img src=x> Two.</p><!-- a comment -->",
        '<div class="notranslate">Brand <b>Name</b></div> and <span translate="no">this one</span> too',
        "<span> </span>",
        "<a href='x'></a><b> </b>",
        "<a href='x'><b></b></a><i></i>",
        "",
        "<!DOCTYPE html><p>Hi</p>",
        "<![CDATA[x]]>Text<?php 1 ?><!-->Text",
        "<p>Hi</p><script>never closed",
        "Hi <!-- never closed <b>",
        "<textarea>a &lt; b <b></textarea >Text",
        "<span class=notranslate>One <span>two</span> three</span> four",
        "<a title='1 > 0' href=\"x\">One</a> two",
    ],
)
def test_what_is_not_translated_comes_back_to_the_letter(markup: str) -> None:
    fragment = parse(markup)
    assert fragment.join([word_by_word(sentence) for sentence in fragment.sentences]) == markup


def test_only_text_is_translated() -> None:
    markup = "<h1>Title</h1><p>First. <b>Second one.</b></p><code>x = 1</code><textarea>no</textarea>"
    assert [sentence.text for sentence in parse(markup).sentences] == ["Title", "First.", "Second one."]


def test_tags_in_a_script_without_spaces_are_around_characters() -> None:
    (sentence,) = parse("I live in <b>Beijing</b>.").sentences
    alignment = np.zeros((6, 4))
    alignment[[0, 1, 2, 3, 4, 5], [0, 2, 3, 3, 1, 3]] = 1
    alignment[5] = [0.5, 0.5, 0, 0]
    assert place_tags(sentence, "我在北京住。", alignment) == "我在<b>北京</b>住。"


def test_tags_of_a_script_without_spaces_are_around_words() -> None:
    (sentence,) = parse("我在<b>北京</b>住。").sentences
    alignment = np.zeros((4, 6))
    alignment[[0, 1, 2, 3], [0, 4, 1, 2]] = 1
    assert place_tags(sentence, "I live in Beijing", alignment) == "I live in <b>Beijing</b>"


def moved(order: list[int]) -> Alignment:
    """Target word n comes from source word order[n]."""
    return np.eye(len(order))[order]


def test_an_element_goes_where_its_words_go() -> None:
    (sentence,) = parse("I have <b>never</b> seen <a href='u'>this film</a>").sentences
    said = place_tags(sentence, "Diesen Film habe ich nie gesehen", moved([4, 5, 1, 0, 2, 3]))
    assert said == "<a href='u'>Diesen Film</a> habe ich <b>nie</b> gesehen"


def test_an_element_whose_words_nothing_comes_from_is_not_lost() -> None:
    (sentence,) = parse("It <i>does</i> work").sentences
    alignment = np.array([[0.9, 0.1, 0.0], [0.0, 0.3, 0.7]])
    assert place_tags(sentence, "Es funktioniert", alignment) == "Es <i>funktioniert</i>"


def test_an_element_around_several_sentences_is_around_each() -> None:
    fragment = parse("<b>One. Two.</b> Three.")
    assert fragment.join([word_by_word(one) for one in fragment.sentences]) == "<b>One.</b> <b>Two.</b> Three."


def test_what_the_model_says_cannot_become_markup() -> None:
    assert place_tags(Sentence("x"), "<script>alert(1)</script> & co", None) == (
        "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co"
    )


PARTS = [
    "<b>",
    "</b>",
    "<a href='x'>",
    "</a>",
    "<p>",
    "</p>",
    "<br>",
    "<i>",
    "</i>",
    "one ",
    "two. ",
    "Three",
    " ",
    "&amp;",
    "<",
]


class Balance(HTMLParser):
    """Follows the inline elements, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.is_crossed = False
        self.text = ""

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("a", "b", "i"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("a", "b", "i"):
            self.is_crossed |= not self.open or self.open.pop() != tag


@given(parts=st.lists(st.sampled_from(PARTS), max_size=12), seed=st.integers(0, 100))
@example(parts=["<a href='x'>", "</a>", "<b>", " "], seed=0)
def test_whatever_comes_in_inline_elements_come_out_balanced(parts: list[str], seed: int) -> None:
    """However broken the markup, and wherever the words go."""
    rng = np.random.default_rng(seed)
    fragment = parse("".join(parts))
    said = []
    for sentence in fragment.sentences:
        words = sentence.text.split()
        said.append(place_tags(sentence, " ".join(reversed(words)), rng.random((len(words), len(words)))))
    balance = Balance()
    balance.feed(out := fragment.join(said))
    assert not balance.open and not balance.is_crossed, out
    letters = "".join(sentence.text for sentence in fragment.sentences).split()
    assert sorted("".join(balance.text.split())) == sorted("".join(letters))


@pytest.mark.parametrize(
    "text",
    [
        "<![ MySecretName 555-1234",
        "<![foo[ bar",
        "<![%",
        "1 < 2 and 3 <4",
        "a <b and c",
        "a <b c='d",
        "</",
        "<?x",
        "&#" + "9" * 4400 + ";",
    ],
)
def test_markup_that_never_ends_is_text(text: str) -> None:
    fragment = parse(text)
    assert "".join(sentence.text for sentence in fragment.sentences) == text
    assert fragment.join([word_by_word(one) for one in fragment.sentences]) == html.escape(text, quote=False)


ODD = st.text("<>![]-&;/\"'= ab", max_size=60)


@given(markup=ODD)
def test_no_markup_is_too_odd_to_be_read(markup: str) -> None:
    fragment = parse(markup)
    written = fragment.join([word_by_word(one) for one in fragment.sentences])
    assert parse(written).join([word_by_word(one) for one in parse(written).sentences]) == written


@pytest.mark.parametrize(
    "piece",
    [
        *("<", "&", "<![", "<b>", "<b>x", "<b>x ", "<!--", "<a ", "<a/", "<a =", "<a b=", "<a b='", "<a b='>' ", "</"),
        *("</b ", "<?", "<!", "<script>", "<script></", "<pre>", "</b>", "<b></i>", "<p>x", "<br>", "<b></b>"),
        *("<![CDATA[", "<!DOCTYPE ", "<title>&", "<b> </b>", "<b>x</b> ", "<img>x", "<a translate "),
    ],
)
@pytest.mark.long
def test_a_long_text_of_odd_markup_is_read_and_written_at_once(piece: str) -> None:
    """Each takes a fraction of a second in linear time; the quadratic ones took minutes."""
    began = time.monotonic()
    fragment = parse(piece * (100_000 // len(piece)))
    fragment.join([place_tags(sentence, sentence.text, None) for sentence in fragment.sentences])
    assert time.monotonic() - began < 10


def test_deep_nesting_does_not_multiply_a_text() -> None:
    """An element around several sentences is repeated in each of them."""
    fragment = parse("<b>" * 800 + "A. " * 800)
    written = fragment.join([place_tags(sentence, sentence.text, None) for sentence in fragment.sentences])
    assert len(written) < 50 * 5000
