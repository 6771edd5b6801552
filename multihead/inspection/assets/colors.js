// One color scale for all weights, linear from 0 to 1: through one hue and its neighbors, even in lightness. Lines use
// the same scale as opacity.

const RAMPS = {
  light: ["#fbfcfd", "#dcecf3", "#b0d5e5", "#78b6d6", "#4592c4", "#276cae", "#1b478d", "#141f57"],
  dark: ["#151b22", "#17293d", "#174163", "#1c5d8b", "#3480b0", "#63a5cb", "#a3cde1", "#eaf6fa"],
};
const LEVELS = 256;

export const prefersDark = matchMedia("(prefers-color-scheme: dark)");
export const isDark = () => (document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";

// The color of each level, as [red, green, blue].
export function ramp(theme = isDark() ? "dark" : "light") {
  const stops = RAMPS[theme].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  return Array.from({ length: LEVELS }, (_, level) => {
    const place = (level / (LEVELS - 1)) * (stops.length - 1);
    const at = Math.min(Math.floor(place), stops.length - 2);
    return stops[at].map((low, channel) => low + (stops[at + 1][channel] - low) * (place - at));
  });
}

export const levelOf = (share) => Math.round((LEVELS - 1) * Math.max(0, Math.min(1, share)));

// Paint shares from 0 to 1, one pixel each; the style sheet enlarges them without blur. Masked cells stay transparent, so
// that the hatching behind the canvas shows.
export function paint(canvas, rows, isMasked = () => false) {
  const colors = ramp();
  [canvas.width, canvas.height] = [rows[0].length, rows.length];
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  rows.forEach((row, query) => row.forEach((share, key) => {
    if (!isMasked(query, key)) image.data.set([...colors[levelOf(share)], 255], (query * row.length + key) * 4);
  }));
  context.putImageData(image, 0, 0);
  return canvas;
}
