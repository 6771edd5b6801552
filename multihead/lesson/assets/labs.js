// Labs: one idea each, with knobs and numbers computed here. No model is needed.

import { bdi, count, el, film, group, heading, hint, number, para, scrolling, svg, uniforms } from "./dom.js";
import { range, sinusoid, softmaxRows, sumOf } from "./engine.js";
import { bars, curves } from "./figures.js";
import { formula } from "./formula.js";
import { matrix } from "./matrix.js";
import { learningRate } from "./training.js";
import { TREE_LABS } from "./trees.js";
import { laboratory } from "./laboratory.js";

/** Numbers that look random and are the same each time, normally distributed. */
export function gaussians(seed) {
  const uniform = uniforms(seed);
  return () => Math.sqrt(-2 * Math.log(uniform() || 1e-12)) * Math.cos(2 * Math.PI * uniform());
}

const entropy = (weights) => -sumOf(weights, (w) => (w > 0 ? w * Math.log2(w) : 0));

// Why √d_k

export function scalingExperiment(width, pairs = 2000, keys = 16) {
  const next = gaussians(width);
  const vector = () => Float64Array.from({ length: width }, next);
  const dot = (a, b) => sumOf(a, (x, i) => x * b[i]);
  const products = range(pairs).map(() => dot(vector(), vector()));
  const mean = sumOf(products) / pairs;
  const variance = sumOf(products, (x) => (x - mean) ** 2) / pairs;
  const rows = range(Math.floor(pairs / keys)).map((row) => products.slice(row * keys, (row + 1) * keys));
  const measure = (divisor) => {
    const weights = rows.map((row) => [...softmaxRows(Float64Array.from(row, (x) => x / divisor), keys)]);
    const average = (f) => sumOf(weights, f) / weights.length;
    // The slope of the softmax: the sum of w (1 − w), 0 where one weight is 1.
    return { entropy: average(entropy), largest: average((row) => Math.max(...row)), slope: average((row) => sumOf(row, (w) => w * (1 - w))) };
  };
  return { mean, variance, raw: measure(1), scaled: measure(Math.sqrt(width)) };
}

function scaling(view) {
  laboratory(view, "scaling", [{ name: "width", min: 0, max: 9, value: 6, show: (width) => 2 ** width }], ({ width }, text) => {
    const d = 2 ** width;
    const { mean, variance, raw, scaled } = experiment(width);
    const curve = ["variance", "raw", "scaled"];
    const at = (row, column) => (row ? experiment(column)[curve[row]].largest : experiment(column).variance);
    const rows = [raw, scaled];
    return [
      para(text("lab.scaling.found", { d, mean: number(mean), variance: number(variance, 1) })),
      matrix({ rows: [text("lab.scaling.raw"), text("lab.scaling.scaled")], columns: ["entropy", "largest", "slope"].map((name) => text(`lab.scaling.${name}`)), at: (row, column) => rows[row][["entropy", "largest", "slope"][column]], caption: text("lab.scaling.softmax"), kind: "plain", digits: 3 }),
      matrix({ rows: curve.map((name) => text(`lab.scaling.every.${name}`)), columns: range(10).map((power) => String(2 ** power)), at, caption: text("lab.scaling.every"), kind: "plain" }),
      hint(text("lab.scaling.look")),
    ];
  });
}

const done = [];
const experiment = (power) => (done[power] ??= scalingExperiment(2 ** power));

// Positions

function positions(view) {
  const knobs = [{ name: "d", min: 8, max: 128, step: 8, value: 32 }, { name: "pos", min: 0, max: 60, value: 7 }, { name: "k", min: 0, max: 30, value: 5 }, { name: "pair", min: 0, max: 15, value: 2 }, { name: "clip", min: 1, max: 8, value: 3 }];
  laboratory(view, "positions", knobs, ({ d, pos, k, pair, clip }, text) => {
    const i = 2 * Math.min(pair, d / 2 - 1);
    const frequency = 1 / 10000 ** (i / d);
    const angle = k * frequency;
    const encode = (p) => range(d).map((j) => sinusoid(p, j, d));
    const here = encode(pos);
    const product = (p) => sumOf(encode(p), (x, j) => x * here[j]);
    const [s, c] = [here[i], here[i + 1]];
    const turned = [Math.cos(angle) * s + Math.sin(angle) * c, -Math.sin(angle) * s + Math.cos(angle) * c];
    const there = encode(pos + k);
    return [
      formula("positions"),
      matrix({ rows: 40, columns: d, at: (row, column) => sinusoid(row, column, d), caption: text("lab.positions.map"), largest: 1, compact: true }),
      para(text("lab.positions.wave", { i, j: i + 1, length: number((2 * Math.PI) / frequency, 1) })),
      circle(view, [[pos, s, c], [pos + k, there[i], there[i + 1]]]),
      matrix({ rows: ["sin", "cos"], columns: ["sin", "cos"], at: (row, column) => (row === column ? Math.cos(angle) : row ? -Math.sin(angle) : Math.sin(angle)), caption: text("lab.positions.rotation", { k }), largest: 1, digits: 4 }),
      para(text("lab.positions.turned", { from: `(${number(s, 4)}, ${number(c, 4)})`, to: `(${number(turned[0], 4)}, ${number(turned[1], 4)})`, exact: `(${number(there[i], 4)}, ${number(there[i + 1], 4)})` })),
      curves({ title: text("lab.positions.products", { pos }), x: range(61), lines: [{ label: "PE·PE", y: product }], xLabel: text("positions.position") }),
      matrix({ rows: 12, columns: 12, at: (i, j) => Math.max(-clip, Math.min(clip, j - i)), caption: text("lab.positions.relative", { clip, n: 2 * clip + 1 }), largest: 8, digits: 0 }),
      hint(text("lab.positions.shaw")),
    ];
  });
}

/** A pair of dimensions as a point on the circle, at some positions. */
function circle({ text }, points) {
  const title = text("lab.positions.circle");
  const drawn = points.map(([position, s, c], i) => {
    const [x, y] = [100 + 70 * c, 100 - 70 * s];
    return svg("g", { class: i ? "to" : "from" }, svg("path", { class: "line color-0", d: `M100 100 L${x} ${y}` }), svg("circle", { cx: x, cy: y, r: 5 }), svg("text", { x: 100 + 88 * c, y: 104 - 88 * s, "text-anchor": "middle" }, String(position)));
  });
  return el("figure", {}, el("figcaption", { class: "note" }, title), svg("svg", { viewBox: "0 0 200 200", width: 200, height: 200, role: "img", "aria-label": title, class: "curves" }, svg("circle", { cx: 100, cy: 100, r: 70, class: "tick-circle" }), drawn));
}

// Paths: how many layers until one position can know of another

/** Layers that are needed to bring something from position `from` to position `to`, of `n`. */
export function pathLength(kind, from, to, { kernel = 3, reach = 4, n = 32 } = {}) {
  const distance = Math.abs(to - from);
  if (distance === 0) return 0;
  if (kind === "attention") return 1;
  if (kind === "recurrent") return distance;
  if (kind === "restricted") return Math.ceil(distance / reach);
  const half = Math.floor(kernel / 2) || 1;
  if (kind === "convolution") return Math.ceil(distance / half);
  let [layers, seen] = [0, 0];
  for (let dilation = 1; seen < distance && layers < n; dilation *= kernel) {
    seen += half * dilation;
    layers += 1;
  }
  return layers;
}

const KINDS = ["attention", "recurrent", "convolution", "dilated", "restricted"];
const ORDERS = { attention: ["O(n² · d)", "O(1)", "O(1)"], recurrent: ["O(n · d²)", "O(n)", "O(n)"], convolution: ["O(k · n · d²)", "O(1)", "O(n / k)"], dilated: ["O(k · n · d²)", "O(1)", "O(log_k n)"], restricted: ["O(r · n · d)", "O(1)", "O(n / r)"], separable: ["O(k · n · d + n · d²)", "O(1)", "O(n / k)"] };

function paths(view) {
  const knobs = [{ name: "n", min: 4, max: 48, value: 24 }, { name: "from", min: 0, max: 47, value: 1 }, { name: "to", min: 0, max: 47, value: 20 }, { name: "kernel", min: 3, max: 9, step: 2, value: 3 }, { name: "reach", min: 1, max: 16, value: 4 }, { name: "d", min: 8, max: 96, step: 8, value: 64 }];
  laboratory(view, "paths", knobs, ({ n, from, to, kernel, reach, d }, text) => {
    const [a, b] = [Math.min(from, n - 1), Math.min(to, n - 1)];
    const items = KINDS.map((kind) => ({ label: text(`lab.paths.${kind}`), value: pathLength(kind, a, b, { kernel, reach, n }) }));
    const head = ["layer", "complexity", "sequential", "longest"].map((key) => text(`lab.paths.${key}`));
    const rows = Object.keys(ORDERS).map((kind) => el("tr", {}, el("th", { scope: "row" }, text(`lab.paths.${kind}`)), ORDERS[kind].map((order) => el("td", {}, order))));
    return [
      dependencies(view, n, a, b, { kernel, reach }),
      hint(text("lab.paths.state")),
      formula("recurrent"),
      bars({ title: text("lab.paths.steps", { from: a, to: b }), items, format: (x) => number(x, 0) }),
      scrolling(text("lab.paths.layer"), film(head, rows)),
      bars({ title: text("lab.paths.operations", { n, d }), items: KINDS.filter((kind) => kind !== "dilated").map((kind) => ({ label: text(`lab.paths.${kind}`), value: operations(kind, { n, d, kernel, reach }) })), format: count }),
      para(text(n < d ? "lab.paths.cheaper" : "lab.paths.dearer", { n, d })),
      hint(text("lab.paths.note")),
    ];
  });
}

/** Multiplications of a layer, without constants (Table 1). */
const operations = (kind, { n, d, kernel, reach }) => ({ attention: n * n * d, recurrent: n * d * d, convolution: kernel * n * d * d, restricted: Math.min(reach, n) * n * d })[kind];

/** What depends on what on the way from one position to another: the hops of each kind of layer. */
function dependencies({ text }, n, a, b, options) {
  const half = Math.floor(options.kernel / 2) || 1;
  const reach = { attention: () => n, recurrent: () => 1, convolution: () => half, dilated: (hop) => half * options.kernel ** hop, restricted: () => options.reach };
  const [left, height] = [130, 66];
  const x = (i) => left + (i * 450) / Math.max(1, n - 1);
  const lines = Object.entries(reach).map(([kind, most], row) => {
    const y = 50 + row * height;
    const hops = [];
    for (let at = a; at !== b; at = hops.at(-1)[1]) hops.push([at, at + Math.sign(b - at) * Math.min(most(hops.length), Math.abs(b - at))]);
    return svg("g", {},
      svg("text", { x: left - 14, y: y + 4, "text-anchor": "end" }, text(`lab.paths.${kind}`)),
      hops.map(([from, to]) => svg("path", { class: `line color-${row}`, d: `M${x(from)} ${y} Q${(x(from) + x(to)) / 2} ${y - 12 - Math.min(60, Math.abs(x(to) - x(from)))} ${x(to)} ${y}` })),
      range(n).map((i) => svg("circle", { cx: x(i), cy: y, r: i === a || i === b ? 6 : 3, class: i === a || i === b ? "end" : "dot" })),
    );
  });
  return el("figure", { class: "chart" }, el("figcaption", {}, text("lab.paths.picture")), scrolling(text("lab.paths.picture"), svg("svg", { viewBox: `0 0 600 ${lines.length * height + 10}`, role: "img", "aria-label": text("lab.paths.picture"), class: "curves" }, lines)));
}

// Sparse masks

export function sparseMask(kind, n, { window = 2, tokens = 1, blocks = 1 } = {}) {
  const next = gaussians(7);
  const random = range(n).map(() => range(blocks * 2).map(() => Math.floor(Math.abs(next()) * 997) % n));
  const isNear = (i, j) => Math.abs(i - j) <= window;
  const isGlobal = (i, j) => i < tokens || j < tokens;
  const rules = { full: () => true, causal: (i, j) => j <= i, window: isNear, global: isGlobal, random: (i, j) => random[i].includes(j), bigbird: (i, j) => isNear(i, j) || isGlobal(i, j) || random[i].includes(j) };
  return range(n).map((i) => range(n).map((j) => rules[kind](i, j)));
}

function sparse(view) {
  const knobs = [{ name: "kind", options: ["full", "causal", "window", "global", "random", "bigbird", "linformer"], value: "bigbird" }, { name: "n", min: 8, max: 64, value: 24 }, { name: "window", min: 1, max: 10, value: 2 }, { name: "tokens", min: 1, max: 6, value: 2 }, { name: "p", min: 2, max: 32, value: 8 }];
  laboratory(view, "sparse", knobs, ({ kind, n, window, tokens, p }, text) => {
    if (kind === "linformer") {
      const { projection, weights } = linformer(n, Math.min(p, n));
      return [
        matrix({ rows: projection.length, columns: n, at: (i, j) => projection[i][j], caption: text("lab.sparse.projection", { n, p: projection.length }), compact: true }),
        matrix({ rows: n, columns: projection.length, at: (i, j) => weights[i][j], caption: text("lab.sparse.projected", { n, p: projection.length }), kind: "weights", compact: true }),
        hint(text("lab.sparse.random")),
        para(text("lab.sparse.count", { cells: n * Math.min(p, n), all: n * n, share: number((100 * Math.min(p, n)) / n, 0) })),
      ];
    }
    const mask = sparseMask(kind, n, { window, tokens });
    const cells = mask.flat().filter(Boolean).length;
    return [
      matrix({ rows: n, columns: n, at: (i, j) => (mask[i][j] ? 1 : -Infinity), caption: text(`lab.sparse.kind.${kind}`), kind: "weights", compact: true }),
      para(text("lab.sparse.count", { cells, all: n * n, share: number((100 * cells) / (n * n), 0) })),
      hint(text("lab.sparse.legend")),
    ];
  });
}

/** Linformer on random numbers: E mixes the n keys into p, and each query has a weight for each mixture. */
export function linformer(n, p, width = 16) {
  const next = gaussians(3);
  const vectors = (count, size) => range(count).map(() => range(size).map(next));
  const [queries, keys] = [vectors(n, width), vectors(n, width)];
  const projection = vectors(p, n).map((row) => row.map((x) => x / Math.sqrt(n)));
  const mixtures = projection.map((row) => range(width).map((k) => sumOf(row, (x, j) => x * keys[j][k])));
  const scores = (q) => mixtures.map((key) => sumOf(q, (x, k) => x * key[k]) / Math.sqrt(width));
  return { projection, weights: queries.map((q) => [...softmaxRows(Float64Array.from(scores(q)), p)]) };
}

// Alignment functions

export function alignmentScores(width, n, seed = 5) {
  const next = gaussians(seed);
  const vector = () => range(width).map(next);
  const [q, keys] = [vector(), range(n).map(vector)];
  const small = () => vector().map((x) => x / Math.sqrt(width));
  const W = range(width).map(small);
  const [u, wa, wb, location] = [small(), W, range(width).map(small), range(n).map(small)];
  const dot = (a, b) => sumOf(a, (x, i) => x * b[i]);
  const apply = (M, x) => M.map((row) => dot(row, x));
  // Luong's local-p: where to look, from the query alone. ConvS2S: the keys are the encoder's z, the values z + e.
  const center = (n - 1) / (1 + Math.exp(-dot(u, apply(wa, q).map(Math.tanh))));
  const [embeddings, g] = [range(n).map(vector), vector()];
  const asked = apply(wb, q).map((x, i) => x + g[i]);
  const weights = [...softmaxRows(Float64Array.from(keys, (k) => dot(asked, k)), n)];
  const mix = (values) => range(width).map((i) => sumOf(values, (value, j) => weights[j] * value[i]));
  return {
    center,
    conv: { weights, plain: mix(keys), both: mix(keys.map((k, j) => k.map((x, i) => x + embeddings[j][i]))) },
    dot: keys.map((k) => dot(q, k)),
    scaled: keys.map((k) => dot(q, k) / Math.sqrt(width)),
    general: keys.map((k) => dot(q, apply(W, k))),
    additive: keys.map((k) => dot(u, apply(wa, q).map((x, i) => Math.tanh(x + apply(wb, k)[i])))),
    location: location.map((row) => dot(row, q)),
  };
}

/** Luong's local-p: the softmax of the scores inside of the window, times a bell around its center. */
export function localWeights(scores, center, window) {
  const isNear = (i) => Math.abs(i - center) <= window;
  const inside = softmaxRows(Float64Array.from(scores, (s, i) => (isNear(i) ? s : -Infinity)), scores.length);
  return [...inside].map((w, i) => w * Math.exp(-((i - center) ** 2) / (2 * (window / 2) ** 2)));
}

function align(view) {
  laboratory(view, "align", [{ name: "d", min: 2, max: 64, step: 2, value: 16 }, { name: "n", min: 3, max: 12, value: 6 }, { name: "window", min: 1, max: 6, value: 2 }], ({ d, n, window }, text) => {
    const { center, conv, ...scores } = alignmentScores(d, n);
    const names = Object.keys(scores);
    const weights = names.map((name) => [...softmaxRows(Float64Array.from(scores[name]), n)]);
    weights.push(localWeights(scores.general, center, window));
    const [rows, columns] = [[...names, "local"].map((name) => text(`lab.align.${name}`)), range(n).map((i) => text("lab.align.key", { i: i + 1 }))];
    return [
      matrix({ rows: rows.slice(0, -1), columns, at: (row, column) => scores[names[row]][column], caption: text("lab.align.scores") }),
      matrix({ rows, columns, at: (row, column) => weights[row][column], caption: text("lab.align.weights"), kind: "weights" }),
      hint(text("lab.align.center", { center: number(center + 1, 2), window })),
      heading(text("lab.align.convs2s")),
      formula("convs2s"),
      matrix({ rows: [text("lab.align.weights")], columns, at: (_, column) => conv.weights[column], caption: text("lab.align.conv.weights"), kind: "weights" }),
      matrix({ rows: ["Σ a z", "Σ a (z + e)"], columns: d, at: (row, column) => (row ? conv.both : conv.plain)[column], caption: text("lab.align.conv.output"), compact: d > 24 }),
    ];
  });
}

// The learning rate

function schedule(view) {
  laboratory(view, "schedule", [{ name: "d", min: 64, max: 1024, step: 64, value: 512 }, { name: "warmup", min: 500, max: 16000, step: 500, value: 4000 }], ({ d, warmup }, text) => [
    formula("schedule"),
    curves({ title: text("lab.schedule.curve"), x: range(301).map((i) => i * 100), lines: [{ label: text("lab.schedule.own", { d, warmup: count(warmup) }), y: (step) => 1000 * learningRate(Math.max(1, step), d, warmup) }, { label: text("lab.schedule.paper"), y: (step) => 1000 * learningRate(Math.max(1, step), 512, 4000) }], xLabel: text("lab.schedule.step"), yLabel: "× 10⁻³" }),
    para(text("lab.schedule.peak", { rate: number(learningRate(warmup, d, warmup), 6), step: count(warmup) })),
  ]);
}

// Label smoothing

export function smoothed(probability, size, epsilon) {
  const others = (1 - probability) / (size - 1);
  const target = 1 - epsilon + epsilon / size;
  return { target, other: epsilon / size, loss: -(target * Math.log(probability) + (size - 1) * (epsilon / size) * Math.log(others)), plain: -Math.log(probability) };
}

function smoothing(view) {
  laboratory(view, "smoothing", [{ name: "epsilon", min: 0, max: 0.4, step: 0.05, value: 0.1 }, { name: "p", min: 0.05, max: 0.99, step: 0.01, value: 0.9 }, { name: "V", min: 5, max: 50, value: 10 }], ({ epsilon, p, V }, text) => {
    const { target, other, loss, plain } = smoothed(p, V, epsilon);
    const rows = range(99).map((i) => (i + 1) / 100);
    return [
      formula("smoothing"),
      matrix({ rows: [text("lab.smoothing.target"), text("lab.smoothing.prediction")], columns: range(V).map((i) => String(i + 1)), at: (row, column) => (row ? (column ? (1 - p) / (V - 1) : p) : column ? other : target), caption: text("lab.smoothing.both"), kind: "weights", digits: 3 }),
      para(text("lab.smoothing.loss", { loss: number(loss, 4), plain: number(plain, 4) })),
      curves({ title: text("lab.smoothing.curve"), x: rows, lines: [{ label: text("lab.smoothing.smoothed"), y: (x) => smoothed(x, V, epsilon).loss }, { label: text("lab.smoothing.plain"), y: (x) => smoothed(x, V, epsilon).plain }] }),
      hint(text("lab.smoothing.best", { p: number(target, 3) })),
    ];
  });
}

// BLEU by hand

const tokens = (text) => text.trim().split(/\s+/).filter(Boolean);
const nGrams = (words, n) => words.slice(0, Math.max(0, words.length - n + 1)).map((_, i) => words.slice(i, i + n).join(" "));

/** BLEU of one sentence, each part of it; words are separated by spaces. */
export function bleu(candidate, reference) {
  const [c, r] = [tokens(candidate), tokens(reference)];
  const orders = [1, 2, 3, 4].map((n) => {
    const left = new Map();
    for (const gram of nGrams(r, n)) left.set(gram, (left.get(gram) ?? 0) + 1);
    const grams = nGrams(c, n).map((gram) => {
      const isMatch = (left.get(gram) ?? 0) > 0;
      if (isMatch) left.set(gram, left.get(gram) - 1);
      return { gram, isMatch };
    });
    return { n, grams, matches: grams.filter((gram) => gram.isMatch).length, total: grams.length };
  });
  const brevity = c.length >= r.length ? 1 : c.length ? Math.exp(1 - r.length / c.length) : 0;
  const isZero = orders.some(({ matches }) => matches === 0);
  const score = isZero ? 0 : 100 * brevity * Math.exp(sumOf(orders, ({ matches, total }) => Math.log(matches / total) / 4));
  return { orders, brevity, score, lengths: [c.length, r.length] };
}

function bleuLab(view) {
  const knobs = [{ name: "candidate", text: true, value: "meine Schwester hat gestern ein rotes Rad gekauft ." }, { name: "reference", text: true, value: "meine Schwester hat gestern ein rotes Fahrrad gekauft ." }];
  laboratory(view, "bleu", knobs, ({ candidate, reference }, text) => {
    const { orders, brevity, score, lengths } = bleu(candidate, reference);
    return [
      formula("bleu"),
      ...orders.map(({ n, grams, matches, total }) => group(heading(text("lab.bleu.order", { n, matches, total, share: total ? number((100 * matches) / total, 1) : "–" })), para(grams.map(({ gram, isMatch }, i) => [i ? " · " : null, el(isMatch ? "mark" : "span", {}, bdi(gram))])))),
      para(text("lab.bleu.brevity", { candidate: lengths[0], reference: lengths[1], brevity: number(brevity, 4) })),
      el("p", { class: "value", "data-cell": "bleu" }, text("lab.bleu.score", { score: number(score, 2) })),
      hint(text("lab.bleu.note")),
    ];
  });
}

export const LABS = [
  { key: "scaling", render: scaling },
  { key: "positions", render: positions },
  { key: "paths", render: paths },
  { key: "sparse", render: sparse },
  { key: "align", render: align },
  { key: "schedule", render: schedule },
  { key: "smoothing", render: smoothing },
  { key: "bleu", render: bleuLab },
  ...TREE_LABS,
];
