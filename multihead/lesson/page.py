"""The lesson as one HTML file: plain ES modules, texts and data, joined into a page that makes no requests."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

# Modules in the order of their imports. Each becomes a function that returns its exports.
MODULES = (
    *("engine", "tokenizer", "search", "provenance", "dom", "formula", "matrix", "figures", "model", "worker"),
    *(
        "map",
        "attention",
        "input",
        "layers",
        "decoding",
        "beam",
        "heads",
        "whatif",
        "training",
        "stations",
        "toy",
        "laboratory",
        "trees",
        "labs",
        "main",
    ),
)
STYLES = ("lesson.css",)
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+)\.js";\n', re.MULTILINE)
_COMMENT = re.compile(r"^\s*(?://|/?\*).*\n", re.MULTILINE)  # lines that are nothing else
# Literals, which stay as they are; comments, spaces between other tokens, the last comma or semicolon of a block, and
# the parentheses of a single parameter, which a browser does not need; and words that can be written shorter. A regular
# expression has no space after its first slash, a division has one.
_TOKEN = re.compile(
    r"""(?P<literal>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`"""
    r"""|/(?![/* ])(?:[^/\\\n[]|\\.|\[(?:[^\]\\]|\\.)*\])+/)|(?P<comment> *//[^\n]*)|(?P<space>[ \n]+)"""
    r"""|(?P<last>,(?=\s*\n\s*[\])}])|;(?=\s*\}))|(?P<constant>\bconst\b)"""
    r"""|(?<![\w$] )\((?P<parameter>[\w$]+)\)(?= =>)|(?P<truth>\b(?:true|false)\b)"""
)
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_TWO_COLORS = re.compile(r"light-dark\(([^,]+), [^)]+\)")
_EXPORT = re.compile(r"^export (async function\*?|function\*?|class|const|let) ([\w$]+)", re.MULTILINE)


def asset(name: str) -> str:
    """Return the text of a file that the page is made of."""
    return files("multihead.lesson").joinpath("assets", name).read_text(encoding="utf-8")


def join_modules(names: tuple[str, ...]) -> str:
    """Return one script that does what these ES modules do, in the order of their imports."""
    return "\n".join(_as_function(name, asset(f"{name}.js")) for name in names)


def _as_function(name: str, source: str) -> str:
    """Wrap a module: its imports become destructured constants, its exports the object that it returns."""
    source = _COMMENT.sub("", source)
    exports = [found[2] for found in _EXPORT.finditer(source)]
    body = _IMPORT.sub(lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = ${found[2]};\n", source)
    body = squeeze(_EXPORT.sub(r"\1 \2", body))
    return f"const ${name}=(()=>{{\n{body}\nreturn{{{','.join(exports)}}}}})();"


def squeeze(source: str) -> str:
    """Return a script without comments and without spaces that separate neither words, operators nor statements."""

    def shorten(found: re.Match[str]) -> str:
        if found["constant"]:
            return "let"  # the same where nothing assigns to it, and two bytes shorter
        if found["truth"]:
            return "!0" if found["truth"] == "true" else "!1"
        if not found["space"]:
            return found["literal"] or found["parameter"] or ""
        before, after = source[: found.start()][-1:], source[found.end() :][:1]
        is_needed = (_is_word(before) and _is_word(after)) or (before + after) in ("++", "--")
        if "\n" in found["space"] and before not in ";,{([=?:&|>" and after not in "})].?:&|":
            return "\n"
        return " " * is_needed

    return _TOKEN.sub(shorten, source)


def _is_word(character: str) -> bool:
    return character.isalnum() or character in ("_", "$")


def render(blocks: Mapping[str, Any], binary: Mapping[str, bytes]) -> str:
    """Return the page with these JSON blocks and these binary blocks, which are compressed."""
    script, style = _code()
    data = "\n".join(
        [
            *(
                f'<script type="application/json" id="{name}">{inert_json(block)}</script>'
                for name, block in blocks.items()
            ),
            *(
                f'<script type="application/octet-stream" id="{name}">{_packed(raw)}</script>'
                for name, raw in binary.items()
            ),
        ]
    )
    page = asset("lesson.html")
    for mark, text in (
        ("__POLICY__", _policy(script, style)),
        ("__STYLE__", style),
        ("__DATA__", data),
        ("__SCRIPT__", script),
    ):
        page = page.replace(mark, text, 1)
    return page


def content_policy() -> str:
    """Return the content security policy of the page; a server sends it as a header, too."""
    return _policy(*_code())


def _code() -> tuple[str, str]:
    style = "\n".join(asset(name) for name in STYLES)
    return join_modules(MODULES), style + for_older_browsers(style)


def for_older_browsers(style: str) -> str:
    """Return rules that give browsers without `light-dark()`, those from before 2024, the light colors."""
    pairs = (rule for rule in _RULE.findall(style) if "light-dark(" in rule[1])
    rules = [":root { color-scheme: light }"]
    rules += [f"{selector.strip()} {{ {'; '.join(_light(body))} }}" for selector, body in pairs]
    return "@supports not (color: light-dark(#000, #fff)) {\n" + "\n".join(rules) + "\n}\n"


def _light(body: str) -> Iterator[str]:
    """Declarations with two colors, with the light one."""
    for declaration in body.split(";"):
        if "light-dark(" in declaration:
            yield _TWO_COLORS.sub(r"\1", declaration).strip()


def _policy(script: str, style: str) -> str:
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'; worker-src blob:; img-src data: blob:"
    return f"default-src 'none'; {allowed}"


def inert_json(data: Any) -> str:
    """Return JSON in ASCII without `<`, `>` and `&`: no text of a user can end the element that it is in."""
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&":  # inside strings only: JSON itself has none of them
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _packed(raw: bytes) -> str:
    return base64.b64encode(gzip.compress(raw, compresslevel=9, mtime=0)).decode("ascii")


def _hash(text: str) -> str:
    """Return the source expression by which the content security policy allows this inline text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
