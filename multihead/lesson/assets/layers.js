// Stations 11 to 14: residual and norm, feed-forward, layer by layer, and the memory.

import { el, hint, operation, para, percent, tiny } from "./dom.js";
import { Graph, range, sumOf } from "./engine.js";
import { matrix } from "./matrix.js";

/** Labels of the positions of the chosen stack. */
const rowsOf = ({ state, run }) => (state.side === "encoder" ? run.labels.source : run.labels.read);
const stackOf = ({ state }) => `${state.side === "encoder" ? "encoder" : "decoder"}.${state.layer}`;

/** The name of the tensor that a sub-layer starts from: what the one before it ended in. */
export function inputOf(config, sublayer) {
  const [stack, layer, part] = sublayer.split(".");
  const last = config.norm === "pre" ? "sum" : "norm";
  if (part === "cross") return `${stack}.${layer}.self.${last}`;
  if (layer === "0") return stack === "encoder" ? "source.input" : "target.input";
  return `${stack}.${layer - 1}.ffn.${last}`;
}

function norm(view) {
  const { root, show, scale, text, config, sublayer } = view;
  const rows = rowsOf(view);
  const input = inputOf(config, sublayer);
  const largest = scale(input, ...["output", "sum", "norm"].map((name) => `${sublayer}.${name}`));
  const x = show(input, { rows, caption: text("matrix.x"), largest });
  const output = show(`${sublayer}.output`, { rows, caption: text("matrix.output"), largest });
  const sum = show(`${sublayer}.sum`, { rows, caption: text("matrix.sum"), largest });
  const normalized = [statistics(view, rows), show(`${sublayer}.norm`, { rows, caption: text("matrix.norm"), largest })];
  root.append(...(config.norm === "pre" ? [x, ...normalized, output, operation(text("norm.added")), sum] : [x, operation("+"), output, operation("="), sum, ...normalized]));
}

function statistics({ run, text, sublayer }, rows) {
  const read = (name) => run.graph.get(`${sublayer}.norm.${name}`).data;
  const [mean, deviation] = [read("mean"), read("deviation")];
  return matrix({
    rows,
    columns: [text("norm.mean"), text("norm.deviation")],
    at: (row, column) => (column ? deviation[row] : mean[row]),
    caption: text("norm.statistics"),
    kind: "plain",
    digits: 3,
  });
}

function feedForward(view) {
  const { root, show, run, text, state, model } = view;
  const name = `${stackOf(view)}.ffn`;
  const rows = rowsOf(view);
  const { data } = run.graph.get(`${name}.active`);
  const zeros = sumOf(data, (x) => x === 0) / data.length;
  root.append(
    show(`${name}.inner`, { rows, caption: text("matrix.inner"), compact: true }),
    show(`${name}.active`, { rows, caption: text("matrix.active"), compact: true }),
    hint(text("ffn.zeros", { share: percent(zeros) })),
    show(`${name}.output`, { rows, caption: text("matrix.output") }),
  );
  if (state.depth === "story") return;
  root.append(hint(text("ffn.sizes", { D: view.config.d_model, F: view.config.d_ff })));
  root.append(hint(text("ffn.alone"), " ", model ? text("ffn.same", { row: rows[0], difference: tiny(aloneDifference(view, name)) }) : null));
}

/** How much the first row of a feed-forward layer differs if it is computed without all others. */
function aloneDifference({ run, model, config }, name) {
  const { x } = run.graph.get(`${name}.inner`);
  const first = run.graph.get(x).data.slice(0, config.d_model);
  const alone = model.feedForward(name, name.replace("ffn", "feed_forward"), first, 1, x, new Graph());
  return alone.reduce((worst, value, i) => Math.max(worst, Math.abs(value - run.graph.get(`${name}.output`).data[i])), 0);
}

/** How far each position has moved from where it started, layer by layer. */
function layers(view) {
  const { root, run, text, config, state, show } = view;
  const isEncoder = state.side === "encoder";
  const rows = rowsOf(view);
  const n = isEncoder ? config.encoder_layers : config.decoder_layers;
  const stack = isEncoder ? "encoder" : "decoder";
  const last = config.norm === "pre" ? "sum" : "norm";
  const names = [`${isEncoder ? "source" : "target"}.input`, ...range(n).map((layer) => `${stack}.${layer}.ffn.${last}`)];
  const columns = [text("layers.input"), ...range(n).map((layer) => text("layers.after", { layer: layer + 1 }))];
  root.append(
    matrix({
      rows,
      columns,
      at: (row, column) => cosine(run.graph.get(names[0]), run.graph.get(names[column]), row),
      caption: text("layers.cosine"),
      kind: "signed",
      largest: 1,
    }),
    el("div", { class: "pair" }, names.map((name, i) => show(name, { rows, caption: columns[i], compact: true }))),
  );
}

function cosine(a, b, row) {
  const width = a.shape[1];
  let [product, first, second] = [0, 0, 0];
  for (let i = 0; i < width; i++) {
    const [x, y] = [a.data[row * width + i], b.data[row * width + i]];
    product += x * y;
    first += x * x;
    second += y * y;
  }
  return product / Math.sqrt(first * second || 1);
}

function memory(view) {
  const { root, show, run, text, state, config } = view;
  const rows = run.labels.source;
  const layer = Math.min(state.layer, config.decoder_layers - 1);
  root.append(
    para(text("memory.vectors", { n: rows.length, width: config.d_model })),
    show("memory", { rows, caption: text("matrix.memory") }),
    show(`decoder.${layer}.cross.k`, { rows, caption: text("matrix.k", { head: state.head + 1 }), digits: 1 }),
    show(`decoder.${layer}.cross.v`, { rows, caption: text("matrix.v", { head: state.head + 1 }), digits: 1 }),
  );
}

export const LAYER_STATIONS = [
  {
    key: "norm",
    map: ({ side }) => ({ encoder: "encoder.self.norm", decoder: "decoder.self.norm", cross: "decoder.cross.norm" })[side],
    parts: ["encoder.self.norm", "decoder.self.norm", "decoder.cross.norm", "encoder.ffn.norm", "decoder.ffn.norm"],
    paper: "§3.1, §5.4",
    formula: (_, config) => [config.norm === "pre" ? "residualPre" : "residualPost", "layerNorm"],
    code: "residual",
    sides: ["encoder", "decoder", "cross"],
    layers: true,
    render: norm,
  },
  { key: "ffn", map: ({ side }) => (side === "encoder" ? "encoder.ffn" : "decoder.ffn"), parts: ["encoder.ffn", "decoder.ffn"], paper: "§3.3, eq. (2)", formula: ["feedForward"], code: "feed_forward", sides: ["encoder", "decoder"], side: "encoder", layers: true, render: feedForward },
  { key: "layers", map: "encoder.ffn.norm", parts: [], paper: "§3.1", formula: [], code: "encoder_layer", sides: ["encoder", "decoder"], side: "encoder", render: layers },
  { key: "memory", map: "memory", paper: "§3.2.3", formula: ["crossProjections"], code: "memory_keys_values", side: "decoder", layers: true, heads: true, render: memory },
];

