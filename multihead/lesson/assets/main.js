// The page: its state, the link that restores it, and the parts around a station.

import { announce, bdi, byId, el, group, heading, hint, makeTexts, number, para, pushButton, replace, withCode, words } from "./dom.js";
import { range, sumOf } from "./engine.js";
import { formula } from "./formula.js";
import { sides } from "./attention.js";
import { drawAttention, drawMap } from "./map.js";
import { extreme, matrix } from "./matrix.js";
import { analyze, block, build, loadParts, readTrace, translate } from "./model.js";
import { offset, terms } from "./provenance.js";
import { STATIONS } from "./stations.js";
import { LABS, scalingExperiment } from "./labs.js";
import { beamSearch, rerank } from "./search.js";
import { readToyLink, renderToy, toyLink } from "./toy.js";
import { OutputTraining, forced } from "./training.js";
import { resample } from "./trees.js";
import { Runner, serveJobs } from "./worker.js";

const MODES = ["lesson", "toy", "labs"];
const DEPTHS = ["story", "numbers", "every"];
const SIDES = ["encoder", "decoder", "cross"];
const MAX_TRAIL = 12;
const MAX_TERMS = 8;

/** What the page shows. Everything here is in the link, so that a link restores a view. */
const DEFAULTS = { mode: "lesson", s: 0, side: "encoder", layer: 0, head: 0, t: 0, row: 2, by: "weight", depth: "numbers", q: "", y: "", beam: 4, alpha: 0.6, lab: 0 };

class App {
  constructor() {
    this.about = block("about");
    this.text = words.text = makeTexts(block("strings"));
    this.state = { ...DEFAULTS, alpha: this.about.alpha ?? DEFAULTS.alpha, q: this.about.sentence ?? "" };
    if (!this.about.config) this.state.mode = "toy";
    this.trail = []; // cells that were followed, the first one first
    this.run = null;
  }

  async start() {
    document.documentElement.lang = this.about.language ?? "en";
    this.readLink();
    this.render();
    window.addEventListener("hashchange", () => {
      if (location.hash.slice(1) === this.link()) return;
      this.readLink();
      this.update({}).catch((error) => this.fail(error));
    });
    document.addEventListener("keydown", (event) => this.onKey(event));
    document.addEventListener("fullscreenchange", () => document.fullscreenElement || !isPresenting() || this.present());
    if (!this.about.config) return;
    if (this.about.trace) return this.startRecorded();
    const parts = await loadParts();
    this.built = build(parts);
    Object.assign(this, this.built);
    if (this.model) this.runner = new Runner(byId("script").textContent, parts, this.built);
    await this.update({ q: this.state.q });
  }

  /** A page about a large model: one sentence, whose numbers were recorded. */
  async startRecorded() {
    this.run = await readTrace(this.about);
    this.found = { text: this.about.translation, score: this.about.score, nodes: [], hypotheses: [] };
    this.built = {};
    this.state.q = this.about.sentence;
    await this.update({});
  }

  fail(error) {
    const message = String(error.message ?? error);
    announce(message);
    document.querySelector(".translation")?.replaceChildren(message);
    console.error(error);
  }

  // The link

  link() {
    const changed = Object.entries(this.state).filter(([key, value]) => value !== DEFAULTS[key]);
    const params = new URLSearchParams(changed.map(([key, value]) => [key, String(value)]));
    const last = this.trail.at(-1);
    if (last) params.set("cell", [last.name, ...last.index].join("|"));
    if (this.state.mode === "toy" && toyLink()) params.set("toy", toyLink());
    return params.toString();
  }

  readLink() {
    const params = new URLSearchParams(location.hash.slice(1));
    for (const [key, value] of Object.entries(DEFAULTS)) {
      if (!params.has(key)) continue;
      const given = params.get(key);
      this.state[key] = typeof value === "number" ? (Number.isFinite(Number(given)) ? Number(given) : value) : given.slice(0, 500);
    }
    if (params.has("toy")) readToyLink(params.get("toy"));
    if (!MODES.includes(this.state.mode)) this.state.mode = "lesson";
    if (!DEPTHS.includes(this.state.depth)) this.state.depth = "numbers";
    if (!SIDES.includes(this.state.side)) this.state.side = "encoder";
    this.state.s = clamp(Math.floor(this.state.s), 0, STATIONS.length - 1);
    const [name, ...index] = (params.get("cell") ?? "").split("|");
    this.asked = name ? { name, index: index.map(Number) } : null;
  }

  writeLink() {
    const link = this.link();
    if (location.hash.slice(1) !== link) history.replaceState(null, "", `#${link}`);
  }

  // State

  /** Change the state, translate again if the sentence or the search is another, and draw. */
  async update(changes) {
    const before = this.searched;
    Object.assign(this.state, changes);
    this.clampState();
    const { q, beam, alpha } = this.state;
    const key = JSON.stringify([q, beam, alpha]);
    if (this.model && key !== before && q.trim()) {
      this.searched = key;
      this.render();
      const found = await this.runner.run("translate", { text: q, options: { beam, alpha } });
      if (this.searched !== key) return; // another sentence was typed meanwhile
      this.found = found;
      this.trail = [];
      this.run = analyze(this.model, this.tokenizer, q, found.ids);
      this.clampState();
    }
    if (this.asked && this.run?.graph.nodes.has(this.asked.name)) {
      this.trail = [this.asked];
      this.asked = null;
    }
    this.render();
  }

  clampState() {
    const { state } = this;
    const config = this.about.config;
    state.s = clamp(state.s, 0, STATIONS.length - 1);
    if (!config) return;
    const layers = state.side === "encoder" ? config.encoder_layers : config.decoder_layers;
    state.layer = clamp(state.layer, 0, layers - 1);
    state.head = clamp(state.head, 0, config.n_heads - 1);
    if (!this.run) return;
    state.t = clamp(state.t, 0, this.run.read.length - 1);
    state.row = clamp(Math.floor(state.row), 0, sides(this)[0].length - 1);
  }

  get stations() {
    return STATIONS;
  }

  get station() {
    return STATIONS[this.state.s];
  }

  /** The sub-layer that the choice of side and layer names: "encoder.0.self". */
  get sublayer() {
    const { side, layer } = this.state;
    return side === "encoder" ? `encoder.${layer}.self` : side === "decoder" ? `decoder.${layer}.self` : `decoder.${layer}.cross`;
  }

  onKey(event) {
    if (event.target.closest?.("input, textarea, select, [role=gridcell], .cursor") || event.ctrlKey || event.metaKey || event.altKey) return;
    const { state } = this;
    const keys = {
      ArrowRight: () => this.go(state.s + 1),
      ArrowLeft: () => this.go(state.s - 1),
      ArrowUp: () => this.update({ layer: state.layer + 1 }),
      ArrowDown: () => this.update({ layer: state.layer - 1 }),
      "]": () => this.update({ t: state.t + 1 }),
      "[": () => this.update({ t: state.t - 1 }),
      "/": () => byId("sentence")?.focus(),
      ...(isPresenting() ? { Escape: () => this.present() } : {}),
    };
    const digit = /^[1-8]$/.test(event.key) ? () => this.update({ head: Number(event.key) - 1 }) : null;
    const act = this.state.mode === "lesson" ? (keys[event.key] ?? digit) : null;
    if (!act) return;
    event.preventDefault();
    act();
  }

  go(s) {
    const target = clamp(s, 0, STATIONS.length - 1);
    const side = STATIONS[target].side ?? this.state.side;
    return this.update({ s: target, side }).then(() => {
      if (byId("step").getBoundingClientRect().top < 0) byId("step").scrollIntoView();
      announce(this.text(`station.${this.station.key}.title`));
    });
  }

  // Where a number comes from

  /** Follow a cell: from a matrix it starts a new trail, from the terms of another cell it goes on. */
  follow(name, index, isNew = true) {
    if (!this.run?.graph.nodes.has(name)) return;
    const cell = { name, index };
    this.trail = isNew ? [cell] : [...this.trail, cell].slice(-MAX_TRAIL);
    this.render();
    announce(document.querySelector("#trail .value").textContent);
  }

  // Drawing

  render() {
    const path = pathTo(document.activeElement);
    this.renderTop();
    this.renderBody();
    this.renderTrail();
    this.renderBottom();
    if (path && document.activeElement === document.body) document.querySelector(path)?.focus({ preventScroll: true });
    this.writeLink();
  }

  renderTop() {
    const { state, text } = this;
    const modes = MODES.filter((mode) => mode !== "lesson" || this.about.config).map((mode) =>
      pushButton({ role: "tab", id: `mode-${mode}`, "aria-selected": String(state.mode === mode), click: () => this.update({ mode }) }, text(`mode.${mode}`)),
    );
    const top = [
      el("p", { class: "eyebrow" }, text("title"), this.about.name ? [" · ", bdi(this.about.name)] : null),
      el("div", { class: "modes", role: "tablist", "aria-label": text("modes") }, modes),
    ];
    if (state.mode === "lesson" && this.about.config) top.push(this.sentenceForm());
    replace(byId("top"), ...top);
  }

  sentenceForm() {
    const { state, text } = this;
    const input = el("input", { id: "sentence", type: "text", value: state.q, maxlength: "300", autocomplete: "off", spellcheck: "false", dir: "auto", readonly: this.about.trace ? true : null });
    const form = el(
      "form",
      { class: "sentence" },
      el("label", { for: "sentence" }, text("sentence.label")),
      input,
      this.about.trace ? null : el("button", { type: "submit", id: "translate", class: "primary" }, text("sentence.button")),
      el("output", { class: "translation", "aria-live": "polite" }, this.run ? bdi(this.found?.text ?? this.about.translation ?? "") : text("sentence.waiting")),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.update({ q: input.value, y: "", t: 0 }).catch((error) => this.fail(error));
    });
    const examples = (this.about.examples ?? []).map((example) =>
      pushButton({ class: "example", click: () => this.update({ q: example, y: "", t: 0 }) }, bdi(example)),
    );
    if (this.about.trace) return group(form, hint(text("trace.mode")));
    return group(form, examples.length ? el("p", { class: "examples" }, text("sentence.examples"), " ", examples) : null);
  }

  renderBody() {
    const { state } = this;
    const isLesson = state.mode === "lesson";
    byId("main").className = isLesson ? "lesson" : "wide";
    if (!isLesson) {
      replace(byId("map"));
      replace(byId("side"));
      const view = { root: byId("step"), text: this.text, state, update: (changes) => this.update(changes), changed: () => this.writeLink() };
      replace(byId("step"));
      if (state.mode === "toy") renderToy(view);
      else this.renderLabs(view);
      return;
    }
    const { station } = this;
    const part = typeof station.map === "function" ? station.map(state) : station.map;
    replace(byId("map"), drawMap({ text: this.text, config: this.about.config, lit: part, layer: station.layers ? state.layer : null, open: (name) => this.openPart(name) }), drawAttention({ text: this.text, lit: station.key, open: (key) => this.go(STATIONS.findIndex((one) => one.key === key)) }));
    replace(byId("step"), el("h1", {}, this.text(`station.${station.key}.title`)), el("p", { class: "lead" }, this.text(`station.${station.key}.text`)), this.choices());
    Object.assign(byId("step").dataset, { station: station.key, depth: state.depth });
    const body = el("div", { class: "station" });
    byId("step").append(body);
    if (this.run && station.needsModel && !this.model) body.append(hint(withCode(this.text("trace.needs"))));
    else if (this.run) station.render(this.view(body));
    if (body.querySelector("[data-tensor]")) body.prepend(hint(this.text("legend")));
    this.renderSide();
  }

  renderLabs(view) {
    const index = clamp(this.state.lab, 0, LABS.length - 1);
    const buttons = LABS.map((lab, i) =>
      pushButton({ id: `lab-${lab.key}`, pressed: i === index, click: () => this.update({ lab: i }) }, this.text(`lab.${lab.key}.title`)),
    );
    const body = el("div", { class: "lab" });
    view.root.append(el("h1", {}, this.text("mode.labs")), el("div", { class: "choices" }, buttons), body);
    LABS[index].render({ ...view, root: body });
  }

  /** What a station may use. */
  view(root) {
    return {
      root,
      app: this,
      text: this.text,
      state: this.state,
      about: this.about,
      config: this.about.config,
      model: this.model,
      tokenizer: this.tokenizer,
      run: this.run,
      found: this.found,
      sublayer: this.sublayer,
      update: (changes) => this.update(changes),
      tensor: (name) => this.run.graph.get(name),
      show: (name, options) => this.tensorView(name, options),
      scale: (...names) => Math.max(...names.map((name) => this.largest(name))),
    };
  }

  /** The size that gets the full color where tensors are compared. */
  largest(name) {
    const { data } = this.run.graph.nodes.get(name) ?? { data: [] };
    return extreme(1, data.length, (_, i) => data[i]);
  }

  /**
   * Make the matrix of a tensor of the run. A tensor of heads is shown for `head`; `rows` and `columns` are labels
   * (columns: numbers 0 … if left out), `only` a list of rows to show.
   */
  tensorView(name, { rows, columns = null, caption, head = this.state.head, kind = "signed", only = null, largest = null, digits = 2, compact = false }) {
    if (!this.run.graph.nodes.has(name)) return hint(this.text("trace.missing", { name }));
    const { shape, data } = this.run.graph.get(name);
    const isHeads = shape.length === 3;
    const [n, m] = shape.slice(-2);
    const shown = only ?? range(n);
    const indexOf = (row, column) => (isHeads ? [head, shown[row], column] : [shown[row], column]);
    const at = (row, column) => data[offset(shape, indexOf(row, column))];
    const last = this.trail[0];
    const isHere = last?.name === name && (!isHeads || last.index[0] === head);
    const masks = name.endsWith(".weights") ? this.run.graph.nodes.get(name.replace(/weights$/, "masked")) : null;
    const selected = isHere ? [shown.indexOf(last.index.at(-2)), last.index.at(-1)] : null;
    return matrix({
      rows: shown.map((row) => rows[row]),
      columns: columns ?? m,
      at,
      isHidden: masks && ((row, column) => masks.data[offset(shape, indexOf(row, column))] === -Infinity),
      caption,
      kind,
      largest: largest ?? (kind === "signed" ? extreme(shown.length, m, at) : null),
      selected: selected && selected[0] >= 0 ? selected : null,
      onSelect: (row, column) => this.follow(name, indexOf(row, column)),
      digits: this.state.depth === "every" ? Math.max(digits, 4) : digits,
      compact: compact || (this.state.depth === "story" && n * m > 64),
      isWide: this.state.depth === "every",
      name,
    });
  }

  choices() {
    const { state, station, text } = this;
    const config = this.about.config;
    const choice = (key, options, current, legend = key) =>
      el(
        "fieldset",
        { class: "choice" },
        el("legend", {}, text(`choice.${legend}`)),
        options.map(([value, label]) =>
          pushButton({ "data-focus": `${key}-${value}`, pressed: value === current, click: () => this.update({ [key]: value }) }, label),
        ),
      );
    const upTo = (n) => range(n).map((i) => [i, String(i + 1)]);
    const layers = state.side === "encoder" ? config.encoder_layers : config.decoder_layers;
    return el(
      "div",
      { class: "choices" },
      station.sides ? choice("side", station.sides.map((side) => [side, text(`side.${side}`)]), state.side, station.sides.includes("cross") ? "side" : "stack") : null,
      station.layers ? choice("layer", upTo(layers), state.layer) : null,
      station.heads ? choice("head", upTo(config.n_heads), state.head) : null,
      station.rows && this.run ? choice("row", sides(this)[0].map((label, i) => [i, bdi(label)]), state.row) : null,
      station.by && this.model ? choice("by", ["weight", "size"].map((by) => [by, text(`by.${by}`)]), state.by) : null,
      station.steps && this.run ? choice("t", this.run.labels.written.map((label, i) => [i, label]), state.t) : null,
      choice("depth", DEPTHS.map((depth) => [depth, text(`depth.${depth}`)]), state.depth),
    );
  }

  renderSide() {
    const { station, text, about } = this;
    const key = `station.${station.key}`;
    const keys = typeof station.formula === "function" ? station.formula(this.state, about.config) : station.formula;
    const code = about.code?.[station.code];
    replace(byId("side"), 
      el("p", { class: "paper" }, station.paper),
      ...keys.map(formula),
      ...(about.differences?.[station.key] ?? []).map((note) => el("p", { class: "note differs" }, note)),
      el("details", { class: "question" }, el("summary", {}, text(`${key}.question`)), para(text(`${key}.answer`))),
      code ? el("details", { class: "code", open: this.state.depth !== "story" }, el("summary", {}, code.file), el("pre", { tabindex: "0", role: "region", "aria-label": code.file }, el("code", {}, code.text.split("\n").map(codeLine)))) : null,
    );
  }

  renderTrail() {
    const cell = this.state.mode === "lesson" ? this.trail.at(-1) : null;
    byId("trail").hidden = !cell;
    if (!cell) return replace(byId("trail"));
    const { text, run, model } = this;
    const node = run.graph.get(cell.name);
    const value = node.data[offset(node.shape, cell.index)];
    const found = terms(run.graph, model ?? noWeights, cell.name, cell.index);
    const sorted = [...found].sort((a, b) => Math.abs(b.value * b.factor) - Math.abs(a.value * a.factor));
    const isRecorded = node.op === "recorded";
    const shown = sorted.slice(0, MAX_TERMS);
    const rest = sumOf(sorted.slice(MAX_TERMS), (term) => term.value * term.factor);
    const crumbs = this.trail.map((step, i) =>
      el("li", {}, pushButton({ "data-focus": `crumb-${i}`, click: () => this.back(i) }, cellName(step))),
    );
    replace(byId("trail"), 
      el("div", { class: "trail-head" }, heading(text("trail.title")), pushButton({ id: "trail-close", click: () => this.close() }, text("trail.close"))),
      el("ol", { class: "crumbs" }, crumbs),
      el("p", { class: "value" }, `${cellName(cell)} = ${number(value, 4)}`, el("span", { class: "note" }, [" ", text(isRecorded ? "trace.recorded" : `op.${node.op}`)])),
      el("ol", { class: "terms" }, shown.map((term, i) => el("li", {}, this.termView(term, i, node.op === "softmax" ? value : null)))),
      sorted.length > MAX_TERMS ? hint(text("trail.rest", { n: sorted.length - MAX_TERMS, sum: number(rest, 4) })) : null,
    );
  }

  /** A term in words; `share` is the value of a softmax, which is e to the term over the sum of the row. */
  termView(term, i, share) {
    const power = Math.exp(term.value);
    const product = share ? `e^${number(term.value, 4)} ÷ ${number(power / share, 4)} = ${number(share, 4)}` : `${number(term.value, 4)} × ${number(term.factor, 4)} = ${number(term.value * term.factor, 4)}`;
    if (term.tensor === null) return el("span", {}, `${this.text("trail.constant")} ${number(term.factor, 4)}`);
    const name = cellName({ name: term.tensor, index: term.index });
    const isTensor = this.run.graph.nodes.has(term.tensor);
    const open = () => this.follow(term.tensor, term.index, false);
    return [
      isTensor ? pushButton({ "data-focus": `term-${i}`, click: open }, name) : el("span", { class: "parameter" }, `${name} · ${this.text("trail.parameter")}`),
      term.other ? [" × ", pushButton({ "data-focus": `other-${i}`, click: () => this.follow(term.other.tensor, term.other.index, false) }, cellName({ name: term.other.tensor, index: term.other.index }))] : null,
      ": ",
      el("span", { class: "product" }, product),
    ];
  }

  back(i) {
    this.trail = this.trail.slice(0, i + 1);
    this.render();
  }

  close() {
    this.trail = [];
    this.render();
  }

  renderBottom() {
    const { state, text } = this;
    if (state.mode !== "lesson") return replace(byId("bottom"), hint(text("footer.offline")));
    const options = STATIONS.map((station, i) => el("option", { value: i, selected: i === state.s }, [String(i), " · ", text(`station.${station.key}.title`)]));
    const contents = el("select", { id: "contents", "aria-label": text("footer.contents") }, options);
    contents.addEventListener("change", () => this.go(Number(contents.value)));
    replace(byId("bottom"), 
      el("div", { class: "walk" },
        pushButton({ id: "previous", disabled: state.s === 0, click: () => this.go(state.s - 1) }, `◀ ${text("footer.previous")}`),
        contents,
        pushButton({ id: "next", disabled: state.s === STATIONS.length - 1, click: () => this.go(state.s + 1) }, `${text("footer.next")} ▶`),
        el("span", { class: "note progress" }, text("footer.progress", { n: state.s + 1, of: STATIONS.length })),
        pushButton({ id: "present", pressed: isPresenting(), click: () => this.present() }, text("footer.present")),
        pushButton({ id: "print", click: () => window.print() }, text("footer.print")),
      ),
      hint(text("footer.keys")),
      hint(text("footer.offline")),
    );
  }

  /** Larger type for a classroom, on the full screen where the browser allows it. */
  present() {
    const isOn = document.documentElement.classList.toggle("presenting");
    const change = isOn ? document.documentElement.requestFullscreen?.() : document.fullscreenElement && document.exitFullscreen();
    Promise.resolve(change).catch(() => {}); // larger type is enough
    this.render();
    byId("step").scrollIntoView();
  }

  openPart(part) {
    const s = STATIONS.findIndex((station) => (station.parts ?? [station.map]).includes(part));
    if (s >= 0) this.go(s);
  }
}

/** In a page that carries the numbers of one sentence instead of the weights, cells made with weights have no terms. */
const noWeights = { config: {}, weight: () => { throw new Error("this page carries no weights"); } };

/** A line of code that, where it has to wrap, continues further in than it began, and does not break at a hyphen. */
function codeLine(line) {
  const words = `${line}\n`.split(/(\S*-\S*)/).map((part, i) => (i % 2 && part.length < 30 ? el("span", { class: "unbroken" }, part) : part));
  return el("span", { class: "line-of-code", style: { "--indent": String(line.search(/\S|$/)) } }, words);
}

/** A selector that finds an element again after the page was drawn: by its id, its name, or its cell. */
function pathTo(node) {
  if (node?.id) return `#${node.id}`;
  if (node?.dataset?.focus) return `[data-focus="${node.dataset.focus}"]`;
  const tensor = node?.closest?.("[data-tensor]")?.dataset.tensor;
  if (!tensor) return null;
  const { row, column } = node.dataset;
  const place = row === undefined ? ".cursor" : `[data-row="${row}"][data-column="${column}"]`;
  return `[data-tensor="${tensor}"] ${place}`;
}

const isPresenting = () => document.documentElement.classList.contains("presenting");
const clamp = (x, low, high) => Math.min(high, Math.max(low, Number.isFinite(x) ? x : low));
const cellName = ({ name, index }) => `${name}[${index.join(", ")}]`;

/** What other programs, and the tests, may call. */
function publish(app) {
  window.lesson = {
    app,
    async translate(text, { beam = 4, alpha = app.state.alpha, prefix = [] } = {}) {
      const { text: translation, score } = translate(app.model, app.tokenizer, text, { beam, alpha, prefix });
      return { text: translation, score };
    },
    tensor(name) {
      const { shape, data } = app.run.graph.get(name);
      return { shape, data: Array.from(data) };
    },
    terms: (name, index) => terms(app.run.graph, app.model, name, index),
    names: () => [...app.run.graph.nodes.keys()],
    tools: { translate, beamSearch, rerank, scalingExperiment, resample, forced, OutputTraining },
  };
}

export function start() {
  const app = new App();
  window.lessonReady = app.start().then(() => app, (error) => app.fail(error));
  publish(app);
}

if (typeof document === "undefined") serveJobs(self); // this script is the worker's too
else start();
