// The Transformer of "Attention Is All You Need", §3 in the order of §3, with the names of model/transformer.py.
//
// Every tensor of a pass is recorded by name in a Graph, with the operation and the operands it was made from, so that
// provenance.js can say where any number comes from. Numbers are stored in float32 and summed in float64.
//
// Shapes: S source length, T target length, D d_model, F d_ff, H heads, K d_k or d_v, V vocabulary.

const LAYER_NORM_EPSILON = 1e-5;

export class Graph {
  constructor() {
    this.nodes = new Map();
  }

  add(name, op, shape, data, operands = {}) {
    this.nodes.set(name, { name, op, shape, data, ...operands });
    return data;
  }

  get(name) {
    const node = this.nodes.get(name);
    if (!node) throw new Error(`no tensor is called '${name}'`);
    return node;
  }
}

// ---------------------------------------------------------------------------------------------------------- operations

/** y = x Wᵀ + b for x of `rows` × `width` and W of `n` × `width`; four outputs at a time, which is twice as fast as one. */
export function linear(x, rows, width, weight, n, bias = null) {
  const y = new Float32Array(rows * n);
  const own = new Float64Array(width);
  const dot = (at) => {
    let sum = 0;
    for (let i = 0; i < width; i++) sum += own[i] * weight[at + i];
    return sum;
  };
  for (let row = 0; row < rows; row++) {
    own.set(x.subarray(row * width, (row + 1) * width));
    let out = 0;
    for (; out + 3 < n; out += 4) {
      const first = out * width;
      let [a, b, c, d] = [0, 0, 0, 0];
      for (let i = 0, at = first; i < width; i++, at++) {
        a += own[i] * weight[at];
        b += own[i] * weight[at + width];
        c += own[i] * weight[at + 2 * width];
        d += own[i] * weight[at + 3 * width];
      }
      y.set([a, b, c, d], row * n + out);
    }
    for (; out < n; out++) y[row * n + out] = dot(out * width);
    if (bias) for (let i = 0; i < n; i++) y[row * n + i] += bias[i];
  }
  return y;
}

/** Rearrange rows × (H K) into H × rows × K. */
export function splitHeads(x, rows, heads, width) {
  const y = new Float32Array(x.length);
  for (let row = 0; row < rows; row++)
    for (let head = 0; head < heads; head++)
      for (let k = 0; k < width; k++)
        y[(head * rows + row) * width + k] = x[row * heads * width + head * width + k];
  return y;
}

/** Rearrange H × rows × K into rows × (H K). */
export function concatHeads(x, rows, heads, width) {
  const y = new Float32Array(x.length);
  for (let head = 0; head < heads; head++)
    for (let row = 0; row < rows; row++)
      for (let k = 0; k < width; k++)
        y[row * heads * width + head * width + k] = x[(head * rows + row) * width + k];
  return y;
}

/** softmax of each row of `width` numbers; masked entries are -Infinity and get exactly 0. */
export function softmaxRows(x, width) {
  const y = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    let largest = -Infinity;
    for (let i = 0; i < width; i++) largest = Math.max(largest, x[start + i]);
    let total = 0;
    for (let i = 0; i < width; i++) total += Math.exp(x[start + i] - largest);
    for (let i = 0; i < width; i++) y[start + i] = Math.exp(x[start + i] - largest) / total;
  }
  return y;
}

/** §3.5: sine in the even dimensions, cosine in the odd ones. */
export function sinusoid(position, dimension, dModel) {
  const angle = position / 10000 ** ((dimension - (dimension % 2)) / dModel);
  return dimension % 2 ? Math.cos(angle) : Math.sin(angle);
}

/** The error function, by the series of its integral or by a continued fraction: exact to float32. */
function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.5) {
    let term = size;
    let sum = size;
    for (let n = 1; n < 60; n++) {
      term *= (-size * size) / n;
      sum += term / (2 * n + 1);
    }
    return Math.sign(x) * sum * (2 / Math.sqrt(Math.PI));
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-size * size) / ((size + fraction) * Math.sqrt(Math.PI)));
}

export const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  swish: (x) => x / (1 + Math.exp(-x)),
};

// --------------------------------------------------------------------------------------------------------------- model

/**
 * What a pass may leave out or change, for "what if". Sub-layers are named as in the graph: "encoder.0.self".
 *   heads: Set of "encoder.0.self:2"    attention: Set of sub-layers     feedForward, residual, norm: Sets of sub-layers
 *   memory: "mean" replaces every vector of the memory by their mean
 *   positions, scale, mask: false switches them off    visible: how many source positions are not padding    weights: Map of "decoder.1.cross" to [{head, query, key, weight}]
 */
export const NO_CHANGE = {};

/** 0, 1, … n − 1. */
export const range = (n) => [...Array(n).keys()];

/** The sum of `f` over `values`. */
export const sumOf = (values, f = (x) => x) => values.reduce((sum, x, i) => sum + f(x, i), 0);

const isIn = (set, name) => Boolean(set && set.has(name));

export class Transformer {
  /** `config` is the "model" section of config.json; `weights` maps names of model.safetensors to Float32Arrays. */
  constructor(config, weights) {
    this.config = config;
    this.weights = weights;
    const tie = config.tie_embeddings;
    this.targetEmbedding = tie === "all" ? "source_embedding.weight" : "target_embedding.weight";
    this.output = tie === "none" ? "output.weight" : this.targetEmbedding;
  }

  weight(name) {
    const found = this.weights.get(name);
    if (!found) throw new Error(`the model has no weight '${name}'`);
    return found;
  }

  bias(name) {
    return this.weights.get(name) ?? null;
  }

  // §3.4 Embeddings, times √d_model; §3.5 positional encoding

  embed(side, table, ids, graph, change, start = 0) {
    const { d_model: D, max_len: longest } = this.config;
    if (start + ids.length > longest)
      throw new Error(`${start + ids.length} tokens are more than the ${longest} positions of this model`);
    const matrix = this.weight(table);
    const embedding = new Float32Array(ids.length * D);
    ids.forEach((id, row) => embedding.set(matrix.subarray(id * D, (id + 1) * D), row * D));
    graph.add(`${side}.embedding`, "lookup", [ids.length, D], embedding, { table, ids });
    const scale = Math.sqrt(D);
    const scaled = graph.add(`${side}.scaled`, "scale", [ids.length, D], embedding.map((x) => x * scale), {
      x: `${side}.embedding`,
      factor: scale,
    });
    const positions = graph.add(`${side}.positions`, "positions", [ids.length, D], this.positions(ids.length, start, change));
    const sum = scaled.map((x, i) => x + positions[i]);
    return graph.add(`${side}.input`, "add", [ids.length, D], sum, { parts: [`${side}.scaled`, `${side}.positions`] });
  }

  positions(n, start, change) {
    const { d_model: D, positions: kind } = this.config;
    if (kind === "none" || change.positions === false) return new Float32Array(n * D);
    if (kind === "learned") return this.weight("positions").slice(start * D, (start + n) * D);
    return Float32Array.from({ length: n * D }, (_, i) => sinusoid(start + Math.floor(i / D), i % D, D));
  }

  // §3.2.2 Multi-head attention

  /** Project `x` into H × rows × K by one of w_q, w_k, w_v. */
  project(name, module, letter, x, rows, input, graph) {
    const { d_model: D, n_heads: H, d_k, d_v } = this.config;
    const K = letter === "v" ? d_v : d_k;
    const weight = `${module}.w_${letter}.weight`;
    const bias = `${module}.w_${letter}.bias`;
    const y = splitHeads(linear(x, rows, D, this.weight(weight), H * K, this.bias(bias)), rows, H, K);
    return graph.add(`${name}.${letter}`, "heads", [H, rows, K], y, { x: input, weight, bias: this.bias(bias) && bias });
  }

  keysValues(name, module, x, rows, input, graph) {
    return ["k", "v"].map((letter) => this.project(name, module, letter, x, rows, input, graph));
  }

  /** §3.2.1, eq. (1), head by head; then concatenation and w_o. `isVisible(query, key)` is the mask. */
  attend(name, module, x, rows, input, [k, v], n, isVisible, graph, change) {
    const { d_model: D, n_heads: H, d_k: K, d_v } = this.config;
    const q = this.project(name, module, "q", x, rows, input, graph);
    const products = this.products(name, module, q, rows, k, n, graph);
    const scaled = this.config.attention_score === "scaled" && change.scale !== false;
    const divisor = scaled ? Math.sqrt(K) : 1;
    const scores = graph.add(`${name}.scores`, "scale", [H, rows, n], products.map((x) => x / divisor), {
      x: `${name}.products`,
      factor: 1 / divisor,
    });
    const visible = (query, key) => change.mask === false || isVisible(query, key);
    const masked = scores.map((x, i) => (visible(Math.floor(i / n) % rows, i % n) ? x : -Infinity));
    graph.add(`${name}.masked`, "mask", [H, rows, n], masked, { x: `${name}.scores` });
    const weights = softmaxRows(masked, n);
    for (const { head, query, key, weight } of change.weights?.get(name) ?? []) {
      if (query < rows && key < n) weights[(head * rows + query) * n + key] = weight;
    }
    graph.add(`${name}.weights`, "softmax", [H, rows, n], weights, { x: `${name}.masked` });
    const heads = new Float32Array(H * rows * d_v);
    for (let head = 0; head < H; head++) {
      if (isIn(change.heads, `${name}:${head}`)) continue;
      for (let row = 0; row < rows; row++)
        for (let i = 0; i < d_v; i++) {
          let sum = 0;
          for (let key = 0; key < n; key++) sum += weights[(head * rows + row) * n + key] * v[(head * n + key) * d_v + i];
          heads[(head * rows + row) * d_v + i] = sum;
        }
    }
    const off = range(H).filter((head) => isIn(change.heads, `${name}:${head}`));
    graph.add(`${name}.heads`, "mix", [H, rows, d_v], heads, { weights: `${name}.weights`, values: `${name}.v`, off });
    const concat = concatHeads(heads, rows, H, d_v);
    graph.add(`${name}.concat`, "concat", [rows, H * d_v], concat, { x: `${name}.heads` });
    return this.linearNode(`${name}.output`, `${module}.w_o`, concat, rows, H * d_v, D, `${name}.concat`, graph);
  }

  /** How well each key fits each query: q·k, or Bahdanau's u·tanh(q + k). */
  products(name, module, q, rows, k, n, graph) {
    const { n_heads: H, d_k: K, attention_score: kind } = this.config;
    const u = kind === "additive" ? this.weight(`${module}.score.u`) : null;
    const products = new Float32Array(H * rows * n);
    for (let head = 0; head < H; head++)
      for (let row = 0; row < rows; row++)
        for (let key = 0; key < n; key++) {
          const a = (head * rows + row) * K;
          const b = (head * n + key) * K;
          let sum = 0;
          for (let i = 0; i < K; i++) sum += u ? u[head * K + i] * Math.tanh(q[a + i] + k[b + i]) : q[a + i] * k[b + i];
          products[(head * rows + row) * n + key] = sum;
        }
    const operands = { q: `${name}.q`, k: `${name}.k`, u: u && `${module}.score.u` };
    return graph.add(`${name}.products`, u ? "additive" : "products", [H, rows, n], products, operands);
  }

  linearNode(name, module, x, rows, width, n, input, graph) {
    const bias = this.bias(`${module}.bias`) && `${module}.bias`;
    const y = linear(x, rows, width, this.weight(`${module}.weight`), n, bias && this.weight(bias));
    return graph.add(name, "linear", [rows, n], y, { x: input, weight: `${module}.weight`, bias });
  }

  // §3.3 Position-wise feed-forward networks, eq. (2)

  feedForward(name, module, x, rows, input, graph) {
    const { d_model: D, d_ff: F, activation } = this.config;
    const inner = this.linearNode(`${name}.inner`, `${module}.w_1`, x, rows, D, F, input, graph);
    const active = inner.map(ACTIVATIONS[activation]);
    graph.add(`${name}.active`, "activation", [rows, F], active, { x: `${name}.inner`, activation });
    return this.linearNode(`${name}.output`, `${module}.w_2`, active, rows, F, D, `${name}.active`, graph);
  }

  // §3.1 Residual connections and layer normalization

  layerNorm(name, module, x, rows, input, graph) {
    const D = this.config.d_model;
    const weight = this.weight(`${module}.weight`);
    const bias = this.weight(`${module}.bias`);
    const y = new Float32Array(rows * D);
    const means = new Float32Array(rows);
    const deviations = new Float32Array(rows);
    for (let row = 0; row < rows; row++) {
      let mean = 0;
      for (let i = 0; i < D; i++) mean += x[row * D + i] / D;
      let variance = 0;
      for (let i = 0; i < D; i++) variance += (x[row * D + i] - mean) ** 2 / D;
      const deviation = Math.sqrt(variance + LAYER_NORM_EPSILON);
      for (let i = 0; i < D; i++) y[row * D + i] = ((x[row * D + i] - mean) / deviation) * weight[i] + bias[i];
      means[row] = mean;
      deviations[row] = deviation;
    }
    graph.add(`${name}.mean`, "mean", [rows], means, { x: input });
    graph.add(`${name}.deviation`, "deviation", [rows], deviations, { x: input, mean: `${name}.mean` });
    const operands = { x: input, mean: `${name}.mean`, deviation: `${name}.deviation` };
    return graph.add(name, "norm", [rows, D], y, { ...operands, weight: `${module}.weight`, bias: `${module}.bias` });
  }

  /** LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)) with pre-norm. Returns the result and its name. */
  residual(name, module, x, rows, input, graph, change, sublayer) {
    const isPre = this.config.norm === "pre";
    const isOff = isIn(change.norm, name);
    const normalize = (values, from) =>
      isOff ? [values, from] : [this.layerNorm(`${name}.norm`, `${module}.norm`, values, rows, from, graph), `${name}.norm`];
    const [y, yName] = isPre ? normalize(x, input) : [x, input];
    const output = sublayer(y, yName);
    const parts = isIn(change.residual, name) ? [`${name}.output`] : [input, `${name}.output`];
    const sum = isIn(change.residual, name) ? output : x.map((value, i) => value + output[i]);
    graph.add(`${name}.sum`, "add", [rows, this.config.d_model], sum, { parts });
    return isPre ? [sum, `${name}.sum`] : normalize(sum, `${name}.sum`);
  }

  /** Zeros in place of a sub-layer that is switched off. */
  silence(name, rows, graph) {
    const D = this.config.d_model;
    return graph.add(`${name}.output`, "zero", [rows, D], new Float32Array(rows * D));
  }

  attentionSublayer(name, module, rows, kv, n, isVisible, graph, change) {
    return (y, input) => {
      if (isIn(change.attention, name)) return this.silence(name, rows, graph);
      const keysValues = kv ?? this.keysValues(name, module, y, rows, input, graph);
      return this.attend(name, module, y, rows, input, keysValues, n, isVisible, graph, change);
    };
  }

  feedForwardSublayer(name, module, rows, graph, change) {
    return (y, input) =>
      isIn(change.feedForward, name) ? this.silence(name, rows, graph) : this.feedForward(name, module, y, rows, input, graph);
  }

  /** The encoder's output ("memory") for ids that end in the end symbol. */
  encode(ids, graph = new Graph(), change = NO_CHANGE) {
    const S = ids.length;
    let x = this.embed("source", "source_embedding.weight", ids, graph, change);
    let input = "source.input";
    const isNoPadding = (_, key) => key < (change.visible ?? S);
    for (let layer = 0; layer < this.config.encoder_layers; layer++) {
      const [name, module] = [`encoder.${layer}`, `encoder.${layer}`];
      const attention = this.attentionSublayer(`${name}.self`, `${module}.self_attention`, S, null, S, isNoPadding, graph, change);
      [x, input] = this.residual(`${name}.self`, `${module}.residual_1`, x, S, input, graph, change, attention);
      const feedForward = this.feedForwardSublayer(`${name}.ffn`, `${module}.feed_forward`, S, graph, change);
      [x, input] = this.residual(`${name}.ffn`, `${module}.residual_2`, x, S, input, graph, change, feedForward);
    }
    const memory = this.finish("memory", "encoder_norm", x, S, input, graph, change);
    return change.memory === "mean" ? averaged(memory, S, this.config.d_model) : memory;
  }

  /** The last LayerNorm of a pre-norm stack; a post-norm stack has none. */
  finish(name, module, x, rows, input, graph, change) {
    if (this.config.norm === "pre" && !isIn(change.norm, name))
      return this.layerNorm(name, module, x, rows, input, graph);
    return graph.add(name, "add", [rows, this.config.d_model], x, { parts: [input] });
  }

  /** Logits of the token after each of `targetIds` (T V), which begin with the start symbol: all rows at once. */
  forward(sourceIds, targetIds, graph = new Graph(), change = NO_CHANGE) {
    const memory = this.encode(sourceIds, graph, change);
    const kv = this.memoryKeysValues(memory, sourceIds.length, graph);
    return this.decode(targetIds, kv, sourceIds.length, graph, change);
  }

  /** Cross-attention's keys and values of every decoder layer, projected once per sentence. */
  memoryKeysValues(memory, S, graph) {
    return range(this.config.decoder_layers).map((layer) =>
      this.keysValues(`decoder.${layer}.cross`, `decoder.${layer}.cross_attention`, memory, S, "memory", graph),
    );
  }

  decode(targetIds, memoryKv, S, graph = new Graph(), change = NO_CHANGE) {
    const T = targetIds.length;
    const x = this.embed("target", this.targetEmbedding, targetIds, graph, change);
    const isCausal = (query, key) => key <= query; // no position sees a later one
    return this.decoderStack(x, T, memoryKv, S, graph, change, () => [null, T, isCausal]);
  }

  /** Run the decoder layers and the map to logits; `selfAttention(layer, y)` gives keys and values, count and mask. */
  decoderStack(x, T, memoryKv, S, graph, change, selfAttention) {
    const { d_model: D, vocab_size: V, decoder_layers: N } = this.config;
    let input = "target.input";
    for (let layer = 0; layer < N; layer++) {
      const name = `decoder.${layer}`;
      const attend = (y, from) => {
        const [kv, n, isVisible] = selfAttention(layer, y, from);
        return this.attentionSublayer(`${name}.self`, `${name}.self_attention`, T, kv, n, isVisible, graph, change)(y, from);
      };
      [x, input] = this.residual(`${name}.self`, `${name}.residual_1`, x, T, input, graph, change, attend);
      const cross = this.attentionSublayer(`${name}.cross`, `${name}.cross_attention`, T, memoryKv[layer], S, () => true, graph, change);
      [x, input] = this.residual(`${name}.cross`, `${name}.residual_2`, x, T, input, graph, change, cross);
      const feedForward = this.feedForwardSublayer(`${name}.ffn`, `${name}.feed_forward`, T, graph, change);
      [x, input] = this.residual(`${name}.ffn`, `${name}.residual_3`, x, T, input, graph, change, feedForward);
    }
    const hidden = this.finish("hidden", "decoder_norm", x, T, input, graph, change);
    const bias = this.bias("output.bias") && "output.bias";
    const logits = linear(hidden, T, D, this.weight(this.output), V, bias && this.weight(bias));
    graph.add("logits", "linear", [T, V], logits, { x: "hidden", weight: this.output, bias });
    graph.add("probabilities", "softmax", [T, V], softmaxRows(logits, V), { x: "logits" });
    return logits;
  }

  // Decoding step by step, with the keys and values of earlier steps kept

  startDecoding(sourceIds, change = NO_CHANGE) {
    const graph = new Graph();
    const memory = this.encode(sourceIds, graph, change);
    return { kv: this.memoryKeysValues(memory, sourceIds.length, graph), S: sourceIds.length, change };
  }

  /** Log-probabilities (V) of the token after `id`, and the cache of the next step; `cache` is that of the steps before. */
  decodeStep(id, sentence, cache = { n: 0, layers: [] }) {
    const { n_heads: H, d_k, d_v, decoder_layers: N } = this.config;
    const graph = new Graph();
    const x = this.embed("target", this.targetEmbedding, [id], graph, sentence.change, cache.n);
    const next = { n: cache.n + 1, layers: new Array(N) };
    const selfAttention = (layer, y, from) => {
      const name = `decoder.${layer}`;
      const [k, v] = this.keysValues(`${name}.self`, `${name}.self_attention`, y, 1, from, graph);
      const before = cache.layers[layer];
      const kv = before ? [append(before[0], k, H, cache.n, d_k), append(before[1], v, H, cache.n, d_v)] : [k, v];
      next.layers[layer] = kv;
      return [kv, next.n, () => true]; // everything that is cached comes before
    };
    const logits = this.decoderStack(x, 1, sentence.kv, sentence.S, graph, sentence.change, selfAttention);
    return [logSoftmax(logits), next];
  }
}

/** Every row replaced by the mean of all rows: what one vector for the whole sentence leaves of it. */
function averaged(x, rows, width) {
  const y = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) for (let row = 0; row < rows; row++) y[row * width + (i % width)] += x[i] / rows;
  return y;
}

/** H × n × K with one more row for each head. */
function append(kept, added, heads, n, width) {
  const joined = new Float32Array(heads * (n + 1) * width);
  for (let head = 0; head < heads; head++) {
    joined.set(kept.subarray(head * n * width, (head + 1) * n * width), head * (n + 1) * width);
    joined.set(added.subarray(head * width, (head + 1) * width), (head * (n + 1) + n) * width);
  }
  return joined;
}

export function logSoftmax(logits) {
  let largest = -Infinity;
  for (const x of logits) largest = Math.max(largest, x);
  let total = 0;
  for (const x of logits) total += Math.exp(x - largest);
  const normalizer = largest + Math.log(total);
  const scores = new Float64Array(logits);
  for (let i = 0; i < scores.length; i++) scores[i] -= normalizer;
  return scores;
}
