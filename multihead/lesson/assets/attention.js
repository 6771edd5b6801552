// Stations 4 to 10: one head of one layer, from queries, keys and values to the output of the sub-layer.

import { append, el, number, visible } from "./dom.js";
import { Graph, softmaxRows } from "./engine.js";
import { bars, stacked } from "./figures.js";
import { matrix } from "./matrix.js";
import { sourceIds } from "./model.js";
import { PAD } from "./tokenizer.js";

/** Labels of the queries and the keys of the chosen sub-layer. */
export function sides({ state, run }) {
  const { source, read } = run.labels;
  return state.side === "encoder" ? [source, source] : state.side === "decoder" ? [read, read] : [read, source];
}

const choices = { sides: ["encoder", "decoder", "cross"], layers: true, heads: true };
const partOf = (state) => ({ encoder: "encoder.self", decoder: "decoder.self", cross: "decoder.cross" })[state.side];

function projections(view) {
  const { root, show, sublayer, text, state } = view;
  const [queries, keys] = sides(view);
  for (const [letter, rows] of [["q", queries], ["k", keys], ["v", keys]])
    root.append(show(`${sublayer}.${letter}`, { rows, caption: text(`matrix.${letter}`, { head: state.head + 1 }), digits: 1 }));
}

/** A station that needs these tensors of the chosen sub-layer. */
const needing = (names, render) => (view) => {
  const missing = names.map((name) => `${view.sublayer}.${name}`).find((name) => !view.run.graph.nodes.has(name));
  if (missing) view.root.append(el("p", { class: "note" }, view.text("trace.missing", { name: missing })));
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
  return Array.from({ length: m }, (_, column) => at(view.state.row, column));
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
  const total = [...Array(q.m).keys()].reduce((sum, i) => sum + values[2](i), 0);
  root.append(
    el("h2", {}, text("products.pair", { query: rows[query], key: columns[key] })),
    matrix({ rows: [text("products.query"), text("products.key"), text("products.both")], columns: [...Array(q.m).keys()].map(String), at: (row, column) => values[row](column), caption: text("products.each"), compact: true }),
    el("p", {}, text("products.sum", { sum: number(total, 4) })),
  );
}

function scores(view) {
  const { root, show, sublayer, text, config, state } = view;
  const [rows, columns] = sides(view);
  const { n, m, at } = ofHead(view, "products");
  const own = Array.from({ length: n * m }, (_, i) => at(Math.floor(i / m), i % m));
  const mean = own.reduce((sum, x) => sum + x, 0) / own.length;
  const deviation = Math.sqrt(own.reduce((sum, x) => sum + (x - mean) ** 2, 0) / own.length);
  const isHidden = (_, column) => ofHead(view, "masked").at(state.row, column) === -Infinity;
  const share = (name) => softmaxRows(Float32Array.from(chosenRow(view, name), (x, column) => (isHidden(0, column) ? -Infinity : x)), m);
  const shares = [share("products"), share("scores")];
  append(
    root,
    show(`${sublayer}.products`, { rows, columns, caption: text("matrix.products") }),
    el("p", { class: "operation" }, `÷ √${config.d_k} = ${number(Math.sqrt(config.d_k), 3)}`),
    show(`${sublayer}.scores`, { rows, columns, caption: text("matrix.scores") }),
    el("p", { class: "note" }, text("scores.spread", { before: number(deviation), after: number(deviation / Math.sqrt(config.d_k)) })),
    matrix({ rows: [text("scores.raw"), text("scores.scaled")], columns, at: (row, column) => shares[row][column], isHidden, caption: text("scores.softmax", { query: rows[state.row] }), kind: "weights" }),
  );
}

function mask(view) {
  const { root, show, sublayer, text, state, model } = view;
  const [rows, columns] = sides(view);
  root.append(
    show(`${sublayer}.scores`, { rows, columns, caption: text("matrix.scores") }),
    show(`${sublayer}.masked`, { rows, columns, caption: text("matrix.masked") }),
    el("p", { class: "note" }, text(`mask.${state.side}`)),
  );
  if (model && state.side === "encoder") padding(view);
}

/** A shorter sentence in the same batch: what it is padded with is masked, and changes none of its vectors. */
function padding({ root, text, state, model, tokenizer, run, config }) {
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
    el("h2", {}, text("mask.padding")),
    el("p", {}, text("mask.batch", { other: text("mask.other"), n })),
    matrix({ rows: labels, columns: labels, at, caption: text("matrix.masked") }),
    el("p", { class: "note" }, text("mask.same", { difference: number(difference, 1), width: config.d_model })),
  );
}

function softmax(view) {
  const { root, show, sublayer, text, state } = view;
  const [rows, columns] = sides(view);
  const own = chosenRow(view, "masked");
  const powers = own.map(Math.exp);
  const sum = powers.reduce((total, x) => total + x, 0);
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
  const heads = [...Array(config.n_heads).keys()];
  append(
    root,
    el("div", { class: "pair" }, heads.map((head) => show(`${sublayer}.heads`, { rows, head, caption: text("matrix.heads", { head: head + 1 }), compact: true }))),
    show(`${sublayer}.concat`, { rows, caption: text("matrix.concat") }),
    show(`${sublayer}.output`, { rows, caption: text("matrix.output") }),
    model ? bars({ title: text("concat.share", { query: rows[state.row] }), items: headSizes(view).map((value, head) => ({ label: text("step.head", { head: head + 1 }), value })), format: (x) => number(x) }) : null,
  );
}

/** The length of what each head adds to the chosen row of the sub-layer's output: of its part of Concat(…) Wᴼ. */
function headSizes({ tensor, sublayer, state, config, model }) {
  const { data, shape } = tensor(`${sublayer}.heads`);
  const [H, n, width] = shape;
  const matrix = model.weight(`${moduleOf(sublayer)}.w_o.weight`);
  return Array.from({ length: H }, (_, head) => {
    const start = (head * n + state.row) * width;
    return partSize(data.subarray(start, start + width), matrix, head, H, config.d_model);
  });
}

/** ‖x Wᴼ‖ for a row `x` of one head. */
export function partSize(x, matrix, head, heads, D) {
  const width = x.length;
  let square = 0;
  for (let out = 0; out < D; out++) {
    let sum = 0;
    for (let i = 0; i < width; i++) sum += x[i] * matrix[out * heads * width + head * width + i];
    square += sum * sum;
  }
  return Math.sqrt(square);
}

/** The module of a sub-layer in model.safetensors: "decoder.0.cross" is decoder.0.cross_attention. */
export const moduleOf = (sublayer) => `${sublayer}_attention`;

export const ATTENTION_STATIONS = [
  { key: "projections", map: partOf, paper: "§3.2.2", formula: ({ side }) => [side === "cross" ? "crossProjections" : "projections"], code: "queries", ...choices, render: needing(["q", "k", "v"], projections) },
  { key: "products", map: partOf, paper: "§3.2.1", formula: ["products"], code: "attention_weights", ...choices, rows: true, render: needing(["products"], products) },
  { key: "scores", map: partOf, paper: "§3.2.1, eq. (1)", formula: ["scores"], code: "attention_weights", ...choices, rows: true, render: needing(["products", "scores"], scores) },
  { key: "mask", map: partOf, paper: "§3.2.3", formula: ["mask"], code: "masked_softmax", ...choices, side: "decoder", render: needing(["scores"], mask) },
  { key: "softmax", map: partOf, paper: "§3.2.1, eq. (1)", formula: ["softmax"], code: "masked_softmax", ...choices, rows: true, render: needing(["masked"], softmax) },
  { key: "mix", map: partOf, paper: "§3.2.1, eq. (1)", formula: ["attention"], code: "attention", ...choices, rows: true, render: needing(["weights", "v"], mix) },
  { key: "concat", map: partOf, parts: ["encoder.self", "decoder.self", "decoder.cross"], paper: "§3.2.2", formula: ["multiHead"], code: "merge", ...choices, rows: true, render: needing(["heads"], concat) },
];
