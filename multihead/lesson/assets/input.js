// Stations 0 to 3: a sentence, its pieces, their embeddings, and their positions.

import { append, el, number, visible } from "./dom.js";
import { curves } from "./figures.js";

function sentence({ root, run, text, found, update, config }) {
  const { labels } = run;
  const chip = (label, go) => el("button", { type: "button", class: "chip", on: { click: go } }, el("bdi", {}, label));
  root.append(
    el("p", {}, text("sentence.read")),
    el("div", { class: "chips" }, labels.source.map((label) => chip(label, () => update({ s: 1 })))),
    el("p", {}, text("sentence.wrote", { score: number(found.score, 3) })),
    el("div", { class: "chips" }, labels.written.map((label, t) => chip(label, () => update({ s: 15, t })))),
    el("p", { class: "note" }, text("sentence.shape", { encoder: config.encoder_layers, decoder: config.decoder_layers, heads: config.n_heads, width: config.d_model })),
  );
}

/** The merges of every word, letter by letter. */
function pieces({ root, run, text, tokenizer }) {
  const words = tokenizer.split(run.text);
  const rows = words.map((word) => {
    const stages = tokenizer.merge(word);
    const show = (piece) => visible(tokenizer.readable(tokenizer.ids.get(piece)));
    const last = stages.at(-1);
    return el(
      "details",
      { class: "word", open: words.length <= 8 && last.length > 1 },
      el("summary", {}, el("bdi", {}, word.trim() || "␣"), " → ", last.map((piece) => el("span", { class: "piece" }, `${show(piece)} `, el("small", {}, tokenizer.ids.get(piece))))),
      el("ol", { class: "merges" }, stages.map((stage) => el("li", {}, stage.map((piece) => el("span", { class: "piece" }, show(piece)))))),
    );
  });
  root.append(el("p", {}, text("pieces.count", { n: run.source.length, size: tokenizer.pieces.length })), ...rows);
}

function embedding(view) {
  const { root, show, run, text, config, model, tokenizer } = view;
  const rows = run.labels.source;
  append(
    root,
    el("p", { class: "note" }, text("embedding.onehot", { size: config.vocab_size, id: run.source[0], width: config.d_model })),
    show("source.embedding", { rows, caption: text("matrix.embedding") }),
    el("p", { class: "operation" }, `× √${config.d_model} = ${number(Math.sqrt(config.d_model), 3)}`),
    show("source.scaled", { rows, caption: text("matrix.scaled") }),
    model ? el("h3", {}, text("embedding.near")) : null,
    model && el("ul", { class: "near" }, [...new Set(run.source)].map((id) => el("li", {}, el("bdi", {}, visible(tokenizer.readable(id))), ": ", neighbors(model, tokenizer, id)))),
  );
}

/** The pieces whose embeddings have the largest cosine with that of a piece. */
function neighbors(model, tokenizer, id, n = 6) {
  const { d_model: D, vocab_size: V } = model.config;
  const matrix = model.weight("source_embedding.weight");
  const row = (i) => matrix.subarray(i * D, (i + 1) * D);
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const own = row(id);
  const size = Math.sqrt(dot(own, own));
  const cosines = Array.from({ length: V }, (_, i) => (i === id ? -2 : dot(own, row(i)) / (size * Math.sqrt(dot(row(i), row(i))) || 1)));
  const best = cosines.map((_, i) => i).sort((a, b) => cosines[b] - cosines[a]).slice(0, n);
  return best.map((i) => `${visible(tokenizer.readable(i))} ${number(cosines[i])}`).join(", ");
}

function positions(view) {
  const { root, show, run, text, config, state } = view;
  const rows = run.labels.source;
  const size = (name) => {
    const { data } = run.graph.get(name);
    return Math.sqrt(data.reduce((sum, x) => sum + x * x, 0) / data.length);
  };
  root.append(
    show("source.scaled", { rows, caption: text("matrix.scaled") }),
    el("p", { class: "operation" }, "+"),
    show("source.positions", { rows, caption: text("matrix.positions"), largest: 1 }),
    el("p", { class: "operation" }, "="),
    show("source.input", { rows, caption: text("matrix.input") }),
    el("p", { class: "note" }, text("positions.size", { embedding: number(size("source.embedding")), scaled: number(size("source.scaled")), positions: number(size("source.positions")) })),
  );
  if (config.positions !== "sinusoidal" || state.depth === "story") return;
  const dimensions = [4, 5, 6, 7];
  const wave = (position, i) => (i % 2 ? Math.cos : Math.sin)(position / 10000 ** ((i - (i % 2)) / config.d_model));
  root.append(
    curves({
      title: text("positions.curves"),
      x: [...Array(60).keys()],
      lines: dimensions.map((i) => ({ label: text("positions.dimension", { i }), y: (position) => wave(position, i) })),
      xLabel: text("positions.position"),
    }),
  );
}

export const INPUT_STATIONS = [
  { key: "sentence", map: "source", parts: ["source", "output"], paper: "§3", formula: ["sequence"], code: "forward", render: sentence },
  { key: "pieces", needsModel: true, map: "source", parts: [], paper: "§5.1", formula: [], code: "encode_text", render: pieces },
  { key: "embedding", map: "source.embedding", parts: ["source.embedding", "target.embedding"], paper: "§3.4", formula: ["embedding"], code: "embed", render: embedding },
  { key: "positions", map: "source.positions", parts: ["source.positions", "target.positions"], paper: "§3.5", formula: ["positions"], code: "sinusoids", render: positions },
];

