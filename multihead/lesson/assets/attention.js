// Stations 4 to 10: one head of one layer, from queries, keys and values to the output of the sub-layer.

import { append, el, group, heading, hint, number, operation, para, tiny, visible } from "./dom.js";
import { Graph, linear, range, softmaxRows, sumOf } from "./engine.js";
import { bars, stacked } from "./figures.js";
import { extreme, matrix } from "./matrix.js";
import { sourceIds } from "./model.js";
import { PAD } from "./tokenizer.js";

/** Labels of the queries and the keys of the chosen sub-layer. */
export function sides({ state, run }) {
  const { source, read } = run.labels;
  return state.side === "encoder" ? [source, source] : state.side === "decoder" ? [read, read] : [read, source];
}

const choices = { sides: ["encoder", "decoder", "cross"], layers: true, heads: true };
/** The part of Figure 1 that the choice of side means. */
export const partOf = (state) => ({ encoder: "encoder.self", decoder: "decoder.self", cross: "decoder.cross" })[state.side];

function projections(view) {
  const { root, show, sublayer, text, state, config, tensor } = view;
  const [queries, keys] = sides(view);
  const { x, shape } = tensor(`${sublayer}.q`);
  if (x) root.append(show(x, { rows: queries, caption: text("projections.input", { letter: "X" }), compact: true }));
  if (x && state.side === "cross") root.append(show("memory", { rows: keys, caption: text("projections.input", { letter: "M" }), compact: true }));
  const widths = { D: config.d_model, K: shape[2], n: shape[1] };
  root.append(operation(text("projections.shapes", widths)));
  for (const [letter, rows] of [["q", queries], ["k", keys], ["v", keys]])
    root.append(show(`${sublayer}.${letter}`, { rows, caption: text(`matrix.${letter}`, { head: state.head + 1 }), digits: 1 }));
  root.append(hint(text("projections.search")));
  if (state.depth !== "story") root.append(allHeads(view, queries));
  if (sublayer === "encoder.0.self" && view.model && view.config.positions !== "none" && state.depth !== "story") origins(view, queries);
}

/** X W^Q for all heads at once, before it is split. */
function allHeads({ text, tensor, sublayer, state }, rows) {
  const { data, shape: [H, n, K] } = tensor(`${sublayer}.q`);
  const at = (row, column) => data[(Math.floor(column / K) * n + row) * K + (column % K)];
  return group(
    matrix({ rows, columns: H * K, at, caption: text("projections.all"), compact: true }),
    hint(text("projections.split", { D: H * K, H, K, head: state.head + 1, from: state.head * K, to: (state.head + 1) * K - 1 })),
  );
}

/** How much of q, k and v in the first layer comes from the word, and how much from its position: (x + p) W = x W + p W. */
function origins({ root, text, state, model, config, tensor }, labels) {
  const { d_model: D, d_k, d_v } = config;
  const parts = ["q", "k", "v"].map((letter) => {
    const width = letter === "v" ? d_v : d_k;
    const start = state.head * width * D;
    const rows = model.weight(`encoder.0.self_attention.w_${letter}.weight`).subarray(start, start + width * D);
    return ["scaled", "positions", "input"].map((name) => {
      const x = tensor(`source.${name}`).data.subarray(state.row * D, (state.row + 1) * D);
      return Math.hypot(...linear(x, 1, D, rows, width));
    });
  });
  const columns = ["word", "position", "both"].map((name) => text(`projections.${name}`));
  root.append(
    matrix({ rows: ["q", "k", "v"], columns, at: (row, column) => parts[row][column], caption: text("projections.origin", { row: labels[state.row] }), kind: "plain" }),
    hint(text("projections.added")),
  );
}

/** A station that needs these tensors of the chosen sub-layer. */
const needing = (names, render) => (view) => {
  const missing = names.map((name) => `${view.sublayer}.${name}`).find((name) => !view.run.graph.nodes.has(name));
  if (missing) view.root.append(hint(view.text("trace.missing", { name: missing })));
  else render(view);
};

/** Numbers of the chosen head in a tensor of H × rows × columns. */
function ofHead({ tensor, sublayer, state }, name) {
  const { data, shape } = tensor(`${sublayer}.${name}`);
  const [, n, m] = shape;
  return { n, m, at: (row, column) => data[(state.head * n + row) * m + column] };
}

/** The row of the chosen head that a station explains, as numbers. */
function chosenRow(view, name) {
  const { m, at } = ofHead(view, name);
  return range(m).map((column) => at(view.state.row, column));
}

function products(view) {
  const { root, show, sublayer, text, config, state, app } = view;
  const [rows, columns] = sides(view);
  root.append(show(`${sublayer}.products`, { rows, columns, caption: text("matrix.products") }));
  if (config.attention_score === "additive" || state.depth === "story") return;
  const cell = app.trail[0]?.name === `${sublayer}.products` ? app.trail[0].index : null;
  const scores = chosenRow(view, "products");
  const [query, key] = cell ? cell.slice(1) : [state.row, scores.indexOf(Math.max(...scores))];
  const [q, k] = [ofHead(view, "q"), ofHead(view, "k")];
  const values = [(i) => q.at(query, i), (i) => k.at(key, i), (i) => q.at(query, i) * k.at(key, i)];
  const total = sumOf(range(q.m), values[2]);
  root.append(
    heading(text("products.pair", { query: rows[query], key: columns[key] })),
    matrix({ rows: [text("products.query"), text("products.key"), text("products.both")], columns: q.m, at: (row, column) => values[row](column), caption: text("products.each"), compact: true }),
    para(text("products.sum", { sum: number(total, 4) })),
  );
}

function scores(view) {
  const { root, show, sublayer, text, config, state } = view;
  const [rows, columns] = sides(view);
  const { n, m, at } = ofHead(view, "products");
  const own = range(n * m).map((i) => at(Math.floor(i / m), i % m));
  const largest = extreme(n, m, at);
  const mean = sumOf(own) / own.length;
  const deviation = Math.sqrt(sumOf(own, (x) => (x - mean) ** 2) / own.length);
  const isHidden = (_, column) => ofHead(view, "masked").at(state.row, column) === -Infinity;
  const share = (name) => softmaxRows(Float32Array.from(chosenRow(view, name), (x, column) => (isHidden(0, column) ? -Infinity : x)), m);
  const shares = [share("products"), share("scores")];
  append(
    root,
    show(`${sublayer}.products`, { rows, columns, caption: text("matrix.products"), largest }),
    operation(`÷ √${config.d_k} = ${number(Math.sqrt(config.d_k), 3)}`),
    show(`${sublayer}.scores`, { rows, columns, caption: text("matrix.scores"), largest }),
    state.depth === "story" ? null : histogram(view, own, largest),
    hint(text("scores.spread", { before: number(deviation), after: number(deviation / Math.sqrt(config.d_k)) })),
    matrix({ rows: [text("scores.raw"), text("scores.scaled")], columns, at: (row, column) => shares[row][column], isHidden, caption: text("scores.softmax", { query: rows[state.row] }), kind: "weights" }),
  );
}

/** How many of a head's scores lie where, before and after the division. */
function histogram({ text, config }, scores, largest) {
  const half = 6; // bins on each side of 0
  const width = Number((largest / half).toPrecision(1));
  const counts = [1, Math.sqrt(config.d_k)].map((divisor) => {
    const bins = scores.map((s) => Math.min(2 * half, Math.max(0, Math.round(s / divisor / width) + half)));
    return range(2 * half + 1).map((bin) => bins.filter((one) => one === bin).length);
  });
  return matrix({ rows: [text("scores.raw"), text("scores.scaled")], columns: range(2 * half + 1).map((bin) => number((bin - half) * width, width < 1 ? 1 : 0)), at: (row, column) => counts[row][column], caption: text("scores.histogram", { n: scores.length }), digits: 0 });
}

function mask(view) {
  const { root, show, sublayer, text, state, model } = view;
  const [rows, columns] = sides(view);
  root.append(
    show(`${sublayer}.scores`, { rows, columns, caption: text("matrix.scores") }),
    show(`${sublayer}.masked`, { rows, columns, caption: text("matrix.masked") }),
    hint(text(`mask.${state.side}`)),
  );
  if (model && state.side === "encoder") padding(view);
}

/** A shorter sentence in the same batch: what it is padded with is masked, and changes none of its vectors. */
function padding({ root, text, state, model, tokenizer, run }) {
  const own = sourceIds(tokenizer, text("mask.other"));
  const n = Math.max(run.source.length, own.length + 2);
  const padded = [...own, ...Array(n - own.length).fill(PAD)];
  const graph = new Graph();
  const change = { visible: own.length };
  const [inBatch, alone] = [model.encode(padded, graph, change), model.encode(own)];
  const difference = alone.reduce((worst, x, i) => Math.max(worst, Math.abs(x - inBatch[i])), 0);
  const labels = padded.map((id) => visible(tokenizer.readable(id)));
  const { data, shape } = graph.get(`encoder.${state.layer}.self.masked`);
  const at = (row, column) => data[(state.head * shape[1] + row) * shape[2] + column];
  root.append(
    heading(text("mask.padding")),
    para(text("mask.batch", { other: text("mask.other"), n })),
    matrix({ rows: labels, columns: labels, at, caption: text("matrix.masked") }),
    hint(text("mask.same", { difference: tiny(difference), own: own.length })),
  );
}

function softmax(view) {
  const { root, show, sublayer, text, state } = view;
  const [rows, columns] = sides(view);
  const own = chosenRow(view, "masked");
  const powers = own.map(Math.exp);
  const sum = sumOf(powers);
  const weights = chosenRow(view, "weights");
  const steps = [own, powers, weights];
  append(
    root,
    show(`${sublayer}.masked`, { rows, columns, caption: text("matrix.masked") }),
    state.depth === "story" ? null : matrix({ rows: ["s", "eˢ", `eˢ ÷ ${number(sum)}`], columns, at: (row, column) => steps[row][column], isHidden: (_, column) => own[column] === -Infinity, caption: text("softmax.row", { query: rows[state.row] }), kind: "plain" }),
    show(`${sublayer}.weights`, { rows, columns, caption: text("matrix.weights"), kind: "weights" }),
  );
}

function mix(view) {
  const { root, show, sublayer, text, state } = view;
  const [rows, columns] = sides(view);
  const parts = chosenRow(view, "weights").map((value, i) => ({ label: columns[i], value })).sort((a, b) => b.value - a.value);
  root.append(
    show(`${sublayer}.weights`, { rows, columns, caption: text("matrix.weights"), kind: "weights" }),
    stacked({ title: text("mix.row", { query: rows[state.row] }), parts }),
    show(`${sublayer}.v`, { rows: columns, caption: text("matrix.v", { head: state.head + 1 }), digits: 1 }),
    show(`${sublayer}.heads`, { rows, caption: text("matrix.heads", { head: state.head + 1 }), digits: 1 }),
  );
}

function concat(view) {
  const { root, show, sublayer, text, config, state, model } = view;
  const [rows] = sides(view);
  const heads = range(config.n_heads);
  append(
    root,
    el("div", { class: "pair" }, heads.map((head) => show(`${sublayer}.heads`, { rows, head, caption: text("matrix.heads", { head: head + 1 }), compact: true }))),
    show(`${sublayer}.concat`, { rows, caption: text("matrix.concat") }),
    show(`${sublayer}.output`, { rows, caption: text("matrix.output") }),
    model ? bars({ title: text("concat.share", { query: rows[state.row] }), items: headSizes(view).map((value, head) => ({ label: text("step.head", { head: head + 1 }), value })), format: (x) => number(x) }) : null,
  );
  if (model && state.depth !== "story") root.append(...separately(view), oneHead(view));
}

/** Multi-head attention as h separate mechanisms: each head through its own part of Wᴼ, and their sum. */
function separately(view) {
  const { text, state, config, model, sublayer, tensor } = view;
  const { d_model: D, n_heads: H } = config;
  const parts = headParts(view);
  const bias = model.bias(`${moduleOf(sublayer)}.w_o.bias`);
  const sum = Float32Array.from({ length: D }, (_, i) => sumOf(parts, (part) => part[i]) + (bias?.[i] ?? 0));
  const output = tensor(`${sublayer}.output`).data.subarray(state.row * D, (state.row + 1) * D);
  const rows = [...parts, sum, output];
  const names = [...range(H).map((head) => text("step.head", { head: head + 1 })), text("concat.sum"), text("concat.output")];
  const difference = sum.reduce((worst, x, i) => Math.max(worst, Math.abs(x - output[i])), 0);
  return [
    matrix({ rows: names, columns: D, at: (row, column) => rows[row][column], caption: text("concat.separate"), compact: true }),
    el("p", { class: "note", id: "separate" }, text("concat.same", { h: H, difference: tiny(difference) })),
  ];
}

/** What a single head would have to do: the weights of all heads, and their average. */
function oneHead(view) {
  const { text, state, config, tensor, sublayer } = view;
  const [rows, keys] = sides(view);
  const { data, shape: [H, n, m] } = tensor(`${sublayer}.weights`);
  const weight = (head, key) => data[(head * n + state.row) * m + key];
  const mean = (key) => sumOf(range(H), (head) => weight(head, key)) / H;
  const at = (row, key) => (row < H ? weight(row, key) : mean(key));
  const largest = range(H + 1).map((row) => Math.max(...keys.map((_, key) => at(row, key))));
  return el("div", {},
    matrix({ rows: [...range(H).map((head) => text("step.head", { head: head + 1 })), text("step.mean")], columns: keys, at, caption: text("concat.one", { query: rows[state.row] }), kind: "weights" }),
    hint(text("concat.averaging", { heads: largest.slice(0, H).map((x) => number(x)).join(", "), best: number(Math.max(...largest.slice(0, H))), mean: number(largest[H]) })),
  );
}

/** The length of what each head adds to the chosen row of the sub-layer's output: of its part of Concat(…) Wᴼ. */
const headSizes = (view) => headParts(view).map((part) => Math.hypot(...part));

/** What each head adds to the chosen row of the sub-layer's output. */
function headParts({ tensor, sublayer, state, config, model }) {
  const { data, shape } = tensor(`${sublayer}.heads`);
  const [H, n, width] = shape;
  const matrix = model.weight(`${moduleOf(sublayer)}.w_o.weight`);
  return range(H).map((head) => {
    const start = (head * n + state.row) * width;
    return headPart(data.subarray(start, start + width), matrix, head, H, config.d_model);
  });
}

/** x Wᴼ for a row `x` of one head, with that head's part of Wᴼ. */
function headPart(x, matrix, head, heads, D) {
  const width = x.length;
  return Float32Array.from({ length: D }, (_, out) => {
    let sum = 0;
    for (let i = 0; i < width; i++) sum += x[i] * matrix[out * heads * width + head * width + i];
    return sum;
  });
}

/** ‖x Wᴼ‖ for a row `x` of one head. */
export const partSize = (...operands) => Math.hypot(...headPart(...operands));

/** The module of a sub-layer in model.safetensors: "decoder.0.cross" is decoder.0.cross_attention. */
export const moduleOf = (sublayer) => `${sublayer}_attention`;

export const ATTENTION_STATIONS = [
  { key: "projections", map: partOf, paper: "§3.2.2", formula: ({ side }) => [side === "cross" ? "crossProjections" : "projections"], code: "queries", ...choices, rows: true, render: needing(["q", "k", "v"], projections) },
  { key: "products", map: partOf, paper: "§3.2.1", formula: ["products"], code: "attention_weights", ...choices, rows: true, render: needing(["products"], products) },
  { key: "scores", map: partOf, paper: "§3.2.1, eq. (1)", formula: ["scores"], code: "attention_weights", ...choices, rows: true, render: needing(["products", "scores"], scores) },
  { key: "mask", map: partOf, paper: "§3.2.3", formula: ["mask"], code: "masked_softmax", ...choices, side: "decoder", render: needing(["scores"], mask) },
  { key: "softmax", map: partOf, paper: "§3.2.1, eq. (1)", formula: ["softmax"], code: "masked_softmax", ...choices, rows: true, render: needing(["masked"], softmax) },
  { key: "mix", map: partOf, paper: "§3.2.1, eq. (1)", formula: ["attention"], code: "attention", ...choices, rows: true, render: needing(["weights", "v"], mix) },
  { key: "concat", map: partOf, parts: ["encoder.self", "decoder.self", "decoder.cross"], paper: "§3.2.2", formula: ["multiHead"], code: "merge", ...choices, rows: true, render: needing(["heads"], concat) },
];
