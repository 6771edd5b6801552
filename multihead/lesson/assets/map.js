// Figure 1 of the paper as a live map: the part that the step is about is lit, and every part is a link to its station.

import { svg } from "./dom.js";

const WIDTH = 324;
const BOX = { width: 118, height: 26 };
const LEFT = 14;
const RIGHT = 188;

/** Boxes of Figure 1, from the bottom up: part, column, height above the bottom, key of its text. */
const BOXES = [
  ["source", LEFT, 0, "map.inputs"],
  ["source.embedding", LEFT, 1, "map.embedding"],
  ["source.positions", LEFT, 2, "map.positions"],
  ["encoder.self", LEFT, 3.6, "map.self"],
  ["encoder.self.norm", LEFT, 4.6, "map.norm"],
  ["encoder.ffn", LEFT, 5.9, "map.ffn"],
  ["encoder.ffn.norm", LEFT, 6.9, "map.norm"],
  ["memory", LEFT, 8.3, "map.memory"],
  ["target", RIGHT, 0, "map.outputs"],
  ["target.embedding", RIGHT, 1, "map.embedding"],
  ["target.positions", RIGHT, 2, "map.positions"],
  ["decoder.self", RIGHT, 3.6, "map.masked"],
  ["decoder.self.norm", RIGHT, 4.6, "map.norm"],
  ["decoder.cross", RIGHT, 5.9, "map.cross"],
  ["decoder.cross.norm", RIGHT, 6.9, "map.norm"],
  ["decoder.ffn", RIGHT, 8.2, "map.ffn"],
  ["decoder.ffn.norm", RIGHT, 9.2, "map.norm"],
  ["logits", RIGHT, 10.7, "map.linear"],
  ["probabilities", RIGHT, 11.7, "map.softmax"],
  ["output", RIGHT, 12.7, "map.next"],
];
const STEP = 34;
const HEIGHT = 13.9 * STEP;
const y = (level) => HEIGHT - (level + 1) * STEP;

/** Draw the map. `lit` is the part of the current step, `links` maps parts to a function that opens their station. */
export function drawMap({ text, config, lit, layer, open }) {
  const [encoder, decoder] = [config.encoder_layers, config.decoder_layers];
  const stack = (x, from, to, n, label) =>
    svg(
      "g",
      { class: "stack" },
      svg("rect", { x: x - 12, y: y(to) - 6, width: BOX.width + 24, height: (to - from) * STEP + BOX.height + 12, rx: 10 }),
      svg("text", { x: x === LEFT ? x - 12 : x + BOX.width + 12, y: y(to) - 11, "text-anchor": x === LEFT ? "start" : "end" }, `${label} × ${n}`),
    );
  const boxes = BOXES.map(([part, x, level, key]) => box({ part, x, y: y(level), width: BOX.width, label: text(key === "map.norm" && config.norm === "pre" ? "map.prenorm" : key), isLit: lit === part, text, open }));
  const arrows = [LEFT, RIGHT].flatMap((x) => {
    const levels = BOXES.filter((box) => box[1] === x).map((box) => box[2]);
    return levels.slice(1).map((level, i) => line(x + BOX.width / 2, y(levels[i]), x + BOX.width / 2, y(level) + BOX.height));
  });
  const bridge = svg("path", {
    class: "arrow",
    d: `M${LEFT + BOX.width} ${y(8.3) + 13} H${(LEFT + BOX.width + RIGHT) / 2} V${y(5.9) + 13} H${RIGHT}`,
    "marker-end": "url(#tip)",
  });
  const residuals = [
    [LEFT, 2, 4.6],
    [LEFT, 4.6, 6.9],
    [RIGHT, 2, 4.6],
    [RIGHT, 4.6, 6.9],
    [RIGHT, 6.9, 9.2],
  ].map(([x, from, to]) => {
    const edge = x === LEFT ? x - 6 : x + BOX.width + 6;
    const side = x === LEFT ? x : x + BOX.width;
    const middle = x + BOX.width / 2;
    return svg("path", { class: "residual", d: `M${middle} ${y(from) - 3} H${edge} V${y(to) + 13} H${side}`, "marker-end": "url(#tip)" });
  });
  const tip = svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0 L8 4 L0 8 z", class: "tip" }));
  const place = BOXES.find(([part]) => part === lit);
  const middle = (LEFT + BOX.width + RIGHT) / 2; // between the stacks
  const words = text("map.layer", { layer: layer + 1 }).split(" ");
  const note = layer === null || !place ? [] : words.map((word, i) => svg("text", { class: "layer between", x: middle, y: y(place[2]) + 24 + 11 * i, "text-anchor": "middle" }, word));
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": text("map.title") },
    svg("defs", {}, tip),
    stack(LEFT, 3.6, 6.9, encoder, text("map.encoder")),
    stack(RIGHT, 3.6, 9.2, decoder, text("map.decoder")),
    residuals,
    arrows,
    bridge,
    boxes,
    note,
  );
}

/** A part of a figure that opens its station. */
function box({ part, x, y: top, width, label, isLit, text, open }) {
  const attributes = { class: isLit ? "box lit" : "box", tabindex: "0", role: "link", "data-part": part, "aria-label": text("map.open", { part: label }), "aria-current": isLit ? "step" : null, on: { click: () => open(part), keydown: (event) => event.key === "Enter" && open(part) } };
  return svg("g", attributes, svg("rect", { x, y: top, width, height: BOX.height, rx: 6 }), svg("text", { x: x + width / 2, y: top + 17, "text-anchor": "middle" }, label));
}

const STEPS = ["projections", "products", "scores", "mask", "softmax", "mix", "concat"];

/** Figure 2: one attention sub-layer from the bottom up; `lit` is the key of the station. Null where no step of it is shown. */
export function drawAttention({ text, lit, open }) {
  if (!STEPS.includes(lit)) return null;
  const [x, width, height] = [LEFT, 190, STEPS.length * STEP + 22];
  const top = (step) => height - (step + 1) * STEP;
  const middle = x + width / 2 - 24;
  const boxes = STEPS.map((part, step) => box({ part, x, y: top(step), width, label: text(`figure2.${part}`), isLit: part === lit, text, open }));
  const arrows = STEPS.slice(1).map((_, step) => line(middle, top(step), middle, top(step + 1) + BOX.height));
  const values = svg("path", { class: "arrow", d: `M${x + width} ${top(0) + 13} H${x + width + 26} V${top(5) + 13} H${x + width + 2}`, "marker-end": "url(#tip)" });
  const label = svg("text", { class: "layer", x: x + width + 32, y: top(3) + 17 }, "V");
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "group", "aria-label": text("figure2.title") }, svg("text", { class: "layer", x, y: 12 }, text("figure2.title")), arrows, values, label, boxes);
}

const line = (x1, y1, x2, y2) => svg("path", { class: "arrow", d: `M${x1} ${y1} L${x2} ${y2 + 2}`, "marker-end": "url(#tip)" });
