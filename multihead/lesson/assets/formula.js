// The paper's formulas in MathML. Symbols that are matrices carry a class, so that they have the color of their picture.

import { el, mathml } from "./dom.js";

const mi = (text, className = null) => mathml("mi", { class: className }, text);
const mo = (text) => mathml("mo", {}, text);
const mn = (text) => mathml("mn", {}, String(text));
const row = (...children) => mathml("mrow", {}, ...children);
const sub = (base, index) => mathml("msub", {}, base, index);
const sup = (base, exponent) => mathml("msup", {}, base, exponent);
const subsup = (base, index, exponent) => mathml("msubsup", {}, base, index, exponent);
const frac = (over, under) => mathml("mfrac", {}, over, under);
const root = (inner) => mathml("msqrt", {}, inner);
const name = (text) => mathml("mi", { mathvariant: "normal" }, text);
const paren = (...children) => row(mo("("), ...children, mo(")"));

const Q = () => mi("Q", "q");
const K = () => mi("K", "k");
const V = () => mi("V", "v");
const X = () => mi("X", "x");
const rootOf = (letter, index) => root(sub(mi(letter), mi(index)));
const transposed = (matrix) => sup(matrix, mi("T"));
const projection = (letter) => subsup(mi("W"), mi("i"), mi(letter));
const hyper = (letter, index) => sub(mi(letter), name(index));

const LINES = {
  sequence: () => [row(mi("P"), paren(mi("y"), mo("|"), mi("x")), mo("="), mathml("munder", {}, mo("∏"), mi("t")), mi("P"), paren(sub(mi("y"), mi("t")), mo("|"), mi("x"), mo(","), sub(mi("y"), row(mo("<"), mi("t")))))],
  embedding: () => [row(X(), mo("="), mi("E"), mo("["), name("ids"), mo("]"), mo("·"), rootOf("d", "model"))],
  positions: () => [
    row(sub(name("PE"), row(mi("pos"), mo(","), mn(2), mi("i"))), mo("="), name("sin"), paren(frac(mi("pos"), sup(mn("10000"), row(mn(2), mi("i"), mo("/"), hyper("d", "model")))))),
    row(sub(name("PE"), row(mi("pos"), mo(","), mn(2), mi("i"), mo("+"), mn(1))), mo("="), name("cos"), paren(frac(mi("pos"), sup(mn("10000"), row(mn(2), mi("i"), mo("/"), hyper("d", "model")))))),
  ],
  projections: () => [row(Q(), mo("="), X(), projection("Q"), mo(","), K(), mo("="), X(), projection("K"), mo(","), V(), mo("="), X(), projection("V"))],
  crossProjections: () => [row(Q(), mo("="), X(), projection("Q"), mo(","), K(), mo("="), mi("M"), projection("K"), mo(","), V(), mo("="), mi("M"), projection("V"))],
  products: () => [row(Q(), transposed(K()))],
  scores: () => [row(mi("S", "s"), mo("="), frac(row(Q(), transposed(K())), rootOf("d", "k")))],
  mask: () => [row(sub(mi("S", "s"), row(mi("i"), mi("j"))), mo("←"), mo("−"), mn("∞"), mathml("mtext", {}, "\u00a0if\u00a0"), mi("j"), mo(">"), mi("i"))],
  softmax: () => [row(sub(mi("A", "a"), row(mi("i"), mi("j"))), mo("="), frac(sup(mi("e"), sub(mi("S", "s"), row(mi("i"), mi("j")))), row(mathml("munder", {}, mo("∑"), mi("n")), sup(mi("e"), sub(mi("S", "s"), row(mi("i"), mi("n")))))))],
  attention: () => [row(name("Attention"), paren(Q(), mo(","), K(), mo(","), V()), mo("="), name("softmax"), paren(frac(row(Q(), transposed(K())), rootOf("d", "k"))), V())],
  multiHead: () => [
    row(name("MultiHead"), paren(Q(), mo(","), K(), mo(","), V()), mo("=")),
    row(name("Concat"), paren(sub(name("head"), mn(1)), mo(","), mo("…"), mo(","), sub(name("head"), mi("h"))), sup(mi("W"), mi("O"))),
    row(sub(name("head"), mi("i")), mo("="), name("Attention"), paren(Q(), projection("Q"), mo(","), K(), projection("K"), mo(","), V(), projection("V"))),
  ],
  residualPost: () => [row(name("LayerNorm"), paren(mi("x"), mo("+"), name("Sublayer"), paren(mi("x"))))],
  residualPre: () => [row(mi("x"), mo("+"), name("Sublayer"), paren(name("LayerNorm"), paren(mi("x"))))],
  layerNorm: () => [row(mi("y"), mo("="), frac(row(mi("x"), mo("−"), mi("μ")), mi("σ")), mo("·"), mi("g"), mo("+"), mi("b"))],
  recurrent: () => [row(sub(mi("h"), mi("t")), mo("="), mi("f"), paren(sub(mi("h"), row(mi("t"), mo("−"), mn(1))), mo(","), sub(mi("x"), mi("t"))))],
  feedForward: () => [row(name("FFN"), paren(mi("x")), mo("="), name("max"), paren(mn(0), mo(","), mi("x"), sub(mi("W"), mn(1)), mo("+"), sub(mi("b"), mn(1))), sub(mi("W"), mn(2)), mo("+"), sub(mi("b"), mn(2)))],
  logits: () => [row(name("logits"), mo("="), mi("h"), transposed(mi("E"))), row(mi("P"), mo("="), name("softmax"), paren(name("logits")))],
  beam: () => [row(name("score"), mo("="), frac(row(name("log"), mi("P"), paren(mi("y"), mo("|"), mi("x"))), sup(paren(frac(row(mn(5), mo("+"), mo("|"), mi("y"), mo("|")), mn(6))), mi("α"))))],
  schedule: () => [row(name("lrate"), mo("="), sup(hyper("d", "model"), row(mo("−"), mn("0.5"))), mo("·"), name("min"), paren(sup(name("step"), row(mo("−"), mn("0.5"))), mo(","), name("step"), mo("·"), sup(name("warmup"), row(mo("−"), mn("1.5")))))],
  smoothing: () => [row(mi("q"), mo("="), paren(mn(1), mo("−"), mi("ε")), name("onehot"), mo("+"), frac(mi("ε"), mi("V")))],
  bleu: () => [row(name("BLEU"), mo("="), name("BP"), mo("·"), name("exp"), paren(frac(mn(1), mn(4)), mathml("munderover", {}, mo("∑"), row(mi("n"), mo("="), mn(1)), mn(4)), name("log"), sub(mi("p"), mi("n"))))],
};

/** The formula of this name. */
export function formula(key) {
  const lines = LINES[key]();
  return el("div", { class: "formula" }, lines.map((line) => mathml("math", { display: "block" }, line)));
}
