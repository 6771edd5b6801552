// Where a number comes from: the terms whose products of value and factor add up to it.
//
// A term is {tensor, index, value, factor}, and {weight: {tensor, index}} names the parameter that the factor is, if it
// is one. A constant has no tensor: {tensor: null, index: [], value: 1, factor}.

import { range } from "./engine.js";

/** Position of an index in a row-major array. */
export function offset(shape, index) {
  if (index.length !== shape.length) throw new Error(`an index of ${shape.length} numbers is needed`);
  return index.reduce((at, i, axis) => {
    if (!Number.isInteger(i) || i < 0 || i >= shape[axis]) throw new Error(`index ${index} is outside of ${shape}`);
    return at * shape[axis] + i;
  }, 0);
}

const constant = (factor) => ({ tensor: null, index: [], value: 1, factor });

/** Terms of a cell; `graph` holds the tensors of a pass, `model` the weights. Masked and parameter cells have none. */
export function terms(graph, model, name, index) {
  const node = graph.get(name);
  const at = offset(node.shape, index);
  const read = (tensor, position) => {
    const { shape, data } = graph.get(tensor);
    return { tensor, index: position, value: data[offset(shape, position)] };
  };
  const context = { graph, model, node, index, at, read, weight: (tensor) => model.weight(tensor) };
  return OPERATIONS[node.op](context);
}

const OPERATIONS = {
  lookup: ({ node, index: [row, i], weight, model }) => {
    const position = [node.ids[row], i];
    const value = weight(node.table)[offset([model.config.vocab_size, model.config.d_model], position)];
    return [{ tensor: node.table, index: position, value, factor: 1 }];
  },
  scale: ({ node, index, read }) => [{ ...read(node.x, index), factor: node.factor }],
  positions: ({ node, at }) => [constant(node.data[at])],
  zero: () => [],
  recorded: () => [], // a page that carries numbers instead of weights
  add: ({ node, index, read }) => node.parts.map((part) => ({ ...read(part, index), factor: 1 })),
  concat: ({ node, index: [row, column], read, graph }) => {
    const width = graph.get(node.x).shape[2];
    return [{ ...read(node.x, [Math.floor(column / width), row, column % width]), factor: 1 }];
  },
  linear: ({ node, index: [row, out], ...context }) => linearTerms(context, node, row, out),
  heads: ({ node, index: [head, row, k], ...context }) => linearTerms(context, node, row, head * node.shape[2] + k),
  products: ({ node, index: [head, query, key], read, graph }) => {
    const { shape, data } = graph.get(node.k);
    return range(shape[2]).map((i) => ({
      ...read(node.q, [head, query, i]),
      factor: data[offset(shape, [head, key, i])],
      other: { tensor: node.k, index: [head, key, i] },
    }));
  },
  additive: ({ node, index: [head, query, key], read, graph, weight }) => {
    const width = graph.get(node.q).shape[2];
    return range(width).map((i) => {
      const sum = read(node.q, [head, query, i]).value + read(node.k, [head, key, i]).value;
      const value = weight(node.u)[head * width + i];
      return { tensor: node.u, index: [head, i], value, factor: Math.tanh(sum) };
    });
  },
  mask: ({ node, index, at, read }) =>
    node.data[at] === -Infinity ? [constant(-Infinity)] : [{ ...read(node.x, index), factor: 1 }],
  softmax: ({ node, index, at, read }) => {
    // The cell is e^score over the sum of the row: one term, whose factor is that ratio over the score.
    const term = read(node.x, index);
    const isUsable = Number.isFinite(term.value) && Math.abs(term.value) > 1e-6;
    return isUsable ? [{ ...term, factor: node.data[at] / term.value }] : [constant(node.data[at])];
  },
  mix: ({ node, index: [head, row, i], read, graph }) => {
    if (node.off.includes(head)) return [];
    const { shape, data } = graph.get(node.weights);
    return range(shape[2]).map((key) => ({
      ...read(node.values, [head, key, i]),
      factor: data[offset(shape, [head, row, key])],
      other: { tensor: node.weights, index: [head, row, key] },
    }));
  },
  activation: ({ node, index, at, read }) => {
    const term = read(node.x, index);
    return term.value === 0 ? [constant(node.data[at])] : [{ ...term, factor: node.data[at] / term.value }];
  },
  mean: ({ node, index: [row], read, graph }) => {
    const width = graph.get(node.x).shape[1];
    return range(width).map((i) => ({ ...read(node.x, [row, i]), factor: 1 / width }));
  },
  deviation: ({ node, index: [row], at, read, graph }) => {
    // σ² = mean of (x − μ)² + ε, so σ = Σ x (x − μ) / (D σ) + ε / σ.
    const width = graph.get(node.x).shape[1];
    const mean = read(node.mean, [row]).value;
    const deviation = node.data[at];
    const parts = range(width).map((i) => {
      const term = read(node.x, [row, i]);
      return { ...term, factor: (term.value - mean) / (width * deviation) };
    });
    return [...parts, constant(1e-5 / deviation)];
  },
  norm: ({ node, index: [row, i], read, graph, weight }) => {
    const deviation = read(node.deviation, [row]).value;
    const factor = weight(node.weight)[i] / deviation;
    const named = { weight: { tensor: node.weight, index: [i] } };
    // A sum in front of the norm is looked through: its parts are what a reader wants to follow.
    const { op, parts } = graph.get(node.x);
    const inputs = op === "add" ? parts : [node.x];
    return [
      ...inputs.map((input) => ({ ...read(input, [row, i]), factor, ...named })),
      { ...read(node.mean, [row]), factor: -factor, ...named },
      { tensor: node.bias, index: [i], value: weight(node.bias)[i], factor: 1 },
    ];
  },
};

function linearTerms({ read, graph, weight }, node, row, out) {
  const width = graph.get(node.x).shape[1];
  const matrix = weight(node.weight);
  const found = range(width).map((i) => ({
    ...read(node.x, [row, i]),
    factor: matrix[out * width + i],
    weight: { tensor: node.weight, index: [out, i] },
  }));
  if (node.bias) found.push({ tensor: node.bias, index: [out], value: weight(node.bias)[out], factor: 1 });
  return found;
}

