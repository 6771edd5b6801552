// Station 20: what if a part were missing? Each knob re-runs the model, and says what to look for.

import { bdi, el, group, heading, hint, number, para, pushButton } from "./dom.js";
import { range } from "./engine.js";
import { partOf, sides } from "./attention.js";
import { bars } from "./figures.js";

/** Sub-layers of the model by their names in the graph. */
export function sublayers({ encoder_layers: n, decoder_layers: m }) {
  const layers = (count, stack, names) => range(count).flatMap((layer) => names.map((name) => `${stack}.${layer}.${name}`));
  return [...layers(n, "encoder", ["self", "ffn"]), ...layers(m, "decoder", ["self", "cross", "ffn"])];
}

const attentionOf = (config) => sublayers(config).filter((name) => !name.endsWith(".ffn"));
const some = (names, pattern) => new Set(names.filter((name) => pattern.test(name)));

/** What can be switched off: the changes that each knob makes. */
export const KNOBS = {
  head: ({ sublayer, state }) => ({ heads: new Set([`${sublayer}:${state.head}`]) }),
  heads: ({ sublayer, config }) => ({ heads: new Set(range(config.n_heads).map((head) => `${sublayer}:${head}`)) }),
  encoder: ({ config }) => ({ attention: some(attentionOf(config), /^encoder/) }),
  decoder: ({ config }) => ({ attention: some(attentionOf(config), /^decoder\.\d+\.self/) }),
  cross: ({ config }) => ({ attention: some(attentionOf(config), /cross$/) }),
  memory: () => ({ memory: "mean" }),
  positions: () => ({ positions: false }),
  scale: () => ({ scale: false }),
  mask: () => ({ mask: false }),
  residual: ({ sublayer }) => ({ residual: new Set([sublayer]) }),
  norm: ({ sublayer }) => ({ norm: new Set([sublayer]) }),
  ffn: ({ sublayer }) => ({ feedForward: new Set([sublayer.replace(/\w+$/, "ffn")]) }),
};

function whatIf(view) {
  const { root, text, state, app, run } = view;
  const result = el("div", { class: "outcome", "aria-live": "polite" });
  const buttons = Object.keys(KNOBS).map((name) =>
    pushButton({ "data-focus": `knob-${name}`, pressed: app.knob === name && app.knobRun === run, click: () => turn(view, name, result, buttons) }, text(`knob.${name}`)),
  );
  root.append(
    hint(text("whatif.where", { place: text(`place.${state.side}`, { layer: state.layer + 1 }), head: state.head + 1 })),
    heading(text("whatif.off")),
    el("div", { class: "choices" }, buttons),
    several(view, result, buttons),
    result,
    weightEditor(view, result),
    hint(text("whatif.forced"), " ", pushButton({ class: "link", click: () => app.go(app.stations.findIndex(({ key }) => key === "beam")) }, text("station.beam.title"))),
    importance(view),
    longer(view),
  );
  if (app.knob && app.knobRun === run) turn(view, app.knob, result, buttons);
}

/** Any number of heads at once; a reader may go on to another sub-layer and switch off more. */
function several(view, result, knobs) {
  const { app, text, config, sublayer, run } = view;
  const off = () => (app.off?.run === run ? app.off : (app.off = { run, heads: new Set() })).heads;
  const buttons = range(config.n_heads).map((head) => {
    const name = `${sublayer}:${head}`;
    const button = pushButton({ "data-focus": `off-${head}`, pressed: off().has(name), click: () => {
      const heads = off();
      if (!heads.delete(name)) heads.add(name);
      button.setAttribute("aria-pressed", String(heads.has(name)));
      app.knob = null;
      knobs.forEach((knob) => knob.setAttribute("aria-pressed", "false"));
      compare(view, { heads: new Set(heads) }, result, text("whatif.several.look", { names: [...heads].map((one) => headName(text, one)).join(", ") || text("whatif.nothing") }));
    } }, String(head + 1));
    return button;
  });
  return el("fieldset", { class: "choice" }, el("legend", {}, text("whatif.several")), buttons);
}

/** "encoder.0.self:2" in words. */
function headName(text, name) {
  const [sublayer, head] = name.split(":");
  const [stack, layer, kind] = sublayer.split(".");
  return text("whatif.head", { side: text(`side.${sideOf(stack, kind)}`), layer: Number(layer) + 1, head: Number(head) + 1 });
}

const sideOf = (stack, kind) => (stack === "encoder" ? "encoder" : kind === "self" ? "decoder" : "cross");

function turn(view, name, node, buttons) {
  const { app, run, text } = view;
  [app.knob, app.knobRun, app.off] = [name, run, null];
  document.querySelectorAll("[data-focus^=off]").forEach((button) => button.setAttribute("aria-pressed", "false"));
  buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.focus === `knob-${name}`)));
  compare(view, KNOBS[name](view), node, text(`knob.${name}.look`));
}

/** Show both translations, and how much less likely the old one has become. */
async function compare(view, change, node, look) {
  const { text, found, app, run, state } = view;
  const request = { text: run.text, options: { beam: state.beam, alpha: state.alpha }, source: run.source, target: run.written.slice(0, -1), change };
  const asked = (app.comparison = {});
  node.setAttribute("aria-busy", "true");
  const { after, difference } = await app.runner.run("outcome", request);
  if (app.comparison !== asked) return; // another part was switched off meanwhile
  node.removeAttribute("aria-busy");
  const old = new Set(found.text.split(/\s+/));
  const words = after.split(/\s+/).map((word) => el(old.has(word) ? "span" : "mark", {}, bdi(word), " "));
  node.replaceChildren(
    el("dl", {},
      el("dt", {}, text("whatif.before")), el("dd", {}, bdi(found.text)),
      el("dt", {}, text("whatif.after")), el("dd", { class: "after" }, after ? words : text("whatif.nothing")),
      el("dt", {}, text("whatif.difference")), el("dd", {}, number(difference, 3)),
    ),
    hint(look),
  );
  if (change.positions !== false) return;
  const order = await app.runner.run("reversed", request);
  if (app.comparison === asked) node.append(para(text("whatif.reversed"), " ", bdi(order.text), " ", text("whatif.scores", { own: number(order.own, 6), reversed: number(order.score, 6) })));
}

/** Type a weight into the attention matrix of the chosen head. */
function weightEditor(view, node) {
  const { text, run, state, sublayer } = view;
  const [queries, keys] = sides(view);
  const pick = (id, labels) => el("select", { id }, labels.map((label, i) => el("option", { value: i }, `${i + 1} ${label}`)));
  const [query, key] = [pick("query", queries), pick("key", keys)];
  const weight = el("input", { id: "weight", type: "number", min: "0", max: "1", step: "0.1", value: "1" });
  const labeled = [query, key, weight].map((input) => el("label", {}, text(`whatif.${input.id}`), " ", input));
  const set = (weightOf) => {
    const row = keys.map((_, column) => ({ head: state.head, query: Number(query.value), key: column, weight: weightOf(column) }));
    compare(view, { weights: new Map([[sublayer, row]]) }, node, text("whatif.weight.look"));
  };
  const apply = () => {
    const typed = Math.min(1, Math.max(0, Number(weight.value) || 0));
    const { data, shape } = run.graph.get(`${sublayer}.weights`);
    const at = (column) => data[(state.head * shape[1] + Number(query.value)) * shape[2] + column];
    const rest = 1 - at(Number(key.value));
    // The other weights of the row share what is left, in proportion, so that the row still adds up to 1.
    set((column) => (column === Number(key.value) ? typed : rest > 1e-9 ? (at(column) * (1 - typed)) / rest : (1 - typed) / Math.max(1, keys.length - 1)));
  };
  const isVisible = (column) => state.side !== "decoder" || column <= Number(query.value);
  const even = () => set((column) => (isVisible(column) ? 1 / keys.filter((_, i) => isVisible(i)).length : 0));
  const buttons = [pushButton({ id: "apply-weight", class: "primary", click: apply }, text("whatif.apply")), pushButton({ id: "uniform", class: "link", click: even }, text("whatif.uniform"))];
  return group(heading(text("whatif.type")), el("p", { class: "knobs" }, labeled, buttons));
}

/** The importance of every head, measured by switching each one off. */
function importance(view) {
  const { text, app, run, config, update } = view;
  const body = el("div");
  const button = pushButton({ id: "importance", class: "primary" }, text("whatif.importance"));
  const draw = (rows) => {
    const items = [...rows].sort((a, b) => a.change - b.change).map(({ name, change }) => {
      const [sublayer, head] = name.split(":");
      const [stack, layer, kind] = sublayer.split(".");
      return { label: headName(text, name), value: change, on: () => update({ side: sideOf(stack, kind), layer: Number(layer), head: Number(head) }) };
    });
    body.replaceChildren(bars({ title: text("whatif.map"), items, format: (x) => number(x, 3) }));
  };
  button.addEventListener("click", async () => {
    const names = attentionOf(config).flatMap((sublayer) => range(config.n_heads).map((head) => `${sublayer}:${head}`));
    const progress = el("progress", { max: "1", value: "0" });
    const cancel = pushButton({ class: "link", click: () => { app.runner.cancel(); body.replaceChildren(); } }, text("whatif.cancel"));
    body.replaceChildren(progress, " ", cancel);
    const request = { source: run.source, target: run.written.slice(0, -1), names };
    const rows = await app.runner.run("heads", request, (share) => (progress.value = share));
    app.importance = { of: run, rows };
    draw(rows);
  });
  if (app.importance?.of === run) draw(app.importance.rows);
  return group(heading(text("whatif.every")), button, body);
}

/** A sentence longer than any in training. */
function longer(view) {
  const { text, run, app, state } = view;
  const output = el("p", { class: "after" });
  const count = el("input", { type: "number", id: "copies", min: "1", max: "6", value: "4" });
  const button = pushButton({ class: "primary", id: "repeat", click: async () => {
    const copies = Math.min(6, Math.max(1, Number(count.value) || 1));
    const request = { text: Array(copies).fill(run.text).join(" "), options: { beam: Math.min(2, state.beam), alpha: state.alpha } };
    output.textContent = "…";
    output.textContent = (await app.runner.run("translate", request)).text;
  } }, text("whatif.repeat"));
  return group(heading(text("whatif.longer")), el("p", { class: "knobs" }, el("label", {}, text("whatif.copies"), " ", count), button), output, hint(text("whatif.longer.look")));
}

export const WHAT_IF_STATIONS = [{ key: "whatif", needsModel: true, map: partOf, parts: [], paper: "§4, §6.2", formula: [], code: "attention_weights", sides: ["encoder", "decoder", "cross"], layers: true, heads: true, render: whatIf }];

