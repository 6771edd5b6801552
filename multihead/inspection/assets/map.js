// Figure 1 of the paper as a small map: the attention that is shown is lit, and a click on another one opens it.

import { draw } from "./dom.js";

const BOX = { width: 104, height: 22 };
const COLUMNS = { encoder: 8, decoder: 148 };
const [WIDTH, HEIGHT, STEP] = [260, 224, 32];
const PARTS = [ // name, column, steps above the bottom, text; the first three are the tabs
  ["encoder", "encoder", 2, "Self-attention"],
  ["decoder", "decoder", 2, "Masked attention"],
  ["cross", "decoder", 3, "Cross-attention"],
  ["", "encoder", 3, "Feed forward"],
  ["", "decoder", 4, "Feed forward"],
  ["", "encoder", 0.6, "Source tokens"],
  ["", "decoder", 0.6, "Written so far"],
  ["", "decoder", 5.9, "Next token"],
];
const NAMES = { encoder: "self-attention of the encoder", decoder: "masked self-attention of the decoder", cross: "cross-attention" };

// Draw the map. `sizes` has the number of layers of each part; one without attention has none and cannot be opened.
export function drawMap({ sizes, lit, layer, open }) {
  const y = (step) => HEIGHT - 6 - BOX.height - step * STEP;
  const middle = (column) => COLUMNS[column] + BOX.width / 2;
  const map = draw("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "map",
    "aria-label": `Figure 1 of the paper, without its norms. Lit: ${NAMES[lit]}, layer ${layer + 1} of ${sizes[lit]}.`,
  });
  const add = (name, attributes, text) => {
    const node = draw(name, attributes);
    if (text) node.textContent = text;
    map.append(node);
    return node;
  };
  const names = [];
  for (const [column, top] of [["encoder", 3], ["decoder", 4]]) {
    const isHere = (lit === "encoder") === (column === "encoder");
    const n = column === "encoder" ? sizes.encoder : sizes.cross;
    const place = isHere ? `layer ${layer + 1} of ${n}` : n ? `× ${n}` : "";
    add("rect", { class: "stack", x: COLUMNS[column] - 6, y: y(top) - 8, width: BOX.width + 12, height: (top - 2) * STEP + BOX.height + 16, rx: 8 });
    names.push([COLUMNS[column] - 4, y(top) - 14, `${column === "encoder" ? "Encoder" : "Decoder"} ${place}`]);
  }
  const arrows = [
    ...[["encoder", 0.6, 2], ["encoder", 2, 3], ["decoder", 0.6, 2], ["decoder", 2, 3], ["decoder", 3, 4], ["decoder", 4, 5.9]]
      .map(([column, from, to]) => `M${middle(column)} ${y(from)}V${y(to) + BOX.height}`),
    `M${COLUMNS.encoder + BOX.width} ${y(3) + BOX.height / 2}H${COLUMNS.decoder}`, // memory: the keys and values of cross-attention
  ];
  for (const d of arrows) add("path", { class: "arrow", d });
  for (const [x, at, text] of names) add("text", { class: "stack-name", x, y: at }, text); // over the arrows
  for (const [name, column, step, text] of PARTS) {
    const opens = Boolean(sizes[name]);
    const box = add("g", { class: `box${name === lit ? " lit" : ""}${opens ? " opens" : ""}`, "data-part": name });
    box.append(draw("rect", { x: COLUMNS[column], y: y(step), width: BOX.width, height: BOX.height, rx: 5 }),
      draw("text", { x: middle(column), y: y(step) + 15, "text-anchor": "middle" }));
    box.lastChild.textContent = text;
    if (opens) box.addEventListener("click", () => open(name)); // the tabs do the same for the keyboard
  }
  return map;
}
