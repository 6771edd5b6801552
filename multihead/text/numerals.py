"""Numbers in a text: their digits, and whether one is spelled out."""

import re
from dataclasses import dataclass
from functools import cache
from unicodedata import decimal

_NUMBER = re.compile(r"(?<![\d:])\d+(?:[.,'\u2019]\d+|[ \u00a0\u202f]\d{3}(?!\d))*(?!\d*:)")


def numbers(text: str) -> set[str]:
    """Return the digits of each number with at least two, in any script: 10,000 and 10.000 are the same number.

    Single digits are often spelled out, and times of day are often written differently, so both are left out.
    """
    found = ("".join(str(decimal(sign)) for sign in number if sign.isdecimal()) for number in _NUMBER.findall(text))
    return {digits for digits in found if len(digits) > 1}


def is_spelled_out(digits: str, text: str, language: str) -> bool:
    """Return whether a text contains a number in words.

    Known are the numbers up to 100 and round hundreds and thousands, in the languages of the table below.
    """
    pattern = _in_words(int(digits), re.split("[-_]", language.lower())[0]) if len(digits) <= 6 else None
    return pattern is not None and pattern.search(text.lower()) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Language:
    """Words of a language as regular expressions, which match all their forms."""

    units: str  # 1 to 9
    teens: str  # 10 to 19
    tens: str  # 20 to 90
    hundred: str
    thousand: str
    tens_and_unit: str = "{tens}[ -]?{unit}"


_LANGUAGES = {
    "de": _Language(
        units="eine?n? zw(?:ei|o) drei vier fünf sechs sieben acht neun",
        teens="zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn",
        tens="zwanzig drei(?:ß|ss)ig vierzig fünfzig sechzig siebzig achtzig neunzig",
        hundred="hundert",
        thousand="tausend",
        tens_and_unit="{unit}und{tens}",
    ),
    "en": _Language(
        units="(?:one|a) two three four five six seven eight nine",
        teens="ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen",
        tens="twent(?:y|ies) thirt(?:y|ies) fort(?:y|ies) fift(?:y|ies) sixt(?:y|ies) sevent(?:y|ies) "
        "eight(?:y|ies) ninet(?:y|ies)",
        hundred="hundred",
        thousand="thousand",
    ),
    "es": _Language(
        units="un[oa]? dos tres cuatro cinco seis siete ocho nueve",
        teens="diez once doce trece catorce quince diecis[eé]is diecisiete dieciocho diecinueve",
        tens="veint[ei] treinta cuarenta cincuenta sesenta setenta ochenta noventa",
        hundred="(?:cien|cient[oa]s?)",
        thousand="mil",
        tens_and_unit="{tens}(?: y )?{unit}",
    ),
    "fr": _Language(
        units="une? deux trois quatre cinq six sept huit neuf",
        teens="dix onze douze treize quatorze quinze seize dix-sept dix-huit dix-neuf",
        tens="vingt trente quarante cinquante soixante soixante-dix quatre-vingts? quatre-vingt-dix",
        hundred="cents?",
        thousand="mille",
        tens_and_unit="{tens}(?:-| et |-et-){unit}",
    ),
    "it": _Language(
        units="un[oa]? due tr[eé] quattro cinque sei sette otto nove",
        teens="dieci undici dodici tredici quattordici quindici sedici diciassette diciotto diciannove",
        tens="venti? trenta? quaranta? cinquanta? sessanta? settanta? ottanta? novanta?",
        hundred="cento",
        thousand="mil(?:le|a)",
    ),
    "nl": _Language(
        units="e[eé]n twee drie vier vijf zes zeven acht negen",
        teens="tien elf twaalf dertien veertien vijftien zestien zeventien achttien negentien",
        tens="twintig dertig veertig vijftig zestig zeventig tachtig negentig",
        hundred="honderd",
        thousand="duizend",
        tens_and_unit="{unit}(?:en|ën){tens}",
    ),
}


@cache
def _in_words(number: int, language: str) -> re.Pattern[str] | None:
    """Return what matches a number in words, or None if that is not known."""
    words = _LANGUAGES.get(language)
    pattern = _pattern(number, words) if words else None
    larger = rf"[\w-]| (?:{words.hundred}|{words.thousand})\b" if words else ""  # what makes it part of another number
    return re.compile(rf"\b{pattern}(?!{larger})") if pattern else None


def _pattern(number: int, words: _Language) -> str | None:
    teens, tens, units = words.teens.split(), words.tens.split(), words.units.split()
    if number < 10:
        return units[number - 1] if number else None
    if number < 20:
        return teens[number - 10]
    if number < 100:
        first, rest = tens[number // 10 - 2], number % 10
        return words.tens_and_unit.format(tens=first, unit=units[rest - 1]) if rest else first
    for size, word in ((1000, words.thousand), (100, words.hundred)):
        if number % size == 0 and number // size < 1000:
            times = _pattern(number // size, words)
            several = f"{times}[ -]?{word}" if times else None
            return f"(?:{several}|{word})" if number == size else several
    return None
