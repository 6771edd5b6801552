// Stations 15 to 17: one step of the decoder, the words it could write, and the loop.

import { bdi, count, el, film, group, heading, hint, number, para, percent, pushButton, scrolling, tiny, visible } from "./dom.js";
import { linear, range, sumOf } from "./engine.js";
import { bars } from "./figures.js";
import { matrix } from "./matrix.js";
import { largest } from "./search.js";

const TOP_WORDS = 20;

/** One row of the target: what was read so far, and where it looks. */
function step(view) {
  const { root, run, text, config, state, tensor, update } = view;
  const { t } = state;
  const { read, written, source } = run.labels;
  const weights = (name) => {
    const { data, shape } = tensor(name);
    return { at: (head, column) => data[(head * shape[1] + t) * shape[2] + column], n: shape[2] };
  };
  const heads = range(config.n_heads).map((head) => text("step.head", { head: head + 1 }));
  const own = weights(`decoder.${state.layer}.self.weights`);
  const cross = weights(`decoder.${state.layer}.cross.weights`);
  root.append(
    para(text("step.reads")),
    el("div", { class: "chips" }, read.map((label, i) => el("span", { class: i === t ? "chip now" : i < t ? "chip" : "chip later" }, bdi(label)))),
    para(text("step.writes"), " ", pushButton({ class: "chip now", click: () => update({ s: view.state.s + 1 }) }, bdi(written[t]))),
    matrix({ rows: heads, columns: read, at: own.at, isHidden: (_, column) => column > t, caption: text("step.self", { layer: state.layer + 1 }), kind: "weights" }),
    matrix({ rows: heads, columns: source, at: cross.at, caption: text("step.cross", { layer: state.layer + 1 }), kind: "weights" }),
    matrix({ rows: [text("step.mean")], columns: source, at: (_, column) => sumOf(heads, (_, head) => cross.at(head, column)) / heads.length, caption: text("step.ribbon"), kind: "weights" }),
  );
}

function logits(view) {
  const { root, run, text, state, tensor, tokenizer, model, config } = view;
  const { t } = state;
  if (!model) return recordedWords(view);
  const V = config.vocab_size;
  const row = tensor("probabilities").data.subarray(t * V, (t + 1) * V);
  const raw = tensor("logits").data.subarray(t * V, (t + 1) * V);
  const word = (id) => visible(tokenizer.readable(id));
  const items = largest(row, TOP_WORDS).map((id) => ({
    label: word(id),
    value: row[id],
    note: text("logits.logit", { logit: number(raw[id]) }),
    on: () => view.app.follow("logits", [t, id]),
  }));
  root.append(
    para(text("logits.chosen", { word: run.labels.written[t], share: percent(row[run.written[t]]) })),
    bars({ title: text("logits.title", { n: TOP_WORDS, size: count(V) }), items, largest: 1 }),
    state.depth === "story" ? "" : product(view, word),
    temperature(view, raw, word),
    lens(view, model, word),
  );
}

/** The logit of the written word: the last vector times the word's row of the matrix that embeds it, too. */
function product({ run, text, state, tensor, model, config }, word) {
  const D = config.d_model;
  const id = run.written[state.t];
  const hidden = tensor("hidden").data.subarray(state.t * D, (state.t + 1) * D);
  const row = model.weight(model.output).subarray(id * D, (id + 1) * D);
  const rows = [hidden, row, hidden.map((x, i) => x * row[i])];
  const shared = config.tie_embeddings === "all" ? text("logits.shared", { word: word(id) }) : "";
  return el("div", {},
    heading(text("logits.product", { word: word(id) })),
    matrix({ rows: ["h", "E", "h × E"], columns: D, at: (i, column) => rows[i][column], caption: text("logits.row", { id }), compact: true }),
    hint(text("logits.sum", { sum: number(sumOf(rows[2]) + (model.bias("output.bias")?.[id] ?? 0), 4) }), " ", shared),
  );
}

/** The likeliest words of a step, as they were recorded. */
function recordedWords({ root, run, text, state, about, config }) {
  const { written, words } = about.top[state.t];
  root.append(
    para(text("logits.chosen", { word: run.labels.written[state.t], share: percent(written) })),
    bars({ title: text("logits.title", { n: words.length, size: count(config.vocab_size) }), items: words.map(([label, value, logit]) => ({ label: visible(label), value, note: text("logits.logit", { logit: number(logit) }) })), largest: 1 }),
  );
}

/** The likeliest words with the logits divided by a temperature. */
function temperature({ text }, raw, word) {
  const body = el("div");
  const input = el("input", { type: "range", min: "0.1", max: "3", step: "0.1", value: "1", id: "temperature" });
  const draw = () => {
    const T = Number(input.value);
    const ids = largest(raw, 6);
    const top = raw[ids[0]];
    const total = sumOf(raw, (x) => Math.exp((x - top) / T));
    const items = ids.map((id) => ({ label: word(id), value: Math.exp((raw[id] - top) / T) / total }));
    body.replaceChildren(bars({ title: text("logits.at", { T: number(T, 1) }), items, largest: 1 }));
  };
  input.addEventListener("input", draw);
  draw();
  return group(el("label", { for: "temperature" }, text("logits.temperature")), " ", input, body);
}

/** The word that the model would write if it stopped after each decoder layer. */
function lens({ text, config, state, tensor, run }, model, word) {
  if (!model) return "";
  const { d_model: D, vocab_size: V } = config;
  const weight = model.weight(model.output);
  const last = config.norm === "pre" ? "sum" : "norm";
  const rows = range(config.decoder_layers).map((layer) => {
    let x = tensor(`decoder.${layer}.ffn.${last}`).data.slice(state.t * D, (state.t + 1) * D);
    if (config.norm === "pre") x = normalized(model, x);
    const scores = linear(x, 1, D, weight, V, model.bias("output.bias"));
    return el("li", {}, text("logits.after", { layer: layer + 1 }), " ", largest(scores, 5).map(word).join(" · "));
  });
  return group(heading(text("logits.lens")), el("ol", { class: "near" }, rows), hint(text("logits.written", { word: run.labels.written[state.t] })));
}

function normalized(model, x) {
  const mean = sumOf(x) / x.length;
  const deviation = Math.sqrt(sumOf(x, (v) => (v - mean) ** 2) / x.length + 1e-5);
  const [gain, bias] = [model.weight("decoder_norm.weight"), model.weight("decoder_norm.bias")];
  return x.map((v, i) => ((v - mean) / deviation) * gain[i] + bias[i]);
}

/** The film of all steps, and training beside decoding. */
function loop(view) {
  const { root, run, text, update, tensor, config, state, about, model } = view;
  const { read, written } = run.labels;
  const probability = (t) => (model ? tensor("probabilities").data[t * config.vocab_size + run.written[t]] : about.top[t].written);
  const rows = written.map((label, t) => {
    const p = probability(t);
    return el(
      "tr",
      { class: t === state.t ? "now" : null },
      el("th", { scope: "row" }, String(t + 1)),
      el("td", {}, read.slice(0, t + 1).map((word, i) => el("bdi", { class: i === t ? "new" : "old" }, word, " "))),
      el("td", {}, pushButton({ "data-focus": `loop-${t}`, click: () => update({ t }) }, bdi(label))),
      el("td", {}, percent(p)),
    );
  });
  const head = ["step", "reads", "writes", "probability"].map((key) => text(`loop.${key}`));
  root.append(
    scrolling(null, film(head, rows)),
    heading(text("loop.two")),
    el("div", { class: "beside" },
      group(el("h3", {}, text("loop.training")), para(text("loop.training.text", { n: written.length }))),
      group(el("h3", {}, text("loop.decoding")), para(text("loop.decoding.text", { n: written.length }))),
    ),
    hint(sameNumbers(view)),
    hint(text("loop.cache", { layers: config.decoder_layers, t: state.t + 1, old: state.t })),
  );
}

/** The largest difference between log-probabilities of all rows at once and of one step after the other. */
function sameNumbers({ run, model, tensor, config, text }) {
  if (!model) return "";
  const { data } = tensor("probabilities");
  const sentence = model.startDecoding(run.source);
  let cache;
  let worst = 0;
  run.read.forEach((id, t) => {
    const [logProbs, next] = model.decodeStep(id, sentence, cache);
    worst = Math.max(worst, Math.abs(Math.exp(logProbs[run.written[t]]) - data[t * config.vocab_size + run.written[t]]));
    cache = next;
  });
  return text("loop.same", { difference: tiny(worst) });
}

export const DECODING_STATIONS = [
  { key: "step", map: "decoder.cross", parts: ["target"], paper: "§3.1, §3.2.3", formula: ["attention"], code: "decoder_layer", side: "decoder", layers: true, steps: true, render: step },
  { key: "logits", map: "logits", parts: ["logits", "probabilities"], paper: "§3.4", formula: ["logits"], code: "output", steps: true, render: logits },
  { key: "loop", map: "output", parts: ["target.embedding"], paper: "§3, §3.1", formula: ["sequence"], code: "decode_step", steps: true, render: loop },
];
