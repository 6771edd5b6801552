// Station 21: training on one pair of sentences, from the shifted target to the loss, its gradient and steps of Adam.

import { append, bdi, count, el, film, group, heading, hint, number, para, percent, pushButton, scrolling, tiny, uniforms, visible } from "./dom.js";
import { Graph, logSoftmax, range, sumOf } from "./engine.js";
import { bars, curves } from "./figures.js";
import { formula } from "./formula.js";
import { matrix } from "./matrix.js";
import { sourceIds } from "./model.js";
import { largest } from "./search.js";
import { END, START } from "./tokenizer.js";

const SMOOTHING = 0.1; // §5.4
const DROPOUT = 0.1;
const ADAM = { beta1: 0.9, beta2: 0.98, epsilon: 1e-9 }; // §5.3
const STEPS = 10; // of Adam, at each press of the button

/** Eq. (3). */
export const learningRate = (step, dModel, warmup) => dModel ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);

/**
 * The loss of §5.4 and its gradient: `logits` is T × V, `target` the T ids that should be written. `losses` are those of
 * each token, smoothed and plain; `gradient` (T × V) is p − q, of the sum of the smoothed losses by the logits.
 */
export function smoothedLoss(logits, target, V, smoothing = SMOOTHING) {
  const gradient = new Float64Array(logits.length);
  const losses = target.map((id, row) => {
    const logProbs = logSoftmax(logits.subarray(row * V, (row + 1) * V));
    let mean = 0;
    for (let i = 0; i < V; i++) {
      mean += logProbs[i] / V;
      gradient[row * V + i] = Math.exp(logProbs[i]) - smoothing / V;
    }
    gradient[row * V + id] -= 1 - smoothing;
    return { plain: -logProbs[id], smoothed: -(1 - smoothing) * logProbs[id] - smoothing * mean };
  });
  return { losses, gradient };
}

/** Adam on the output matrix alone (V × D). `loss` is the mean loss of the tokens with the matrix as it is now. */
export class OutputTraining {
  /** `hidden` is T × D, the vectors that the matrix turns into logits; `warmup` and `first` are those of eq. (3). */
  constructor(matrix, hidden, target, { D, V, bias = null, warmup = 4000, first = 1, smoothing = SMOOTHING }) {
    Object.assign(this, { hidden, target, D, V, bias, warmup, first, smoothing, done: 0 });
    this.matrix = new Float64Array(matrix);
    [this.m, this.v] = [new Float64Array(V * D), new Float64Array(V * D)];
    this.measure();
  }

  measure() {
    const { matrix, hidden, target, D, V, bias } = this;
    const logits = new Float64Array(target.length * V);
    for (let row = 0; row < target.length; row++)
      for (let word = 0; word < V; word++) {
        let sum = bias ? bias[word] : 0;
        for (let i = 0; i < D; i++) sum += hidden[row * D + i] * matrix[word * D + i];
        logits[row * V + word] = sum;
      }
    const { losses, gradient } = smoothedLoss(logits, target, V, this.smoothing);
    this.loss = sumOf(losses, ({ smoothed }) => smoothed) / losses.length;
    this.gradient = gradient;
  }

  /** Make a step, and return its learning rate. */
  step() {
    const { matrix, hidden, target, D, V, m, v, gradient } = this;
    const rate = learningRate(this.first + this.done, D, this.warmup);
    const t = ++this.done;
    const { beta1, beta2, epsilon } = ADAM;
    for (let word = 0; word < V; word++)
      for (let i = 0; i < D; i++) {
        let g = 0; // of the mean loss by this entry: the sum of (p − q) times what it was multiplied by
        for (let row = 0; row < target.length; row++) g += (gradient[row * V + word] * hidden[row * D + i]) / target.length;
        const at = word * D + i;
        m[at] = beta1 * m[at] + (1 - beta1) * g;
        v[at] = beta2 * v[at] + (1 - beta2) * g * g;
        matrix[at] -= (rate * (m[at] / (1 - beta1 ** t))) / (Math.sqrt(v[at] / (1 - beta2 ** t)) + epsilon);
      }
    this.measure();
    return rate;
  }
}

/** One pass over a pair of sentences with everything that training needs. */
export function forced(model, tokenizer, source, target, smoothing = SMOOTHING) {
  const written = [...tokenizer.encode(target), END];
  const read = [START, ...written.slice(0, -1)];
  const graph = new Graph();
  const logits = model.forward(sourceIds(tokenizer, source), read, graph);
  return { graph, read, written, ...smoothedLoss(logits, written, model.config.vocab_size, smoothing) };
}

function training(view) {
  const { root, run, text, state, app, model, tokenizer, about, config, found } = view;
  const target = state.y || found.text;
  const smoothing = about.training?.train.label_smoothing ?? SMOOTHING;
  const V = config.vocab_size;
  const { graph, read, written, losses, gradient } = forced(model, tokenizer, run.text, target, smoothing);
  const word = (id) => visible(tokenizer.readable(id));
  const t = Math.min(state.t, written.length - 1);
  const mean = (kind) => sumOf(losses, (loss) => loss[kind]) / losses.length;
  append(
    root,
    targetForm(view, target),
    hint(text("training.shifted")),
    table({ text, app }, written.map((id, row) => ({ read: word(read[row]), write: word(id), ...losses[row] })), t),
    para(text("training.mean", { smoothed: number(mean("smoothed"), 4), plain: number(mean("plain"), 4), smoothing: number(smoothing, 1) })),
    heading(text("training.gradient", { word: word(written[t]) })),
    hint(text("training.gradient.note")),
    gradientBars(view, gradient.subarray(t * V, (t + 1) * V), written[t], word),
    adam(view, { hidden: graph.get("hidden").data, written, loss: mean("smoothed"), smoothing }),
    dropout(view),
    batches(view),
    recipe(view),
  );
}

/** The reference translation, which a reader may change. */
function targetForm({ text, app }, target) {
  const input = el("input", { id: "target", type: "text", value: target, maxlength: "300", autocomplete: "off", spellcheck: "false", dir: "auto" });
  const form = el("form", { class: "sentence" }, el("label", { for: "target" }, text("training.target")), input, el("button", { type: "submit", class: "primary", id: "train-target" }, text("training.compute")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    app.update({ y: input.value.trim(), t: 0 });
  });
  return form;
}

function table({ text, app }, rows, t) {
  const head = ["step", "reads", "writes", "p", "plain", "smoothed"].map((key) => text(`training.${key}`));
  const body = rows.map(({ read, write, plain, smoothed }, row) =>
    el("tr", { class: row === t ? "now" : null },
      el("th", { scope: "row" }, String(row + 1)), el("td", {}, bdi(read)),
      el("td", {}, pushButton({ "data-focus": `train-${row}`, click: () => app.update({ t: row }) }, bdi(write))),
      [percent(Math.exp(-plain)), number(plain, 4), number(smoothed, 4)].map((value) => el("td", {}, value)),
    ),
  );
  return scrolling(null, film(head, body, "losses"));
}

/** The entries of p − q with the largest size; that of the right word is negative until the word is certain enough. */
function gradientBars({ text }, row, right, word) {
  const sizes = row.map(Math.abs);
  const items = largest(sizes, 10).map((id) => ({ label: word(id), value: row[id], note: id === right ? text("training.right") : null }));
  return bars({ title: text("training.entries"), items, format: (x) => number(x, 4) });
}

/** Steps of Adam on the output matrix, and the loss that falls. */
function adam({ text, app, model, config, about, run }, { hidden, written, loss, smoothing }) {
  const { d_model: D, vocab_size: V } = config;
  const warmup = about.training?.train.warmup ?? 4000;
  const key = JSON.stringify([run.text, written]);
  if (app.trained?.key !== key) app.trained = { key, task: null, points: [{ loss, rate: learningRate(warmup, D, warmup) }] };
  const { points } = app.trained;
  const more = () => {
    const bias = model.bias("output.bias");
    const task = (app.trained.task ??= new OutputTraining(model.weight(model.output), hidden, written, { D, V, bias, warmup, first: warmup, smoothing }));
    for (let i = 0; i < STEPS; i++) {
      const rate = task.step();
      points.push({ loss: task.loss, rate });
    }
    app.render();
  };
  const last = points.at(-1);
  return el("div", {},
    heading(text("training.adam")),
    formula("adam"),
    para(text("training.adam.note", { warmup: count(warmup) })),
    para(pushButton({ class: "primary", id: "train-steps", click: more }, text("training.steps", { n: STEPS }))),
    points.length > 1 ? curves({ title: text("training.falls"), x: range(points.length), lines: [{ label: text("training.smoothed"), y: (i) => points[i].loss }], xLabel: text("training.step") }) : null,
    el("p", { id: "train-loss" }, text("training.loss", { n: points.length - 1, loss: number(last.loss, 4), first: number(loss, 4), rate: number(last.rate, 5) })),
  );
}

/** §5.4: what dropout does to the first rows of the encoder's input; each step hits other entries. */
function dropout({ text, tensor, run, config }) {
  const next = uniforms(5);
  const { data } = tensor("source.input");
  const D = config.d_model;
  const kept = Float32Array.from(data, (x) => (next() < DROPOUT ? 0 : x / (1 - DROPOUT)));
  const rows = run.labels.source;
  const show = (values, key) => matrix({ rows, columns: D, at: (row, column) => values[row * D + column], caption: text(key), compact: true });
  const zeros = sumOf(kept, (x) => x === 0);
  return group(heading(text("training.dropout")), hint(text("training.dropout.note", { zeros, all: count(kept.length) })), el("div", { class: "pair" }, show(data, "matrix.input"), show(kept, "training.dropped")));
}

/** §5.1: sentences of like length in one batch need less padding. */
function batches({ text, tokenizer, about, run }) {
  const sentences = [run.text, ...(about.examples ?? [])].map((sentence) => sourceIds(tokenizer, sentence).length);
  if (sentences.length < 4) return null;
  const sorted = [...sentences].sort((a, b) => a - b);
  const half = Math.ceil(sorted.length / 2);
  const batch = (lengths, caption) => {
    const n = Math.max(...lengths);
    return matrix({ rows: lengths.map((_, i) => String(i + 1)), columns: range(n).map((i) => String(i + 1)), at: (row, column) => (column < lengths[row] ? 1 : -Infinity), caption, kind: "weights", compact: true });
  };
  const padding = (lengths) => sumOf(lengths, (n) => Math.max(...lengths) - n);
  const parts = [sorted.slice(0, half), sorted.slice(half)];
  return group(heading(text("training.batches")),
    hint(text("training.batches.note", { one: padding(sentences), two: padding(parts[0]) + padding(parts[1]) })),
    el("div", { class: "pair" }, batch(sentences, text("training.mixed")), ...parts.map((lengths, i) => batch(lengths, text("training.sorted", { i: i + 1 })))),
  );
}

/** The paper's training beside that of this model. */
function recipe({ text, about, config }) {
  const { train, data, steps, seconds, tokens, scores } = about.training ?? {};
  if (!train) return null;
  const known = (x) => (x ? count(x) : "–");
  const rows = {
    pairs: text("training.card"),
    pieces: known(config.vocab_size),
    batch: known(data.batch_tokens),
    steps: known(steps),
    tokens: known(tokens),
    time: seconds ? text("training.recipe.minutes", { minutes: number(seconds / 60, 0) }) : "–",
    optimizer: `${train.optimizer.replace(/^./, (letter) => letter.toUpperCase())}, β₁ ${train.beta1}, β₂ ${train.beta2}, ε ${tiny(train.eps)}`,
    warmup: known(train.warmup),
    dropout: String(config.dropout),
    smoothing: String(train.label_smoothing),
    averaged: String(train.average_checkpoints),
    bleu: scores.map(({ set, value }) => `${number(value, 1)} (${set})`).join(", ") || "–",
  };
  const body = Object.entries(rows).map(([key, own]) => el("tr", {}, el("th", { scope: "row" }, text(`training.recipe.${key}`)), el("td", {}, text(`training.paper.${key}`)), el("td", {}, own)));
  const head = ["recipe", "paper", "own"].map((key) => text(`training.${key}`));
  return group(heading(text("training.compare")), scrolling(text("training.compare"), film(head, body)), hint(text("training.seeds")));
}

export const TRAINING_STATIONS = [{ key: "training", needsModel: true, map: "probabilities", parts: [], paper: "§5", formula: ["smoothing", "schedule"], code: "smoothed_loss", steps: false, render: training }];
