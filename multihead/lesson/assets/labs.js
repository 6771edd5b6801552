// Labs: one idea each, with knobs and numbers computed here. No model is needed.

import { append, el, number, replace, svg } from "./dom.js";
import { sinusoid, softmaxRows } from "./engine.js";
import { bars, curves } from "./figures.js";
import { formula } from "./formula.js";
import { matrix } from "./matrix.js";

/** Knobs and a result that is drawn again when one of them moves; values are kept while the page is open. */
const kept = new Map();

function laboratory(view, key, knobs, draw) {
  const values = kept.get(key) ?? Object.fromEntries(knobs.map(({ name, value }) => [name, value]));
  kept.set(key, values);
  const result = el("div", { class: "lab" });
  const redraw = () => replace(result, ...[draw(values, redraw)].flat());
  const controls = knobs.map(({ name, min, max, step = 1, options, text: isText }) => {
    const id = `${key}-${name}`;
    const label = view.text(`lab.${key}.${name}`);
    if (options) {
      const select = el("select", { id }, options.map((option) => el("option", { value: option, selected: option === values[name] }, view.text(`lab.${key}.${name}.${option}`))));
      select.addEventListener("change", () => ((values[name] = select.value), redraw()));
      return el("label", { for: id }, label, " ", select);
    }
    if (isText) {
      const input = el("input", { id, type: "text", value: values[name], maxlength: "200" });
      input.addEventListener("change", () => ((values[name] = input.value), redraw()));
      return el("label", { for: id, class: "wide-label" }, label, " ", input);
    }
    const output = el("output", { for: id }, String(values[name]));
    const input = el("input", { id, type: "range", min, max, step, value: values[name] });
    input.addEventListener("input", () => {
      values[name] = Number(input.value);
      output.textContent = String(values[name]);
      redraw();
    });
    return el("label", { for: id }, label, " ", input, " ", output);
  });
  append(view.root, el("p", {}, view.text(`lab.${key}.text`)), el("div", { class: "knobs" }, controls), result);
  redraw();
}

/** Numbers that look random and are the same each time (mulberry32), normally distributed. */
export function gaussians(seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return () => Math.sqrt(-2 * Math.log(uniform() || 1e-12)) * Math.cos(2 * Math.PI * uniform());
}

const entropy = (weights) => -weights.reduce((sum, w) => sum + (w > 0 ? w * Math.log2(w) : 0), 0);

// Why √d_k

export function scalingExperiment(width, pairs = 2000, keys = 16) {
  const next = gaussians(width);
  const vector = () => Float64Array.from({ length: width }, next);
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const products = Array.from({ length: pairs }, () => dot(vector(), vector()));
  const mean = products.reduce((sum, x) => sum + x, 0) / pairs;
  const variance = products.reduce((sum, x) => sum + (x - mean) ** 2, 0) / pairs;
  const rows = Array.from({ length: pairs / keys }, (_, row) => products.slice(row * keys, (row + 1) * keys));
  const measure = (divisor) => {
    const weights = rows.map((row) => [...softmaxRows(Float64Array.from(row, (x) => x / divisor), keys)]);
    const average = (f) => weights.reduce((sum, row) => sum + f(row), 0) / weights.length;
    // The slope of the softmax: the sum of w (1 − w), 0 where one weight is 1.
    return { entropy: average(entropy), largest: average((row) => Math.max(...row)), slope: average((row) => row.reduce((sum, w) => sum + w * (1 - w), 0)) };
  };
  return { mean, variance, raw: measure(1), scaled: measure(Math.sqrt(width)) };
}

function scaling(view) {
  laboratory(view, "scaling", [{ name: "width", min: 0, max: 9, value: 6 }], ({ width }) => {
    const d = 2 ** width;
    const { mean, variance, raw, scaled } = scalingExperiment(d);
    const rows = [raw, scaled];
    return [
      el("p", {}, view.text("lab.scaling.found", { d, mean: number(mean), variance: number(variance, 1) })),
      matrix({ rows: [view.text("lab.scaling.raw"), view.text("lab.scaling.scaled")], columns: ["entropy", "largest", "slope"].map((name) => view.text(`lab.scaling.${name}`)), at: (row, column) => rows[row][["entropy", "largest", "slope"][column]], caption: view.text("lab.scaling.softmax"), kind: "plain", digits: 3 }),
    ];
  });
}

// Positions

function positions(view) {
  const knobs = [{ name: "d", min: 8, max: 128, step: 8, value: 32 }, { name: "pos", min: 0, max: 60, value: 7 }, { name: "k", min: 0, max: 30, value: 5 }, { name: "pair", min: 0, max: 15, value: 2 }];
  laboratory(view, "positions", knobs, ({ d, pos, k, pair }) => {
    const i = 2 * Math.min(pair, d / 2 - 1);
    const frequency = 1 / 10000 ** (i / d);
    const angle = k * frequency;
    const encode = (p) => Array.from({ length: d }, (_, j) => sinusoid(p, j, d));
    const here = encode(pos);
    const product = (p) => encode(p).reduce((sum, x, j) => sum + x * here[j], 0);
    const [s, c] = [here[i], here[i + 1]];
    const turned = [Math.cos(angle) * s + Math.sin(angle) * c, -Math.sin(angle) * s + Math.cos(angle) * c];
    const there = encode(pos + k);
    return [
      formula("positions"),
      matrix({ rows: [...Array(40).keys()].map(String), columns: [...Array(d).keys()].map(String), at: (row, column) => sinusoid(row, column, d), caption: view.text("lab.positions.map"), largest: 1, compact: true }),
      el("p", {}, view.text("lab.positions.wave", { i, j: i + 1, length: number((2 * Math.PI) / frequency, 1) })),
      circle(view, s, c, there[i], there[i + 1]),
      matrix({ rows: ["sin", "cos"], columns: ["sin", "cos"], at: (row, column) => (row === column ? Math.cos(angle) : row ? -Math.sin(angle) : Math.sin(angle)), caption: view.text("lab.positions.rotation", { k }), largest: 1, digits: 4 }),
      el("p", {}, view.text("lab.positions.turned", { from: `(${number(s, 4)}, ${number(c, 4)})`, to: `(${number(turned[0], 4)}, ${number(turned[1], 4)})`, exact: `(${number(there[i], 4)}, ${number(there[i + 1], 4)})` })),
      curves({ title: view.text("lab.positions.products", { pos }), x: [...Array(61).keys()], lines: [{ label: "PE·PE", y: product }], xLabel: view.text("positions.position") }),
    ];
  });
}

function circle({ text }, s1, c1, s2, c2) {
  const point = (s, c, name) => svg("g", { class: name }, svg("path", { class: "line color-0", d: `M90 90 L${90 + 70 * c} ${90 - 70 * s}` }), svg("circle", { cx: 90 + 70 * c, cy: 90 - 70 * s, r: 5 }));
  return svg("svg", { viewBox: "0 0 180 180", width: 180, height: 180, role: "img", "aria-label": text("lab.positions.circle"), class: "curves" }, svg("circle", { cx: 90, cy: 90, r: 70, class: "tick-circle" }), point(s1, c1, "from"), point(s2, c2, "to"));
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
const ORDERS = { attention: ["O(n² · d)", "O(1)", "O(1)"], recurrent: ["O(n · d²)", "O(n)", "O(n)"], convolution: ["O(k · n · d²)", "O(1)", "O(n / k)"], dilated: ["O(k · n · d²)", "O(1)", "O(log_k n)"], restricted: ["O(r · n · d)", "O(1)", "O(n / r)"] };

function paths(view) {
  const knobs = [{ name: "n", min: 4, max: 48, value: 24 }, { name: "from", min: 0, max: 47, value: 1 }, { name: "to", min: 0, max: 47, value: 20 }, { name: "kernel", min: 3, max: 9, step: 2, value: 3 }, { name: "reach", min: 1, max: 16, value: 4 }];
  laboratory(view, "paths", knobs, ({ n, from, to, kernel, reach }) => {
    const [a, b] = [Math.min(from, n - 1), Math.min(to, n - 1)];
    const items = KINDS.map((kind) => ({ label: view.text(`lab.paths.${kind}`), value: pathLength(kind, a, b, { kernel, reach, n }) }));
    const head = ["lab.paths.layer", "lab.paths.complexity", "lab.paths.sequential", "lab.paths.longest"].map((key) => el("th", { scope: "col" }, view.text(key)));
    const rows = KINDS.map((kind) => el("tr", {}, el("th", { scope: "row" }, view.text(`lab.paths.${kind}`)), ORDERS[kind].map((order) => el("td", {}, order))));
    return [
      formula("recurrent"),
      line(view, n, a, b, { kernel, reach }),
      bars({ title: view.text("lab.paths.steps", { from: a, to: b }), items, format: (x) => number(x, 0) }),
      el("div", { class: "scroll" }, el("table", { class: "film" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))),
      el("p", { class: "note" }, view.text("lab.paths.note")),
    ];
  });
}

/** The hops of a convolution and of attention between two positions. */
function line({ text }, n, a, b, { kernel }) {
  const x = (i) => 14 + (i * 560) / Math.max(1, n - 1);
  const half = Math.floor(kernel / 2) || 1;
  const hops = [];
  for (let at = a; at !== b; ) {
    const next = at + Math.sign(b - at) * Math.min(half, Math.abs(b - at));
    hops.push([at, next]);
    at = next;
  }
  const arc = ([from, to], y, name) => svg("path", { class: `line ${name}`, d: `M${x(from)} 70 Q${(x(from) + x(to)) / 2} ${y} ${x(to)} 70` });
  return svg("svg", { viewBox: "0 0 590 130", role: "img", "aria-label": text("lab.paths.picture"), class: "curves" },
    a === b ? [] : arc([a, b], -10, "color-0"), hops.map((hop) => arc(hop, 120, "color-1")),
    [...Array(n).keys()].map((i) => svg("circle", { cx: x(i), cy: 70, r: i === a || i === b ? 6 : 3, class: i === a || i === b ? "end" : "dot" })));
}

// Sparse masks

export function sparseMask(kind, n, { window = 2, tokens = 1, blocks = 1 } = {}) {
  const next = gaussians(7);
  const random = Array.from({ length: n }, () => Array.from({ length: blocks * 2 }, () => Math.floor(Math.abs(next()) * 997) % n));
  const isNear = (i, j) => Math.abs(i - j) <= window;
  const isGlobal = (i, j) => i < tokens || j < tokens;
  const rules = { full: () => true, causal: (i, j) => j <= i, window: isNear, global: isGlobal, random: (i, j) => random[i].includes(j), bigbird: (i, j) => isNear(i, j) || isGlobal(i, j) || random[i].includes(j) };
  return Array.from({ length: n }, (_, i) => Array.from({ length: n }, (__, j) => rules[kind](i, j)));
}

function sparse(view) {
  const knobs = [{ name: "kind", options: ["full", "causal", "window", "global", "random", "bigbird", "linformer"], value: "bigbird" }, { name: "n", min: 8, max: 64, value: 24 }, { name: "window", min: 1, max: 10, value: 2 }, { name: "tokens", min: 1, max: 6, value: 2 }, { name: "p", min: 2, max: 32, value: 8 }];
  laboratory(view, "sparse", knobs, ({ kind, n, window, tokens, p }) => {
    if (kind === "linformer") {
      return [
        matrix({ rows: [...Array(n).keys()].map(String), columns: [...Array(Math.min(p, n)).keys()].map(String), at: () => 1, caption: view.text("lab.sparse.projected", { n, p }), kind: "weights", compact: true }),
        el("p", {}, view.text("lab.sparse.count", { cells: n * Math.min(p, n), all: n * n, share: number((100 * Math.min(p, n)) / n, 0) })),
      ];
    }
    const mask = sparseMask(kind, n, { window, tokens });
    const cells = mask.flat().filter(Boolean).length;
    return [
      matrix({ rows: [...Array(n).keys()].map(String), columns: [...Array(n).keys()].map(String), at: (i, j) => (mask[i][j] ? 1 : -Infinity), caption: view.text(`lab.sparse.kind.${kind}`), kind: "weights", compact: true }),
      el("p", {}, view.text("lab.sparse.count", { cells, all: n * n, share: number((100 * cells) / (n * n), 0) })),
    ];
  });
}

// Alignment functions

export function alignmentScores(width, n, seed = 5) {
  const next = gaussians(seed);
  const vector = () => Array.from({ length: width }, next);
  const [q, keys] = [vector(), Array.from({ length: n }, vector)];
  const W = Array.from({ length: width }, () => vector().map((x) => x / Math.sqrt(width)));
  const [u, wa, wb, location] = [vector().map((x) => x / Math.sqrt(width)), W, Array.from({ length: width }, () => vector().map((x) => x / Math.sqrt(width))), Array.from({ length: n }, () => vector().map((x) => x / Math.sqrt(width)))];
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const apply = (M, x) => M.map((row) => dot(row, x));
  return {
    dot: keys.map((k) => dot(q, k)),
    scaled: keys.map((k) => dot(q, k) / Math.sqrt(width)),
    general: keys.map((k) => dot(q, apply(W, k))),
    additive: keys.map((k) => dot(u, apply(wa, q).map((x, i) => Math.tanh(x + apply(wb, k)[i])))),
    location: location.map((row) => dot(row, q)),
  };
}

function align(view) {
  laboratory(view, "align", [{ name: "d", min: 2, max: 64, step: 2, value: 16 }, { name: "n", min: 3, max: 12, value: 6 }], ({ d, n }) => {
    const scores = alignmentScores(d, n);
    const names = Object.keys(scores);
    const weights = names.map((name) => [...softmaxRows(Float64Array.from(scores[name]), n)]);
    const [rows, columns] = [names.map((name) => view.text(`lab.align.${name}`)), [...Array(n).keys()].map((i) => view.text("lab.align.key", { i: i + 1 }))];
    return [
      matrix({ rows, columns, at: (row, column) => scores[names[row]][column], caption: view.text("lab.align.scores") }),
      matrix({ rows, columns, at: (row, column) => weights[row][column], caption: view.text("lab.align.weights"), kind: "weights" }),
    ];
  });
}

// The learning rate

export const learningRate = (step, dModel, warmup) => dModel ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);

function schedule(view) {
  laboratory(view, "schedule", [{ name: "d", min: 64, max: 1024, step: 64, value: 512 }, { name: "warmup", min: 500, max: 16000, step: 500, value: 4000 }], ({ d, warmup }) => [
    formula("schedule"),
    curves({ title: view.text("lab.schedule.curve"), x: Array.from({ length: 200 }, (_, i) => 1 + i * 150), lines: [{ label: `d_model ${d}, warmup ${warmup}`, y: (step) => 1000 * learningRate(step, d, warmup) }, { label: "512, 4000", y: (step) => 1000 * learningRate(step, 512, 4000) }], xLabel: view.text("lab.schedule.step"), yLabel: "× 10⁻³" }),
    el("p", {}, view.text("lab.schedule.peak", { rate: learningRate(warmup, d, warmup).toExponential(3), step: warmup })),
  ]);
}

// Label smoothing

export function smoothed(probability, size, epsilon) {
  const others = (1 - probability) / (size - 1);
  const target = 1 - epsilon + epsilon / size;
  return { target, other: epsilon / size, loss: -(target * Math.log(probability) + (size - 1) * (epsilon / size) * Math.log(others)), plain: -Math.log(probability) };
}

function smoothing(view) {
  laboratory(view, "smoothing", [{ name: "epsilon", min: 0, max: 0.4, step: 0.05, value: 0.1 }, { name: "p", min: 0.05, max: 0.99, step: 0.01, value: 0.9 }, { name: "V", min: 5, max: 50, value: 10 }], ({ epsilon, p, V }) => {
    const { target, other, loss, plain } = smoothed(p, V, epsilon);
    const rows = Array.from({ length: 99 }, (_, i) => (i + 1) / 100);
    return [
      formula("smoothing"),
      matrix({ rows: [view.text("lab.smoothing.target"), view.text("lab.smoothing.prediction")], columns: [...Array(V).keys()].map((i) => String(i + 1)), at: (row, column) => (row ? (column ? (1 - p) / (V - 1) : p) : column ? other : target), caption: view.text("lab.smoothing.both"), kind: "weights", digits: 3 }),
      el("p", {}, view.text("lab.smoothing.loss", { loss: number(loss, 4), plain: number(plain, 4) })),
      curves({ title: view.text("lab.smoothing.curve"), x: rows, lines: [{ label: view.text("lab.smoothing.smoothed"), y: (x) => smoothed(x, V, epsilon).loss }, { label: view.text("lab.smoothing.plain"), y: (x) => smoothed(x, V, epsilon).plain }] }),
      el("p", { class: "note" }, view.text("lab.smoothing.best", { p: number(target, 3) })),
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
  const score = isZero ? 0 : 100 * brevity * Math.exp(orders.reduce((sum, { matches, total }) => sum + Math.log(matches / total) / 4, 0));
  return { orders, brevity, score, lengths: [c.length, r.length] };
}

function bleuLab(view) {
  const knobs = [{ name: "candidate", text: true, value: "meine Schwester hat gestern ein rotes Rad gekauft ." }, { name: "reference", text: true, value: "meine Schwester hat gestern ein rotes Fahrrad gekauft ." }];
  laboratory(view, "bleu", knobs, ({ candidate, reference }) => {
    const { orders, brevity, score, lengths } = bleu(candidate, reference);
    return [
      formula("bleu"),
      ...orders.map(({ n, grams, matches, total }) => el("div", {}, el("h2", {}, view.text("lab.bleu.order", { n, matches, total, share: total ? number((100 * matches) / total, 1) : "–" })), el("p", {}, grams.map(({ gram, isMatch }) => [el(isMatch ? "mark" : "span", {}, el("bdi", {}, gram)), " · "])))),
      el("p", {}, view.text("lab.bleu.brevity", { candidate: lengths[0], reference: lengths[1], brevity: number(brevity, 4) })),
      el("p", { class: "value", "data-cell": "bleu" }, view.text("lab.bleu.score", { score: number(score, 2) })),
      el("p", { class: "note" }, view.text("lab.bleu.note")),
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
];
