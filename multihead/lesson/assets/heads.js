// Station 19: every head at a glance, with what it seems to do in this sentence.

import { colorOf, el, hint, percent, pushButton } from "./dom.js";
import { range, sumOf } from "./engine.js";
import { moduleOf, partOf, partSize, sides } from "./attention.js";
import { matrix } from "./matrix.js";

function heads(view) {
  const { root, run, text, config, state, update, sublayer, model } = view;
  const { side } = state;
  const [queries, columns] = sides(view);
  const rows = side === "cross" ? run.labels.written : queries;
  const layers = side === "encoder" ? config.encoder_layers : config.decoder_layers;
  const stack = side === "encoder" ? "encoder" : "decoder";
  const kind = side === "cross" ? "cross" : "self";
  const isBySize = state.by === "size" && Boolean(model);
  const weightsOf = (name, head) => (isBySize ? bySize(view, name, head) : reader(run.graph.get(`${name}.weights`), head, side === "decoder"));
  const missing = range(layers).map((layer) => `${stack}.${layer}.${kind}.weights`).find((name) => !run.graph.nodes.has(name));
  if (missing) return root.append(hint(text("trace.missing", { name: missing })));
  const grid = el("div", { class: "heads", style: { "--columns": String(config.n_heads) } });
  for (let layer = 0; layer < layers; layer++)
    for (let head = 0; head < config.n_heads; head++) {
      const at = weightsOf(`${stack}.${layer}.${kind}`, head);
      const role = describe(at, rows.length, columns.length, side);
      const pressed = layer === state.layer && head === state.head;
      grid.append(
        pushButton({ class: pressed ? "tile on" : "tile", "data-focus": `tile-${layer}-${head}`, pressed, click: () => update({ layer, head }) },
          el("span", { class: "name" }, text("heads.name", { layer: layer + 1, head: head + 1 })),
          thumbnail(at, rows.length, columns.length),
          el("span", { class: "note" }, [text(`role.${role.name}`), " ", percent(role.share)]),
        ),
      );
    }
  const chosen = weightsOf(sublayer, state.head);
  root.append(
    grid,
    matrix({ rows, columns, at: (row, column) => Math.max(0, chosen(row, column)), isHidden: (row, column) => chosen(row, column) === -Infinity, caption: text("heads.one", { layer: state.layer + 1, head: state.head + 1 }), kind: "weights" }),
    hint(text(isBySize ? "heads.sizes" : "heads.caution")),
    roles(view),
  );
}

/** What the heads of this side do on average over many sentences, as measured when the page was written. */
function roles({ text, about, state }) {
  const own = about.roles?.heads.filter(({ side }) => side === state.side) ?? [];
  if (!own.length) return "";
  const names = Object.keys(own[0].shares);
  const label = ({ layer, head }) => text("heads.name", { layer: layer + 1, head: head + 1 });
  return el("div", {},
    matrix({ rows: own.map(label), columns: [...names.map((name) => text(`role.${name}`)), text("role.peak")], at: (row, column) => (column < names.length ? own[row].shares[names[column]] : own[row].peak), caption: text("heads.many", { n: about.roles.sentences }), kind: "weights" }),
    hint(text("heads.many.note")),
  );
}

/** Weights of a head; what the mask forbids is -Infinity, so that it is hatched. */
function reader({ data, shape }, head, isMasked) {
  return (row, column) => (isMasked && column > row ? -Infinity : data[(head * shape[1] + row) * shape[2] + column]);
}

/** Shares of a row when each weight counts times the length of the value that it moves, through Wᴼ. */
function bySize({ run, model, config, state }, name, head) {
  const weight = reader(run.graph.get(`${name}.weights`), head, state.side === "decoder");
  const { data, shape: [H, n, width] } = run.graph.get(`${name}.v`);
  const matrix = model.weight(`${moduleOf(name)}.w_o.weight`);
  const sizes = range(n).map((key) => partSize(data.subarray((head * n + key) * width, (head * n + key + 1) * width), matrix, head, H, config.d_model));
  const totals = new Map();
  return (row, column) => {
    if (weight(row, column) === -Infinity) return -Infinity;
    if (!totals.has(row)) totals.set(row, sumOf(sizes, (size, key) => Math.max(0, weight(row, key)) * size));
    return (weight(row, column) * sizes[column]) / totals.get(row);
  };
}

/** The simplest pattern that holds most of the weight, on average over the rows. */
function describe(at, n, m, side) {
  const average = (where) => {
    let total = 0;
    for (let row = 0; row < n; row++) {
      const column = where(row);
      const weight = column >= 0 && column < m ? at(row, column) : 0;
      total += Number.isFinite(weight) ? weight : 0;
    }
    return total / n;
  };
  const patterns = { same: (row) => row, previous: (row) => row - 1, next: (row) => row + 1, end: () => (side === "decoder" ? 0 : m - 1) };
  const shares = Object.entries(patterns).map(([name, where]) => ({ name: side === "decoder" && name === "end" ? "start" : name, share: average(where) }));
  const usable = side === "cross" ? shares.filter(({ name }) => name === "end") : side === "decoder" ? shares.filter(({ name }) => name !== "next") : shares;
  const best = usable.sort((a, b) => b.share - a.share)[0];
  return best.share > 0.4 ? best : { name: "mixed", share: sharpness(at, n, m) };
}

/** The mean of the largest weight of each row. */
function sharpness(at, n, m) {
  let total = 0;
  for (let row = 0; row < n; row++) {
    let top = 0;
    for (let column = 0; column < m; column++) top = Math.max(top, at(row, column));
    total += top;
  }
  return total / n;
}

function thumbnail(at, n, m) {
  const canvas = el("canvas", { width: m, height: n, "aria-hidden": "true" });
  requestAnimationFrame(() => {
    const [ink, hatch] = ["--weight", "--hatch"].map(colorOf);
    const pen = canvas.getContext("2d");
    for (let row = 0; row < n; row++)
      for (let column = 0; column < m; column++) {
        const weight = at(row, column);
        const isMasked = weight === -Infinity;
        pen.globalAlpha = isMasked ? ((row + column) % 2 ? 0.35 : 0.1) : weight;
        pen.fillStyle = isMasked ? hatch : ink;
        pen.fillRect(column, row, 1, 1);
      }
  });
  return canvas;
}

export const HEAD_STATIONS = [{ key: "heads", map: partOf, parts: [], paper: "§3.2.2, appendix", formula: ["multiHead"], code: "attention_weights", sides: ["encoder", "decoder", "cross"], layers: true, heads: true, by: true, render: heads }];
