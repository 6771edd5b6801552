// Stations 0 to 3: a sentence, its pieces, their embeddings, and their positions.

import { append, bdi, count, el, heading, hint, number, operation, para, pushButton, scrolling, svg, visible } from "./dom.js";
import { range, sumOf } from "./engine.js";
import { curves } from "./figures.js";
import { largest } from "./search.js";
import { N_SPECIAL } from "./tokenizer.js";

function sentence(view) {
  const { root, run, text, found, update, config } = view;
  const { labels } = run;
  const chip = (label, go) => pushButton({ class: "chip", click: go }, bdi(label));
  root.append(
    para(text("sentence.read")),
    el("div", { class: "chips" }, labels.source.map((label) => chip(label, () => update({ s: 1 })))),
    para(text("sentence.wrote", { score: number(found.score, 3) })),
    el("div", { class: "chips" }, labels.written.map((label, t) => chip(label, () => update({ s: 15, t })))),
    ribbon(view),
    passes(view),
    hint(text("sentence.shape", { encoder: config.encoder_layers, decoder: config.decoder_layers, heads: config.n_heads, width: config.d_model })),
  );
}

/** How to read the paper with this page, and every station's question with its answer. */
function passes({ text, app, update }) {
  const link = (s) => pushButton({ class: "link", click: () => update({ s }) }, String(s));
  const steps = [["1", [0, 19]], ["2", [4, 7, 10, 15, 18, 21]], ["3", []]].map(([pass, stations]) => el("li", {}, text(`passes.${pass}`), " ", stations.map((s) => [link(s), " "])));
  const questions = app.stations.map(({ key }, s) => el("details", { class: "question" }, el("summary", {}, `${s} · `, text(`station.${key}.question`)), para(text(`station.${key}.answer`))));
  return el("div", { class: "passes" },
    el("details", {}, el("summary", {}, text("passes.title")), el("ol", {}, steps)),
    el("details", { id: "questions" }, el("summary", {}, text("passes.questions", { n: questions.length })), questions),
  );
}

/** Both sentences with lines between their pieces: the mean of the last layer's cross-attention. */
function ribbon({ run, text, config }) {
  const node = run.graph.nodes.get(`decoder.${config.decoder_layers - 1}.cross.weights`);
  if (!node) return null;
  const { data, shape: [H, T, S] } = node;
  const weight = (t, s) => sumOf(range(H), (head) => data[(head * T + t) * S + s]) / H;
  const centers = (words) => {
    const widths = words.map((word) => 9 * word.length + 18);
    return { at: widths.map((w, i) => sumOf(widths.slice(0, i)) + w / 2), total: sumOf(widths) };
  };
  const [above, below] = [centers(run.labels.source), centers(run.labels.written)];
  const width = Math.max(above.total, below.total);
  const place = ({ at, total }, i) => at[i] + (width - total) / 2;
  const words = (labels, row, y) => labels.map((label, i) => svg("text", { x: place(row, i), y, "text-anchor": "middle" }, label));
  const lines = run.labels.written.flatMap((_, t) => run.labels.source.map((__, s) => [t, s, weight(t, s)])).filter(([, , w]) => w > 0.05);
  const path = ([t, s, w]) => svg("path", { d: `M${place(above, s)} 24 C${place(above, s)} 70 ${place(below, t)} 50 ${place(below, t)} 96`, style: { opacity: w.toFixed(3) } });
  const title = text("sentence.ribbon", { layer: config.decoder_layers });
  const picture = svg("svg", { class: "ribbon", viewBox: `0 0 ${width} 120`, width, height: 120, role: "img", "aria-label": title }, lines.map(path), words(run.labels.source, above, 16), words(run.labels.written, below, 114));
  return el("figure", {}, el("figcaption", { class: "note" }, title), scrolling(title, picture));
}

/** The merges of every word, letter by letter. */
function pieces({ root, run, text, tokenizer }) {
  const words = tokenizer.split(run.text);
  const longest = Math.max(...words.map((word) => tokenizer.merge(word).length));
  const rows = words.map((word) => {
    const stages = tokenizer.merge(word);
    const show = (piece) => visible(tokenizer.readable(tokenizer.ids.get(piece)));
    const last = stages.at(-1);
    return el(
      "details",
      { class: "word", open: stages.length === longest || last.length > 1 },
      el("summary", {}, bdi(word.trim() || "␣"), " → ", last.map((piece) => el("span", { class: "piece" }, `${show(piece)} `, el("small", {}, tokenizer.ids.get(piece))))),
      el("ol", { class: "merges" }, stages.map((stage) => el("li", {}, stage.map((piece) => el("span", { class: "piece" }, show(piece)))))),
    );
  });
  root.append(para(text("pieces.count", { n: run.source.length, size: count(tokenizer.pieces.length) })), ...rows);
}

function embedding(view) {
  const { root, show, scale, run, text, config, model, tokenizer } = view;
  const rows = run.labels.source;
  const largest = scale("source.scaled");
  append(
    root,
    hint(text("embedding.onehot", { size: count(config.vocab_size), id: run.source[0], width: config.d_model })),
    oneHot(view),
    show("source.embedding", { rows, caption: text("matrix.embedding"), largest }),
    operation(`× √${config.d_model} = ${number(Math.sqrt(config.d_model), 3)}`),
    show("source.scaled", { rows, caption: text("matrix.scaled"), largest }),
    hint(text("embedding.scale")),
    model ? heading(text("embedding.near")) : null,
    model && el("ul", { class: "near" }, [...new Set(run.source)].map((id) => el("li", {}, bdi(visible(tokenizer.readable(id))), ": ", neighbors(model, tokenizer, id)))),
  );
}

/** The one-hot vector of each piece, drawn over the width of the vocabulary. */
function oneHot({ run, text, config, model }) {
  if (!model) return null;
  const [left, width, step] = [90, 540, 17];
  const rows = run.source.map((id, i) => [
    svg("text", { x: left - 8, y: i * step + 13, "text-anchor": "end" }, run.labels.source[i]),
    svg("rect", { x: left, y: i * step + 3, width, height: 12 }),
    svg("path", { class: "one", d: `M${left + (width * id) / config.vocab_size} ${i * step + 2} v14` }),
    svg("text", { x: left + width + 6, y: i * step + 13 }, String(id)),
  ]);
  const title = text("embedding.hot", { size: count(config.vocab_size) });
  const picture = svg("svg", { class: "hot", viewBox: `0 0 680 ${run.source.length * step + 4}`, role: "img", "aria-label": title }, rows);
  return el("figure", { class: "chart" }, el("figcaption", {}, title), scrolling(title, picture));
}

/** The pieces whose embeddings have the largest cosine with that of a piece; pieces without letters only for such. */
function neighbors(model, tokenizer, id, n = 6) {
  const { d_model: D, vocab_size: V } = model.config;
  const matrix = model.weight("source_embedding.weight");
  const dot = (a, b) => {
    let sum = 0;
    for (let i = 0; i < D; i++) sum += matrix[a * D + i] * matrix[b * D + i];
    return sum;
  };
  const size = Math.sqrt(dot(id, id));
  const cosines = range(V).map((i) => (i === id ? -2 : dot(id, i) / (size * Math.sqrt(dot(i, i)) || 1)));
  const hasLetters = (i) => /^ ?\p{L}/u.test(tokenizer.readable(i)) && i >= N_SPECIAL;
  const near = largest(cosines, 8 * n);
  const best = near.filter((i) => !hasLetters(id) || hasLetters(i)).slice(0, n);
  return best.map((i) => `${visible(tokenizer.readable(i))} ${number(cosines[i])}`).join(", ");
}

function positions(view) {
  const { root, show, scale, run, text, config, state } = view;
  const rows = run.labels.source;
  const largest = scale("source.scaled", "source.input");
  const size = (name) => {
    const { data } = run.graph.get(name);
    return Math.sqrt(sumOf(data, (x) => x * x) / data.length);
  };
  root.append(
    show("source.scaled", { rows, caption: text("matrix.scaled"), largest }),
    operation("+"),
    show("source.positions", { rows, caption: text("matrix.positions"), largest }),
    operation("="),
    show("source.input", { rows, caption: text("matrix.input"), largest }),
    hint(text("positions.size", { embedding: number(size("source.embedding")), scaled: number(size("source.scaled")), positions: number(size("source.positions")) })),
  );
  if (config.positions !== "sinusoidal" || state.depth === "story") return;
  const dimensions = [4, 5, 6, 7];
  const wave = (position, i) => (i % 2 ? Math.cos : Math.sin)(position / 10000 ** ((i - (i % 2)) / config.d_model));
  root.append(
    curves({
      title: text("positions.curves"),
      x: range(241).map((i) => i / 4), // smooth between positions
      lines: dimensions.map((i) => ({ label: text("positions.dimension", { i }), y: (position) => wave(position, i) })),
      xLabel: text("positions.position"),
    }),
    hint(text("positions.waves", { waves: wavelengths(text, config.d_model) })),
    para(pushButton({ class: "link", click: () => view.update({ mode: "labs", lab: 1 }) }, text("positions.lab"))),
  );
}

/** Wavelengths of five pairs of dimensions, in positions: 2π to almost 10000 · 2π. */
function wavelengths(text, D) {
  const pairs = [0, 1, 2, 3, 4].map((part) => 2 * Math.floor((part * (D / 2 - 1)) / 4));
  const length = (i) => 2 * Math.PI * 10000 ** (i / D);
  return pairs.map((i) => text("positions.wave", { i, length: length(i) < 100 ? number(length(i), 1) : count(length(i)) })).join(", ");
}

export const INPUT_STATIONS = [
  { key: "sentence", map: "source", parts: ["source", "output"], paper: "§3", formula: ["sequence"], code: "forward", render: sentence },
  { key: "pieces", needsModel: true, map: "source", parts: [], paper: "§5.1", formula: [], code: "encode_text", render: pieces },
  { key: "embedding", map: "source.embedding", parts: ["source.embedding", "target.embedding"], paper: "§3.4", formula: ["embedding"], code: "embed", render: embedding },
  { key: "positions", map: "source.positions", parts: ["source.positions", "target.positions"], paper: "§3.5", formula: ["positions"], code: "sinusoids", render: positions },
];

