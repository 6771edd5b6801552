// Station 20: what if a part were missing? Each knob re-runs the model, and says what to look for.

import { el, group, heading, hint, number, para, pushButton } from "./dom.js";
import { range } from "./engine.js";
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
    pushButton({ "data-focus": `knob-${name}`, "aria-pressed": String(app.knob === name && app.knobRun === run), on: { click: () => turn(view, name, result, buttons) } }, text(`knob.${name}`)),
  );
  root.append(
    hint(text("whatif.where", { place: text(`place.${state.side}`, { layer: state.layer + 1 }), head: state.head + 1 })),
    heading(text("whatif.off")),
    el("div", { class: "choices" }, buttons),
    result,
    weightEditor(view, result),
    importance(view),
    longer(view),
  );
  if (app.knob && app.knobRun === run) turn(view, app.knob, result, buttons);
}

function turn(view, name, node, buttons) {
  const { app, run, text } = view;
  [app.knob, app.knobRun] = [name, run];
  buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(Object.keys(KNOBS)[i] === name)));
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
  const words = after.split(/\s+/).map((word) => el(old.has(word) ? "span" : "mark", {}, el("bdi", {}, word), " "));
  node.replaceChildren(
    el("dl", {},
      el("dt", {}, text("whatif.before")), el("dd", {}, el("bdi", {}, found.text)),
      el("dt", {}, text("whatif.after")), el("dd", { class: "after" }, after ? words : text("whatif.nothing")),
      el("dt", {}, text("whatif.difference")), el("dd", {}, number(difference, 3)),
    ),
    hint(look),
  );
  if (change.positions !== false) return;
  const order = await app.runner.run("reversed", request);
  if (app.comparison === asked) node.append(para(text("whatif.reversed"), " ", el("bdi", {}, order.text), " ", text("whatif.scores", { own: number(order.own, 6), reversed: number(order.score, 6) })));
}

/** Type a weight into the attention matrix of the chosen head. */
function weightEditor(view, node) {
  const { text, run, state, sublayer } = view;
  const [queries, keys] = state.side === "encoder" ? [run.labels.source, run.labels.source] : state.side === "decoder" ? [run.labels.read, run.labels.read] : [run.labels.read, run.labels.source];
  const pick = (id, labels) => el("select", { id, "aria-label": text(`whatif.${id}`) }, labels.map((label, i) => el("option", { value: i }, `${i + 1} ${label}`)));
  const [query, key] = [pick("query", queries), pick("key", keys)];
  const weight = el("input", { id: "weight", type: "number", min: "0", max: "1", step: "0.1", value: "1", "aria-label": text("whatif.weight") });
  const apply = () => {
    const typed = Math.min(1, Math.max(0, Number(weight.value) || 0));
    const { data, shape } = run.graph.get(`${sublayer}.weights`);
    const at = (column) => data[(state.head * shape[1] + Number(query.value)) * shape[2] + column];
    const rest = 1 - at(Number(key.value));
    // The other weights of the row share what is left, in proportion, so that the row still adds up to 1.
    const row = keys.map((_, column) => ({ head: state.head, query: Number(query.value), key: column, weight: column === Number(key.value) ? typed : rest > 1e-9 ? (at(column) * (1 - typed)) / rest : (1 - typed) / Math.max(1, keys.length - 1) }));
    compare(view, { weights: new Map([[sublayer, row]]) }, node, text("whatif.weight.look"));
  };
  return group(heading(text("whatif.type")), el("p", { class: "knobs" }, query, key, weight, pushButton({ id: "apply-weight", class: "primary", on: { click: apply } }, text("whatif.apply"))));
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
      const side = stack === "encoder" ? "encoder" : kind === "self" ? "decoder" : "cross";
      const label = text("whatif.head", { side: text(`side.${side}`), layer: Number(layer) + 1, head: Number(head) + 1 });
      return { label, value: change, on: () => update({ side, layer: Number(layer), head: Number(head) }) };
    });
    body.replaceChildren(bars({ title: text("whatif.map"), items, format: (x) => number(x, 3) }));
  };
  button.addEventListener("click", async () => {
    const names = attentionOf(config).flatMap((sublayer) => range(config.n_heads).map((head) => `${sublayer}:${head}`));
    const progress = el("progress", { max: "1", value: "0" });
    const cancel = pushButton({ class: "link", on: { click: () => { app.runner.cancel(); body.replaceChildren(); } } }, text("whatif.cancel"));
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
  const count = el("input", { type: "number", id: "copies", min: "1", max: "6", value: "4", "aria-label": text("whatif.copies") });
  const button = pushButton({ class: "primary", id: "repeat", on: { click: async () => {
    const copies = Math.min(6, Math.max(1, Number(count.value) || 1));
    const request = { text: Array(copies).fill(run.text).join(" "), options: { beam: Math.min(2, state.beam), alpha: state.alpha } };
    output.textContent = "…";
    output.textContent = (await app.runner.run("translate", request)).text;
  } } }, text("whatif.repeat"));
  return group(heading(text("whatif.longer")), el("p", { class: "knobs" }, count, button), output, hint(text("whatif.longer.look")));
}

export const WHAT_IF_STATIONS = [{ key: "whatif", needsModel: true, map: ({ side }) => ({ encoder: "encoder.self", decoder: "decoder.self", cross: "decoder.cross" })[side], parts: [], paper: "§4, §6.2", formula: [], code: "attention_weights", sides: ["encoder", "decoder", "cross"], layers: true, heads: true, render: whatIf }];

