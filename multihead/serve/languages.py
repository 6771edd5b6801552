"""Languages by code and name, and which one a text is in, without asking another machine."""

from dataclasses import dataclass
from typing import Any

# Of the languages that people train models for; another one is called by its code.
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

READ_CHARACTERS = 1000  # of a text, which is plenty to tell its language


def name_of(code: str) -> str:
    return _NAMES.get(code, code)


@dataclass(frozen=True, slots=True)
class Detection:
    """A language and how sure it is, from 0 to 100."""

    language: str
    confidence: float


class Detector:
    """Tells languages apart by their letters; those that nobody serves are left out of the choice."""

    def __init__(self, codes: list[str]) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = set(self._identifier.labels)
        self._only = codes[0]
        self._codes = [code for code in codes if code in known]
        if len(self._codes) > 1:
            self._identifier.set_languages(self._codes)

    def rank(self, text: str) -> list[Detection]:
        """Languages that the text may be in, the likeliest first; where nothing can be told there is one, with 0."""
        if not any(character.isalpha() for character in text):
            return [Detection(self._only, 0.0)]
        if len(self._codes) < 2:
            return [Detection((self._codes or [self._only])[0], 100.0)]
        ranked = self._identifier.rank(text[:READ_CHARACTERS])
        return [Detection(code, round(100 * share, 1)) for code, share in ranked]
