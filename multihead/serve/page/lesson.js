// The tab "Explain": the lesson about the model, in a frame. The frame is loaded by a form, since an API key belongs into
// the body of a request and not into an address.

import { byId } from "./dom.js";

const LONGEST = 300; // characters of a sentence that the lesson takes
const WIDEST = 8; // hypotheses of a beam, likewise

let pair = ""; // of languages that the frame shows or is loading
let wanted = ""; // the link that it should show
let isLoaded = false;

// Show the lesson about a model; `view` has what its link may contain: the sentence, the search, the station.
export function showLesson({ source, target, key, keyRequired, lessons, view }) {
  const asked = [source, target].join();
  const isThere = lessons.some((other) => other.join() === asked);
  if (!isThere) return say("There is no lesson about this model: it has more than 12 million parameters, or layers that a page cannot compute. multihead explain writes a page with the numbers of one sentence.");
  if (keyRequired && !key) return say("The lesson needs the API key: enter it in the menu “Search”.");
  say("");
  wanted = String(new URLSearchParams({ ...view, q: view.q.slice(0, LONGEST), beam: Math.min(WIDEST, view.beam) }));
  if (asked === pair) return follow();
  [pair, isLoaded] = [asked, false];
  const form = byId("lesson-form");
  [form.method, form.action] = [keyRequired ? "post" : "get", `explain#${wanted}`]; // what comes with GET is kept by the browser
  for (const [name, value] of Object.entries({ source, target, api_key: key })) form.elements[name].value = value;
  form.elements.api_key.disabled = !keyRequired;
  say("Loading the model …");
  form.submit();
}

function follow() {
  if (!isLoaded || !wanted) return;
  const { location } = byId("lesson").contentWindow;
  location.replace(`${location.href.split("#")[0]}#${wanted}`);
  wanted = "";
}

function say(text) {
  byId("lesson-note").textContent = text;
  byId("lesson").hidden = Boolean(text) && !text.startsWith("Loading");
}

byId("lesson").addEventListener("load", () => {
  if (!pair) return;
  const page = byId("lesson").contentDocument;
  if (page?.contentType === "text/html") {
    isLoaded = true;
    say("");
    themeLesson();
    follow();
  } else {
    pair = "";
    say(errorIn(page));
  }
});

// An error is an answer in JSON, which browsers show in different ways.
function errorIn(page) {
  try {
    return JSON.parse(page.querySelector("pre").textContent).error;
  } catch {
    return "The lesson could not be loaded.";
  }
}

// The frame is as light or dark as the page around it.
export function themeLesson() {
  const { theme } = document.documentElement.dataset;
  const frame = byId("lesson");
  if (!theme || !frame.contentDocument?.documentElement) return;
  frame.contentDocument.documentElement.style.colorScheme = theme;
  frame.contentWindow.lesson?.app.render();
}
