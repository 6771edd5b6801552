// Translate while the user types, and show what the model attends to. Texts are inserted as text, never as markup.

import { repaint, showAttention } from "./attention.js";
import { alongRow, byId, chance, make, rove } from "./dom.js";
import { showLesson, themeLesson } from "./lesson.js";

const PAUSE = 220; // milliseconds without a keystroke before a request
const ALTERNATIVES = 3;
const EXAMPLES = { en: "Where is the station?", de: "Wo ist der Bahnhof?", fr: "Où est la gare ?" };

const state = { languages: [], settings: null, mode: "translate", sentence: 0, asked: 0, abort: null, shown: null, whole: "" };

// Requests

async function ask(route, fields, signal) {
  const key = byId("key").value;
  const body = JSON.stringify({ ...fields, ...(key ? { api_key: key } : {}) });
  const answer = await fetch(route, { method: "POST", headers: { "content-type": "application/json" }, body, signal });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}

async function look(route) {
  const answer = await fetch(route);
  if (answer.status === 503) { // the models are still loading
    await new Promise((later) => setTimeout(later, 700));
    return look(route);
  }
  return answer.json();
}

// Translating

let timer;
function soon() {
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
}

async function translate() {
  clearTimeout(timer);
  state.abort?.abort();
  const q = byId("text").value;
  remember(q);
  if (!q.trim()) return empty();
  const turn = ++state.asked;
  state.abort = new AbortController();
  byId("said").classList.add("old");
  try {
    const fields = { q, source: byId("from").value, target: byId("to").value };
    const search = { beam: Number(byId("beam").value), alternatives: ALTERNATIVES };
    if (state.alpha !== undefined) search.alpha = state.alpha; // otherwise the model's own
    const began = performance.now();
    if (!state.settings.attention) {
      const found = await ask("translate", { ...fields, alternatives: ALTERNATIVES }, state.abort.signal);
      if (turn !== state.asked) return;
      show(null, found.translatedText);
      showAlternatives({ translation: found.translatedText, alternatives: found.alternatives.map((text) => ({ text })) });
      if (state.mode === "explain") explain();
      return tell(`${Math.round(performance.now() - began)} ms`);
    }
    const inside = ask("attention", { ...fields, ...search, sentence: state.sentence }, state.abort.signal);
    const found = await inside.catch((error) => ({ error }));
    if (found.error?.name === "AbortError") return;
    const isAlone = !found.error && found.sentences.length === 1;
    const whole = isAlone ? wrap(q, found) : (await ask("translate", fields, state.abort.signal)).translatedText;
    if (turn !== state.asked) return;
    show(found.error ? null : found, whole);
    if (state.mode === "explain") explain();
    tell(found.error ? found.error.message : `${Math.round(performance.now() - began)} ms`, Boolean(found.error));
  } catch (error) {
    if (error.name !== "AbortError" && turn === state.asked) tell(error.message, true);
  }
}

const wrap = (q, found) => q.match(/^\s*/)[0] + found.translation + q.match(/\s*$/)[0];

function empty() {
  state.asked++;
  Object.assign(state, { sentence: 0, shown: null, whole: "" });
  byId("said").replaceChildren();
  byId("said").classList.remove("old");
  for (const id of ["sentences", "others", "viewer", "chance-note"]) byId(id).hidden = true;
  for (const id of ["copy", "share"]) byId(id).disabled = true;
  mark([]);
  tell("");
}

function tell(text, isTrouble = false) {
  byId("status-line").textContent = text;
  byId("status-line").classList.toggle("trouble", isTrouble);
}

// Output

function show(found, whole) {
  Object.assign(state, { shown: found, whole });
  byId("said").classList.remove("old");
  for (const id of ["copy", "share"]) byId(id).disabled = false;
  for (const id of ["others", "viewer"]) byId(id).hidden = !found;
  byId("chance-note").hidden = !found?.probabilities.words.length;
  mark([]);
  if (!found) {
    byId("said").replaceChildren(whole);
    byId("sentences").hidden = true;
    return;
  }
  showWords(found, whole);
  showSentences(found);
  showAlternatives(found);
  showAttention(found);
  if (found.warnings.length) tell(found.warnings.join("; "));
}

// Wrap each word of the selected sentence, so that it can point at the words that it is aligned with.
function showWords(found, whole) {
  const at = locate(whole, found.translation, found.sentence);
  const chances = found.probabilities.words;
  const words = spans(found.translation).map(([start, end], index, all) => make("span", {
    class: "w", text: found.translation.slice(start, end), "data-at": index,
    "data-chance": chances.length === all.length ? chance(chances[index]) : undefined,
    on: { pointerenter: () => point("target", index), pointerleave: () => point(null) },
  }));
  const parts = [whole.slice(0, at)];
  let done = 0;
  spans(found.translation).forEach(([start, end], index) => {
    parts.push(found.translation.slice(done, start), words[index]);
    done = end;
  });
  byId("said").replaceChildren(...parts, found.translation.slice(done), whole.slice(at + found.translation.length));
}

const spans = (text) => [...text.matchAll(/\S+/g)].map((match) => [match.index, match.index + match[0].length]);

// The sentence may occur more than once: take the n-th occurrence, or the last.
function locate(whole, sentence, index) {
  const places = [];
  for (let at = whole.indexOf(sentence); at >= 0; at = whole.indexOf(sentence, at + 1)) places.push(at);
  return places[Math.min(index, places.length - 1)] ?? 0;
}

function showSentences({ sentences, sentence }) {
  byId("sentences").hidden = sentences.length < 2;
  byId("sentences").replaceChildren(...sentences.map((text, index) => make("button", {
    type: "button", text, "aria-current": String(index === sentence), title: text,
    on: { click: () => { state.sentence = index; translate(); } },
  })));
}

// Scores are missing if the server does not show attention.
function showAlternatives({ translation, score, alternatives }) {
  const all = [{ text: translation, score }, ...alternatives];
  const best = Math.exp(all[0].score);
  byId("others").hidden = !alternatives.length;
  byId("score-note").hidden = score === undefined;
  byId("alternatives").replaceChildren(...all.map(({ text, score: its }, rank) => make("li", { class: rank ? "" : "best" },
    make("bdi", { text }),
    ...(its === undefined ? [] : [
      make("span", { class: "share", "aria-hidden": "true" },
        make("i", { style: `width: ${Math.max(2, 100 * Math.min(1, Math.exp(its) / best))}%` })),
      make("span", { class: "score", text: its.toFixed(3).replace("-", "−") }),
    ]))));
}

// Alignment

function point(side, at) {
  const { weights, source } = state.shown.alignment;
  const scale = state.shown.scale;
  const partners = side === null ? [] : weights[at].flatMap((weight, from) => (weight / scale >= 0.15 ? [from] : []));
  byId("said").querySelectorAll(".w").forEach((word) => word.classList.toggle("on", Number(word.dataset.at) === at && side !== null));
  const words = spans(state.shown.source);
  mark(words.length === source.length ? partners.map((from) => words[from]) : []);
}

// Highlights behind the input: a transparent copy of its text with the same line breaks.
function mark(places) {
  const text = byId("text").value;
  const start = state.shown ? Math.max(0, locate(text, state.shown.source, 0)) : 0;
  const parts = [];
  let done = 0;
  for (const [from, to] of [...places].sort((a, b) => a[0] - b[0])) {
    parts.push(text.slice(done, start + from), make("mark", { text: text.slice(start + from, start + to) }));
    done = start + to;
  }
  byId("mirror").classList.toggle("on", places.length > 0);
  byId("mirror").replaceChildren(...parts, `${text.slice(done)}\n`);
}

// Select the sentence under the cursor.
function follow() {
  if (!state.shown || state.shown.sentences.length < 2) return;
  let [at, end] = [0, 0];
  const text = byId("text").value;
  for (const [index, sentence] of state.shown.sentences.entries()) {
    const start = text.indexOf(sentence, end);
    if (start < 0 || start > byId("text").selectionStart) break;
    [at, end] = [index, start + sentence.length];
  }
  if (at !== state.sentence) {
    state.sentence = at;
    soon();
  }
}

// The lesson

const STATIONS = { beam: 18, whatIf: 20 }; // of the lesson

function openMode(mode, station) {
  state.mode = mode;
  for (const [name, panel] of [["translate", "translating"], ["explain", "explaining"]]) {
    byId(panel).hidden = name !== mode;
    byId(`mode-${name}`).setAttribute("aria-selected", name === mode);
    byId(`mode-${name}`).tabIndex = name === mode ? 0 : -1;
  }
  remember(byId("text").value);
  if (mode === "explain") return explain(station);
  repaint(); // what was hidden had no size
  grow();
}

// Show the lesson about the selected sentence, at this station if one is given.
async function explain(station) {
  const text = (state.shown?.source ?? byId("text").value).trim();
  let source = byId("from").value;
  try {
    if (source === "auto") source = (await ask("detect", { q: text || "?" }))[0].language;
  } catch (error) {
    tell(error.message, true);
    return;
  }
  const view = { q: text, beam: byId("beam").value, ...(state.alpha === undefined ? {} : { alpha: state.alpha }), ...(station === undefined ? {} : { s: station }) };
  const key = byId("key").value;
  showLesson({ source, target: byId("to").value, key, keyRequired: state.settings.keyRequired, lessons: state.settings.lessons, view });
}

// Link, clipboard, languages, theme

function remember(q) {
  const link = new URLSearchParams({ from: byId("from").value, to: byId("to").value, q });
  if (state.mode === "explain") link.set("view", "explain");
  history.replaceState(null, "", q.trim() ? `#${link}` : location.pathname);
  const limit = state.settings.charLimit;
  byId("count").textContent = q ? `${[...q].length.toLocaleString("en")} / ${limit.toLocaleString("en")}` : "";
  byId("count").classList.toggle("trouble", [...q].length > limit);
  byId("clear").hidden = !q;
}

async function copy(text, button) {
  const name = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => { button.textContent = name; }, 1200);
}

function fillLanguages() {
  const names = Object.fromEntries(state.languages.map(({ code, name }) => [code, name]));
  const sources = state.languages.filter(({ targets }) => targets.length); // the others are targets only
  const from = [make("option", { value: "auto", text: "Detect" }), ...sources.map(({ code, name }) => make("option", { value: code, text: name }))];
  byId("from").replaceChildren(...(sources.length > 1 ? from : from.slice(1)));
  const targets = [...new Set(state.languages.flatMap((language) => language.targets))];
  byId("to").replaceChildren(...targets.map((code) => make("option", { value: code, text: names[code] ?? displayName(code) })));
  byId("from").value = state.settings.language.source.code;
  byId("to").value = state.settings.language.target.code;
}

function displayName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}

const canSwap = () => state.languages.some(({ code, targets }) => code === byId("to").value && targets.includes(byId("from").value));

function chooseLanguage() {
  const language = state.languages.find(({ code }) => code === byId("from").value);
  if (language && !language.targets.includes(byId("to").value)) byId("to").value = language.targets[0];
  byId("swap").disabled = !canSwap();
  translate();
}

function swap() {
  [byId("from").value, byId("to").value] = [byId("to").value, byId("from").value];
  if (state.whole) byId("text").value = state.whole;
  state.sentence = 0;
  chooseLanguage();
  grow();
}

function toggleTheme() {
  const root = document.documentElement;
  const isDark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* storage may be disabled; the page works without it */ }
  repaint();
  themeLesson();
}

function grow() {
  const area = byId("text");
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
}

// Start

function listen() {
  byId("text").addEventListener("input", () => { grow(); mark([]); remember(byId("text").value); soon(); });
  byId("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate(); });
  document.addEventListener("selectionchange", () => { if (document.activeElement === byId("text")) follow(); });
  for (const id of ["from", "to"]) byId(id).addEventListener("change", chooseLanguage);
  for (const id of ["beam", "alpha"]) {
    byId(id).addEventListener("input", () => { byId(`${id}-value`).textContent = byId(id).value; soon(); });
  }
  byId("alpha").addEventListener("input", () => { state.alpha = Number(byId("alpha").value); });
  byId("key").addEventListener("change", () => { translate(); if (state.mode === "explain") explain(); });
  for (const mode of ["translate", "explain"]) {
    byId(`mode-${mode}`).addEventListener("click", () => openMode(mode));
  }
  rove([byId("mode-translate"), byId("mode-explain")], alongRow(2));
  byId("show-tree").addEventListener("click", () => openMode("explain", STATIONS.beam));
  byId("swap").addEventListener("click", swap);
  byId("theme").addEventListener("click", toggleTheme);
  byId("clear").addEventListener("click", () => { byId("text").value = ""; grow(); translate(); byId("text").focus(); });
  byId("copy").addEventListener("click", () => copy(state.whole.trim(), byId("copy")));
  byId("share").addEventListener("click", () => copy(location.href, byId("share")));
  document.addEventListener("click", (event) => { if (!byId("options").contains(event.target)) byId("options").open = false; });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") byId("options").open = false; });
  addEventListener("hashchange", begin);
}

function begin() {
  const link = new URLSearchParams(location.hash.slice(1));
  for (const id of ["from", "to"]) {
    const wanted = link.get(id);
    if ([...byId(id).options].some((option) => option.value === wanted)) byId(id).value = wanted;
  }
  byId("text").value = link.get("q") ?? EXAMPLES[byId("from").value] ?? "";
  state.sentence = 0;
  byId("swap").disabled = !canSwap();
  openMode(state.settings.explain && link.get("view") === "explain" ? "explain" : "translate");
  grow();
  translate();
}

// What depends on whether this server offers the lesson.
function offerLesson() {
  const { explain: isOffered } = state.settings;
  byId("modes").hidden = byId("show-tree").hidden = !isOffered;
  byId("cause").replaceChildren("Weights show where the model looks, not why it writes a word.", ...(!isOffered ? [] : [
    " To measure what a head contributes, ",
    make("button", { class: "link", type: "button", id: "show-what-if", text: "switch it off in the lesson", on: { click: () => openMode("explain", STATIONS.whatIf) } }), ".",
  ]));
}

try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* storage may be disabled */ }
[state.languages, state.settings] = await Promise.all([look("languages"), look("frontend/settings")]);
byId("key-field").hidden = !state.settings.keyRequired;
byId("search").hidden = !state.settings.attention; // these settings belong to the route of attention
byId("options").hidden = !state.settings.attention && !state.settings.keyRequired;
fillLanguages();
offerLesson();
listen();
begin();
