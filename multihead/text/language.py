"""Names of languages, and whether a text looks like one language rather than another.

Function words and scripts decide, which takes microseconds. A text without evidence looks like nothing.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

# Names of common languages; any other language is shown by its code.
_NAMES = {
    **{"af": "Afrikaans", "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech"},
    **{"cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto"},
    **{"es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French"},
    **{"ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian"},
    **{"id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian"},
    **{"lv": "Latvian", "mk": "Macedonian", "mt": "Maltese", "nl": "Dutch", "no": "Norwegian", "pl": "Polish"},
    **{"pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian"},
    **{"sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "th": "Thai", "tr": "Turkish"},
    **{"uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese"},
}

# Their codes of three letters (ISO 639-2 and 639-3), which OPUS-MT uses.
_LONG_CODES = {
    **{"afr": "af", "ara": "ar", "bul": "bg", "ben": "bn", "cat": "ca", "ces": "cs", "cze": "cs", "cym": "cy"},
    **{"dan": "da", "deu": "de", "ger": "de", "ell": "el", "eng": "en", "epo": "eo", "spa": "es", "est": "et"},
    **{"eus": "eu", "fas": "fa", "pes": "fa", "fin": "fi", "fra": "fr", "fre": "fr", "gle": "ga", "glg": "gl"},
    **{"heb": "he", "hin": "hi", "hrv": "hr", "hun": "hu", "ind": "id", "isl": "is", "ita": "it", "jpn": "ja"},
    **{"kor": "ko", "lit": "lt", "lav": "lv", "mkd": "mk", "mlt": "mt", "nld": "nl", "dut": "nl", "nor": "no"},
    **{"pol": "pl", "por": "pt", "ron": "ro", "rum": "ro", "rus": "ru", "slk": "sk", "slv": "sl", "sqi": "sq"},
    **{"srp": "sr", "swe": "sv", "swa": "sw", "tam": "ta", "tha": "th", "tur": "tr", "ukr": "uk", "urd": "ur"},
    **{"vie": "vi", "zho": "zh", "chi": "zh"},
}

# Frequent words that carry grammar, not meaning. A word that two languages share counts for neither of them.
_FUNCTION_WORDS = {
    "cs": "a že na se je v to jsem s z do i ale jak co by ne si jsou byl pro po tak jako mi mě jeho když má být které",
    "da": "og det at en jeg den til er som på de med han af for ikke der var mig sig men et har om vi havde hun",
    "de": """der die das und ist nicht ich sie er es ein eine einen zu mit von auf den dem im für sich wir du haben hat
        wie was wo wenn auch aber nur noch sind mein dein ihr uns bei nach aus kann wird werden oder warum keine kein
        dass diese dieser dieses bitte sehr hier""",
    "en": """the and is are was were of to in that it he she you i we they not for with on at this have has had my your
        his her be do does did what where when why how there who an a as by from or if but can will would me them so no
        their our us about please very here don't it's i'm go get let's come never too all some man war die hat""",
    "es": "el la los las de que y en un una es no por con para está me mi lo su se del al pero más muy qué cómo yo",
    "fi": "ja on ei se että hän minä oli ovat mutta kun niin sen joka mitä myös olen tämä ole kuin hänen minun voi",
    "fr": """le la les de des du un une et est je tu il elle nous vous ils que qui dans pour pas ne ce cette sur avec
        mon ma son sa au plus où est-ce c'est j'ai être avoir mais ou très""",
    "hu": "az egy és nem hogy van ez meg csak már vagy volt mint de ha el még azt mi nagyon ezt ki én itt",
    "it": "il lo la gli le di che è e un una non per con sono mi ho ha del della nel al da come dove cosa più ma io",
    "nl": "de het een en is dat van ik niet je in op te zijn met voor er hij was aan ook maar ze wat die naar heeft",
    "no": "og det er på jeg en som ikke til de han med for av at den har var men et vi meg fra hva hun kan skal",
    "pl": "i w na nie że to się z jest do jak a ale co o po jego czy tym był tego są już dla ma tylko pan mnie przez",
    "pt": "o a os as de que e em um uma é não por com para eu você ele ela mas do da no na como onde mais muito está",
    "ro": "și de la în nu un o este pe cu care să că a din mai ce sunt pentru am are ești unde cum dar acest",
    "sv": "och att det som en är på jag inte med för den av till har de han ett om var men vi du hon vad kan från",
    "tr": "bir ve bu da de ne için çok var ben o mi sen değil gibi daha kadar ama şey her nerede olarak",
}
# Pronouns that stand for a noun, and words that a noun follows.
_PRONOUNS = {
    "en": "it its itself he him his himself she her hers herself they them their theirs themselves",
    "de": "er ihn ihm sein seine seinen seinem seiner sie ihr ihre ihren ihrem ihrer es ihnen",
    "fr": "il elle ils elles lui leur leurs son sa ses eux",
    "es": "él ella ellos ellas lo los le les su sus",
}
_DETERMINERS = {
    "en": "a an the my your his her its our their this that these those some any every no",
    "fr": "un une le la les des du au aux mon ma mes ton ta tes son sa ses notre votre leur leurs ce cet cette ces",
    "es": "un una el la los las mi tu su mis tus sus este esta ese esa al del",
}
_SCRIPTS: dict[str, tuple[str, ...]] = {  # how the Unicode names of letters begin
    **dict.fromkeys("ru uk bg sr mk be".split(), ("CYRILLIC",)),
    **dict.fromkeys("ar fa ur".split(), ("ARABIC",)),
    **dict.fromkeys("zh ja".split(), ("CJK", "HIRAGANA", "KATAKANA")),
    **{"he": ("HEBREW",), "el": ("GREEK",), "hi": ("DEVANAGARI",), "bn": ("BENGALI",), "ta": ("TAMIL",)},
    **{"th": ("THAI",), "ko": ("HANGUL",)},
    **dict.fromkeys(_FUNCTION_WORDS, ("LATIN",)),
}
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
MIN_WORDS = 2  # distinct function words that are evidence of a language
MIN_LETTERS = 4  # in a script that are evidence of a language
MIN_LINES = 5  # with evidence that are needed to judge a file
MIN_SHARE = 0.9  # of those lines


def name_of(code: str) -> str:
    """Return the English name of a language, or its code."""
    return _NAMES.get(code, code)


def is_known(code: str) -> bool:
    """Return whether a code is that of a common language, with or without a region."""
    return _base(code) in _NAMES


def find_code(wanted: str, codes: Iterable[str]) -> str | None:
    """Return which of some codes means a language: the same code, or the only one of it with another region or form."""
    known = list(dict.fromkeys(codes))
    form = wanted.replace("_", "-").lower()
    if same := [code for code in known if code.replace("_", "-").lower() == form]:
        return same[0]
    alike = [code for code in known if _short(code) == _short(wanted) and (_has_no_region(code) or "-" not in form)]
    return alike[0] if len(alike) == 1 else None


def _short(code: str) -> str:
    base = _base(code)
    return _LONG_CODES.get(base, base)


def _has_no_region(code: str) -> bool:
    return _base(code) == code.lower()


def function_words(code: str) -> frozenset[str]:
    """Return the frequent words of a language that carry grammar, not meaning; none if they are not known."""
    return frozenset(_FUNCTION_WORDS.get(_base(code), "").split())


def pronouns(code: str) -> frozenset[str]:
    """Return the pronouns of a language that stand for a noun; none if they are not known."""
    return frozenset(_PRONOUNS.get(_base(code), "").split())


def determiners(code: str) -> frozenset[str]:
    """Return the words of a language that a noun follows; none if they are not known."""
    return frozenset(_DETERMINERS.get(_base(code), "").split())


def looks_like(text: str, language: str, rather_than: str) -> bool:
    """Return whether a text is clearly in the first of two languages; False for names and very short texts."""
    script = _script_of(language)
    if script and script not in (("LATIN",), _script_of(rather_than)):
        return _is_in_script(text, script)
    words = {word.replace("\u2019", "'") for word in _WORD.findall(text.lower())}
    return len(words & _only_in(language, rather_than)) >= MIN_WORDS and not words & _only_in(rather_than, language)


def mostly_looks_like(lines: Iterable[str], language: str, rather_than: str) -> bool:
    """Return whether nearly all lines with evidence are in the first of two languages."""
    n_language = n_other = 0
    for line in lines:
        n_language += looks_like(line, language, rather_than)
        n_other += looks_like(line, rather_than, language)
    return n_language >= max(MIN_LINES, MIN_SHARE * (n_language + n_other))


@cache
def _only_in(language: str, other: str) -> frozenset[str]:
    """Return the function words of a language that another one does not have; none if that is not known."""
    words, others = function_words(language), function_words(other)
    return words - others if others or _script_of(other) else frozenset()


def _base(code: str) -> str:
    return re.split("[-_]", code.lower())[0]


def _script_of(language: str) -> tuple[str, ...]:
    return _SCRIPTS.get(_base(language), ())


def _is_in_script(text: str, script: tuple[str, ...]) -> bool:
    letters = [character for character in text if character.isalpha()]
    n_inside = sum(unicodedata.name(letter, "").startswith(script) for letter in letters)
    return n_inside >= max(MIN_LETTERS, len(letters) / 2)
