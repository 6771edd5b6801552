// Station 18: the tree of the beam search, ranked again under any length penalty, with words that can be forced.

import { append, bdi, el, group, heading, hint, number, para, pushButton, svg, visible } from "./dom.js";
import { MAX_EXTRA, rerank } from "./search.js";
import { translate } from "./model.js";

const COLUMN = 136;
const ROW = 30;

function beam(view) {
  const { root, text, state, update, app } = view;
  const result = el("div");
  const width = slider("beam-width", text("beam.width"), { min: 1, max: 8, step: 1, value: state.beam }, (value) => update({ beam: value }));
  const found = app.forced?.of === app.run ? app.forced.found : view.found;
  const alpha = slider("beam-alpha", text("beam.alpha"), { min: 0, max: 2, step: 0.1, value: state.alpha }, (value) => ranking(view, found, value, result));
  append(
    root,
    el("div", { class: "knobs" }, width, alpha),
    app.forced?.of === app.run ? para(text("beam.forced"), " ", bdi(found.text), " ", pushButton({ class: "link", click: () => free(app) }, text("beam.free"))) : null,
    result,
    el("div", { class: "scroll tree" }, tree(view, found)),
    hint(text("beam.legend")),
    hint(text("beam.limits", { n: view.run.source.length, limit: view.run.source.length + MAX_EXTRA, steps: Math.max(...found.nodes.map((node) => node.depth)) })),
  );
  ranking(view, found, state.alpha, result);
}

function slider(id, label, { min, max, step, value }, listen) {
  const input = el("input", { type: "range", id, min, max, step, value });
  const output = el("output", { for: id }, number(value, step < 1 ? 1 : 0));
  input.addEventListener("input", () => {
    output.textContent = number(Number(input.value), step < 1 ? 1 : 0);
    if (id === "beam-alpha") listen(Number(input.value));
  });
  input.addEventListener("change", () => listen(Number(input.value)));
  return group(el("label", { for: id }, label), " ", input, " ", output);
}

/** Finished hypotheses under a length penalty, with the formula written out. */
function ranking({ text, tokenizer }, found, alpha, node) {
  const ranked = rerank(found.nodes, alpha).slice(0, 8);
  const rows = ranked.map(({ node: id, score }, place) => {
    const leaf = found.nodes[id];
    return el(
      "li",
      { class: place ? null : "best" },
      bdi(tokenizer.decode(path(found.nodes, leaf).map((step) => step.token)).trim()),
      el("span", { class: "note" }, ` ${number(leaf.logProb, 3)} ÷ ((5 + ${leaf.depth}) ÷ 6)`, el("sup", {}, number(alpha, 1)), ` = ${number(score, 4)}`),
    );
  });
  node.replaceChildren(heading(text("beam.ranking", { alpha: number(alpha, 1) })), el("ol", { class: "ranking" }, rows));
}

export function path(nodes, leaf) {
  const steps = [];
  for (let node = leaf; node.parent !== null; node = nodes[node.parent]) steps.unshift(node);
  return steps;
}

/** The tree from left to right: a column for each length, a row for each hypothesis. */
function tree(view, found) {
  const { tokenizer, text } = view;
  const columns = new Map();
  for (const node of found.nodes) columns.set(node.depth, [...(columns.get(node.depth) ?? []), node]);
  const place = new Map();
  for (const nodes of columns.values()) nodes.forEach((node, row) => place.set(node.id, [20 + node.depth * COLUMN, 24 + row * ROW]));
  const best = found.hypotheses[0] ? new Set(path(found.nodes, found.nodes[found.hypotheses[0].node]).map((node) => node.id)) : new Set();
  const edges = found.nodes.filter((node) => node.parent !== null).map((node) => {
    const [[x1, y1], [x2, y2]] = [place.get(node.parent), place.get(node.id)];
    return svg("path", { class: `edge ${node.state} ${best.has(node.id) ? "best" : ""}`, d: `M${x1 + 104} ${y1} C${x1 + 122} ${y1} ${x2 - 20} ${y2} ${x2 - 4} ${y2}` });
  });
  const labels = found.nodes.map((node) => {
    const [x, y] = place.get(node.id);
    const word = node.parent === null ? "<s>" : visible(tokenizer.readable(node.token));
    const act = () => force(view, found, node);
    const attributes = { class: `node ${node.state} ${best.has(node.id) ? "best" : ""}`, transform: `translate(${x} ${y})`, tabindex: "0", role: "button", "data-node": node.id, "aria-label": text("beam.node", { word, state: text(`beam.${node.state}`), logprob: number(node.logProb, 3) }), on: { click: act, keydown: (event) => { if (event.key === "Enter") act(); } } };
    return svg("g", attributes, svg("rect", { x: -4, y: -13, width: 108, height: 26, rx: 6 }), svg("text", { y: 4 }, word.length > 10 ? `${word.slice(0, 9)}…` : word), svg("text", { x: 100, y: 4, class: "logprob", "text-anchor": "end" }, number(node.logProb, 1)));
  });
  const depth = Math.max(...columns.keys());
  const rows = Math.max(...[...columns.values()].map((nodes) => nodes.length));
  const [w, h] = [40 + (depth + 1) * COLUMN, 20 + rows * ROW];
  return svg("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: "group", "aria-label": text("beam.tree") }, edges, labels);
}

/** Search again with the words up to a node given. */
function force({ app, state }, found, node) {
  const prefix = path(found.nodes, node).map((step) => step.token);
  app.forced = { of: app.run, found: translate(app.model, app.tokenizer, app.run.text, { beam: state.beam, alpha: state.alpha, prefix }) };
  app.render();
}

function free(app) {
  app.forced = null;
  app.render();
}

export const BEAM_STATIONS = [{ key: "beam", needsModel: true, map: "output", parts: ["output"], paper: "§6.1", formula: ["beam"], code: "length_penalty", render: beam }];
