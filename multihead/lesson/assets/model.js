// The model that the page carries: its weights, its tokenizer, and everything about one sentence.

import { Graph, Transformer } from "./engine.js";
import { END, START, Tokenizer } from "./tokenizer.js";
import { beamSearch } from "./search.js";
import { byId, visible } from "./dom.js";

/** The JSON of a block of the page, or null. */
export function block(id) {
  const node = byId(id);
  return node ? JSON.parse(node.textContent) : null;
}

/** The bytes of a compressed block of the page, or null. */
export async function unpack(id) {
  const node = byId(id);
  if (!node) return null;
  const text = atob(node.textContent);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** Float32 arrays by name, from one buffer; `index` lists {name, shape, dtype, offset, size}. */
export function readTensors(index, buffer) {
  const table = halfTable();
  return new Map(
    index.map(({ name, dtype, offset, size }) => {
      if (dtype === "F32") return [name, new Float32Array(buffer, offset, size)];
      const halves = new Uint16Array(buffer, offset, size);
      const values = new Float32Array(size);
      for (let i = 0; i < size; i++) values[i] = table[halves[i]];
      return [name, values];
    }),
  );
}

/** The value of each of the 65,536 float16 numbers. */
function halfTable() {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits >> 15 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 0) table[bits] = sign * fraction * 2 ** -24;
    else if (exponent === 31) table[bits] = fraction ? NaN : sign * Infinity;
    else table[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return table;
}

/** The tensors of the one sentence of a page that carries no weights, as a run. */
export async function readTrace(about) {
  const tensors = readTensors(about.trace, await unpack("trace"));
  const graph = new Graph();
  for (const { name, shape } of about.trace) graph.add(name, "recorded", shape, tensors.get(name));
  const show = (labels) => labels.map(visible);
  const read = show(about.labels.read);
  return { text: about.sentence, graph, source: about.labels.source, read, written: read, labels: { source: show(about.labels.source), read, written: [...read.slice(1), "</s>"] } };
}

/** What the worker needs to make the same model. */
export async function loadParts() {
  const about = block("about");
  const tokenizer = about.has_tokenizer ? JSON.parse(new TextDecoder().decode(await unpack("tokenizer"))) : null;
  const weights = about.weights ? await unpack("weights") : null;
  return { config: about.config, index: about.weights, weights, tokenizer };
}

export function build({ config, index, weights, tokenizer }) {
  return {
    model: weights && new Transformer(config, readTensors(index, weights)),
    tokenizer: tokenizer && new Tokenizer(tokenizer),
  };
}

/** Ids of a sentence as the model reads it: its pieces and the end symbol. */
export function sourceIds(tokenizer, text) {
  return [...tokenizer.encode(text), END];
}

/** Search, and the result as text. */
export function translate(model, tokenizer, text, options = {}) {
  const found = beamSearch(model, sourceIds(tokenizer, text), options);
  const best = found.hypotheses[0] ?? { ids: [], score: -Infinity, logProb: -Infinity };
  return { ...found, ids: best.ids, score: best.score, logProb: best.logProb, text: tokenizer.decode(best.ids).trim() };
}

/** Every tensor of a sentence and its translation, all target positions at once, with the labels of rows and columns. */
export function analyze(model, tokenizer, text, targetIds, change) {
  const source = sourceIds(tokenizer, text);
  const graph = new Graph();
  const read = [START, ...targetIds];
  model.forward(source, read, graph, change);
  return { text, graph, source, read, written: [...targetIds, END], labels: labels(tokenizer, source, read) };
}

export function labels(tokenizer, source, read) {
  const show = (id) => visible(tokenizer.readable(id));
  const readLabels = read.map(show);
  return { source: source.map(show), read: readLabels, written: [...readLabels.slice(1), show(END)] };
}
