// Text to ids and back: byte-level BPE as in tokenizer.json. Text is cut into words, each with the space before it, and
// the bytes of every word are merged in the order in which the merges were learned.

export const PAD = 0;
export const UNKNOWN = 1;
export const START = 2;
export const END = 3;
export const N_SPECIAL = 4;

/** How a byte-level vocabulary writes each byte: as itself where that is printable, and from U+0100 on otherwise. */
const CHARACTERS = (() => {
  const isPrintable = (byte) => (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
  let others = 0;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : 256 + others++));
})();
const BYTES = new Map(CHARACTERS.map((character, byte) => [character, byte]));

export class Tokenizer {
  /** `pieces` in the order of their ids, `merges` as pairs in the order of their ranks, `words` the regex of words. */
  constructor({ pieces, merges, words, unicode = "nfc" }) {
    this.pieces = pieces;
    this.ids = new Map(pieces.map((piece, id) => [piece, id]));
    this.ranks = new Map(merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
    this.words = new RegExp(withUnicodeSpace(words), "gu");
    this.unicode = unicode;
  }

  /** The words of a text, as strings that begin with their space. */
  split(text) {
    if (text === "") return [];
    const normal = this.unicode === "nfc" ? text.normalize("NFC") : text;
    return [...(" " + normal).matchAll(this.words)].map(([word]) => word);
  }

  encode(text) {
    return this.split(text).flatMap((word) => this.merge(word).at(-1).map((piece) => this.ids.get(piece)));
  }

  /** The stages of a word from single bytes to pieces, one merge each. */
  merge(word) {
    let pieces = [...new TextEncoder().encode(word)].map((byte) => CHARACTERS[byte]);
    const stages = [pieces];
    for (;;) {
      let best = Infinity;
      let at = -1;
      for (let i = 0; i + 1 < pieces.length; i++) {
        const rank = this.ranks.get(`${pieces[i]} ${pieces[i + 1]}`);
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) return stages;
      pieces = [...pieces.slice(0, at), pieces[at] + pieces[at + 1], ...pieces.slice(at + 2)];
      stages.push(pieces);
    }
  }

  decode(ids) {
    const characters = ids.filter((id) => id >= N_SPECIAL).map((id) => this.pieces[id]).join("");
    const bytes = Uint8Array.from(characters, (character) => BYTES.get(character));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes).replace(/^ /, "");
  }

  /** A piece as people read it: a space where a word begins, and the numbers of bytes that are no whole character. */
  readable(id) {
    if (id < N_SPECIAL) return this.pieces[id];
    const bytes = Uint8Array.from(this.pieces[id], (character) => BYTES.get(character));
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      return [...bytes].map((byte) => (byte < 128 ? String.fromCharCode(byte) : `‹${hex(byte)}›`)).join("");
    }
  }
}

/** White space as Python's library knows it: JavaScript's also has U+FEFF, and lacks U+0085. */
const SPACE = "\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

function withUnicodeSpace(pattern) {
  let isInClass = false;
  return pattern.replace(/\\.|[[\]]/gs, (part) => {
    if (part === "[" || part === "]") isInClass = part === "[";
    if (part === "\\s") return isInClass ? SPACE : `[${SPACE}]`;
    if (part === "\\S") return `[^${SPACE}]`;
    return part;
  });
}

const hex = (byte) => byte.toString(16).toUpperCase().padStart(2, "0");
