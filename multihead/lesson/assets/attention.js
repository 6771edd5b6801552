// Stations 4 to 10: one head of one layer, from queries, keys and values to the output of the sub-layer.

import { el, number } from "./dom.js";

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

function products(view) {
  const { root, show, sublayer, text } = view;
  const [rows, columns] = sides(view);
  root.append(show(`${sublayer}.products`, { rows, columns, caption: text("matrix.products") }));
}

function scores(view) {
  const { root, show, sublayer, text, config, tensor, state } = view;
  const [rows, columns] = sides(view);
  root.append(
    show(`${sublayer}.products`, { rows, columns, caption: text("matrix.products") }),
    el("p", { class: "operation" }, `÷ √${config.d_k} = ${number(Math.sqrt(config.d_k), 3)}`),
    show(`${sublayer}.scores`, { rows, columns, caption: text("matrix.scores") }),
  );
  const { data, shape } = tensor(`${sublayer}.products`);
  const size = shape[1] * shape[2];
  const own = data.slice(state.head * size, (state.head + 1) * size);
  const mean = own.reduce((sum, x) => sum + x, 0) / size;
  const deviation = Math.sqrt(own.reduce((sum, x) => sum + (x - mean) ** 2, 0) / size);
  root.append(el("p", { class: "note" }, text("scores.spread", { before: number(deviation), after: number(deviation / Math.sqrt(config.d_k)) })));
}

function mask(view) {
  const { root, show, sublayer, text } = view;
  const [rows, columns] = sides(view);
  root.append(
    show(`${sublayer}.scores`, { rows, columns, caption: text("matrix.scores") }),
    show(`${sublayer}.masked`, { rows, columns, caption: text("matrix.masked") }),
  );
}

function softmax(view) {
  const { root, show, sublayer, text } = view;
  const [rows, columns] = sides(view);
  root.append(
    show(`${sublayer}.masked`, { rows, columns, caption: text("matrix.masked") }),
    show(`${sublayer}.weights`, { rows, columns, caption: text("matrix.weights"), kind: "weights" }),
  );
}

function mix(view) {
  const { root, show, sublayer, text } = view;
  const [rows, columns] = sides(view);
  root.append(
    show(`${sublayer}.weights`, { rows, columns, caption: text("matrix.weights"), kind: "weights" }),
    show(`${sublayer}.v`, { rows: columns, caption: text("matrix.v", { head: view.state.head + 1 }), digits: 1 }),
    show(`${sublayer}.heads`, { rows, caption: text("matrix.heads", { head: view.state.head + 1 }), digits: 1 }),
  );
}

function concat(view) {
  const { root, show, sublayer, text, config } = view;
  const [rows] = sides(view);
  for (let head = 0; head < config.n_heads; head++)
    root.append(show(`${sublayer}.heads`, { rows, head, caption: text("matrix.heads", { head: head + 1 }), compact: true }));
  root.append(
    show(`${sublayer}.concat`, { rows, caption: text("matrix.concat") }),
    show(`${sublayer}.output`, { rows, caption: text("matrix.output") }),
  );
}

export const ATTENTION_STATIONS = [
  { key: "projections", map: partOf, paper: "§3.2.2", formula: ({ side }) => [side === "cross" ? "crossProjections" : "projections"], code: "queries", ...choices, render: projections },
  { key: "products", map: partOf, paper: "§3.2.1", formula: ["products"], code: "attention_weights", ...choices, render: products },
  { key: "scores", map: partOf, paper: "§3.2.1, eq. (1)", formula: ["scores"], code: "attention_weights", ...choices, render: scores },
  { key: "mask", map: partOf, paper: "§3.2.3", formula: ["mask"], code: "masked_softmax", ...choices, side: "decoder", render: mask },
  { key: "softmax", map: partOf, paper: "§3.2.1, eq. (1)", formula: ["softmax"], code: "masked_softmax", ...choices, render: softmax },
  { key: "mix", map: partOf, paper: "§3.2.1, eq. (1)", formula: ["attention"], code: "attention", ...choices, render: mix },
  { key: "concat", map: partOf, parts: ["encoder.self", "decoder.self", "decoder.cross"], paper: "§3.2.2", formula: ["multiHead"], code: "merge", ...choices, render: concat },
];
