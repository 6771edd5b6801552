// Labs on trees (Wang et al., 2019; §6.3) and on chance.

import { el, group, heading, hint, number, para, percent, scrolling, svg, uniforms, withCode } from "./dom.js";
import { range, sumOf } from "./engine.js";
import { laboratory } from "./laboratory.js";
import { matrix } from "./matrix.js";

// A dependency tree: the depth of each word, and how many steps apart two words are

/** `heads` are the numbers of the words' heads, 0 for the root. Returns depths and distances, or null if it is no tree. */
export function measureTree(heads) {
  const n = heads.length;
  const path = (word) => {
    const steps = [word];
    while (steps.length <= n && heads[steps.at(-1)] > 0) steps.push(heads[steps.at(-1)] - 1);
    return steps;
  };
  const isTree = heads.every((head, i) => Number.isInteger(head) && head >= 0 && head <= n && head !== i + 1 && path(i).length <= n);
  if (!isTree || heads.filter((head) => head === 0).length !== 1) return null;
  const paths = range(n).map(path);
  const distance = (a, b) => {
    const meet = paths[a].findIndex((word) => paths[b].includes(word));
    return meet + paths[b].indexOf(paths[a][meet]);
  };
  return { depths: paths.map((steps) => steps.length - 1), distances: range(n).map((a) => range(n).map((b) => distance(a, b))) };
}

function dependency(view) {
  const knobs = [{ name: "words", text: true, value: "A man rides a bike ." }, { name: "heads", text: true, value: "2 3 0 5 3 3" }];
  laboratory(view, "tree", knobs, ({ words: sentence, heads: given }, text) => {
    const words = sentence.trim().split(/\s+/).slice(0, 20);
    const heads = given.trim().split(/\s+/).map(Number);
    const found = heads.length === words.length ? measureTree(heads) : null;
    if (!found) return para(text("lab.tree.none", { words: words.length, heads: heads.length }));
    return [
      arcs(view, words, heads),
      matrix({ rows: [text("lab.tree.depth")], columns: words, at: (_, column) => found.depths[column], caption: text("lab.tree.depths"), kind: "plain", digits: 0 }),
      matrix({ rows: words, columns: words, at: (row, column) => found.distances[row][column], caption: text("lab.tree.distances"), digits: 0 }),
    ];
  });
}

/** The words in a line, with an arc from each head to its word. */
function arcs({ text }, words, heads) {
  const widths = words.map((word) => 10 * word.length + 22);
  const x = widths.map((width, i) => sumOf(widths.slice(0, i)) + width / 2);
  const farthest = Math.max(...heads.map((head, i) => (head ? Math.abs(x[head - 1] - x[i]) : 0)));
  const base = 30 + farthest / 2;
  const lines = heads.map((head, i) => (head ? svg("path", { class: "line color-0", d: `M${x[head - 1]} ${base - 16} Q${(x[head - 1] + x[i]) / 2} ${base - 16 - Math.abs(x[head - 1] - x[i])} ${x[i]} ${base - 16}`, "marker-end": "url(#arc)" }) : null));
  const tip = svg("defs", {}, svg("marker", { id: "arc", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto" }, svg("path", { d: "M0 0 L8 4 L0 8 z", class: "dot" })));
  const width = sumOf(widths);
  return scrolling(text("lab.tree.picture"), svg("svg", { viewBox: `0 0 ${width} ${base + 8}`, width, height: base + 8, role: "img", "aria-label": text("lab.tree.picture"), class: "curves arcs" }, tip, lines, words.map((word, i) => svg("text", { x: x[i], y: base, "text-anchor": "middle" }, word))));
}

// §6.3: a parse as a sequence, and its F1

/** The tree of a bracketing such as "(S (NP the man) (VP eats))": {label, children, from, to}, or null. */
export function parseBrackets(text) {
  const tokens = text.match(/[()]|[^\s()]+/g) ?? [];
  let [at, words] = [0, 0];
  const node = () => {
    if (tokens[at] !== "(") return { label: tokens[at++], children: null, from: words, to: ++words };
    const found = { label: tokens[at + 1], children: [], from: words };
    for (at += 2; at < tokens.length && tokens[at] !== ")"; ) found.children.push(node());
    at += 1;
    return { ...found, to: words };
  };
  if (tokens[0] !== "(" || tokens.filter((token) => token === "(").length !== tokens.filter((token) => token === ")").length) return null;
  const root = node();
  return at === tokens.length ? root : null;
}

const spans = (node) => (node.children ? [`${node.label} ${node.from}–${node.to}`, ...node.children.flatMap(spans)] : []);
const leaves = (node) => (node.children ? node.children.flatMap(leaves) : [node.label]);

/** The sequence that the decoder has to write: brackets with their labels, and a mark for every word. */
const linearized = (node) => (node.children ? [`(${node.label}`, ...node.children.flatMap(linearized), `)${node.label}`] : ["XX"]);

/** Labeled brackets in common, and F1. */
export function bracketScore(gold, found) {
  const left = spans(gold);
  const matches = spans(found).filter((span) => left.includes(span) && left.splice(left.indexOf(span), 1)).length;
  const [precision, recall] = [matches / spans(found).length, matches / spans(gold).length];
  return { matches, precision, recall, f1: matches ? (2 * precision * recall) / (precision + recall) : 0 };
}

function parsing(view) {
  const knobs = [{ name: "gold", text: true, value: "(S (NP the man) (VP eats (NP (NP a fish) (PP with (NP bones)))))" }, { name: "found", text: true, value: "(S (NP the man) (VP eats (NP a fish) (PP with (NP bones))))" }];
  laboratory(view, "parsing", knobs, ({ gold: given, found: other }, text) => {
    const [gold, found] = [parseBrackets(given), parseBrackets(other)];
    if (!gold || !found || leaves(gold).join(" ") !== leaves(found).join(" ")) return para(text("lab.parsing.none"));
    const { matches, precision, recall, f1 } = bracketScore(gold, found);
    const list = (tree) => el("ul", { class: "key" }, spans(tree).map((span) => el("li", {}, span)));
    return [
      para(text("lab.parsing.input"), " ", leaves(gold).map((word) => [el("span", { class: "piece" }, word), " "])),
      para(text("lab.parsing.target"), " ", linearized(gold).map((token) => [el("span", { class: "piece" }, token), " "])),
      el("div", { class: "pair" }, [["gold", gold], ["found", found]].map(([name, tree]) => group(heading(text(`lab.parsing.${name}`)), bracketTree(tree), list(tree)))),
      el("p", { class: "value", "data-cell": "f1" }, text("lab.parsing.f1", { matches, precision: number(precision, 3), recall: number(recall, 3), f1: number(100 * f1, 1) })),
    ];
  });
}

/** The tree as nested boxes. */
const bracketTree = (node) => (node.children ? el("span", { class: "bracket" }, el("b", {}, node.label), " ", node.children.map(bracketTree)) : el("span", { class: "piece" }, node.label));

// Chance: how far two systems of the same quality differ on a test set

/** Differences of the means of two systems on `n` sentences, for 400 resampled test sets; `edge` is the true difference. */
export function resample(n, edge, seed = 1) {
  const next = uniforms(seed);
  const wins = () => sumOf(range(n), () => (next() < 0.5 + edge / 200 ? 1 : -1));
  return range(400).map(() => (100 * wins()) / n);
}

function chance(view) {
  const knobs = [{ name: "n", min: 50, max: 3000, step: 50, value: 500 }, { name: "edge", min: 0, max: 20, value: 4 }, { name: "seed", min: 1, max: 20, value: 1 }];
  laboratory(view, "chance", knobs, ({ n, edge, seed }, text) => {
    const found = resample(n, edge, seed).sort((a, b) => a - b);
    const share = found.filter((x) => x > 0).length / found.length;
    const [low, high] = [found[Math.floor(0.025 * found.length)], found[Math.ceil(0.975 * found.length) - 1]];
    const counts = range(21).map((i) => found.filter((x) => Math.round((x + 20) / 2) === i).length);
    return [
      matrix({ rows: [text("lab.chance.sets")], columns: range(21).map((i) => number(2 * i - 20, 0)), at: (_, column) => counts[column], caption: text("lab.chance.histogram"), digits: 0 }),
      para(text("lab.chance.found", { low: number(low, 1), high: number(high, 1), share: percent(share) })),
      hint(withCode(text("lab.chance.note"))),
    ];
  });
}

export const TREE_LABS = [
  { key: "chance", render: chance },
  { key: "tree", render: dependency },
  { key: "parsing", render: parsing },
];
