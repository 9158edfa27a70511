// Looks at a page of a report and writes what it found into the document.

const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => errors.push(`${event.violatedDirective} ${event.blockedURI}`));
console.error = (...text) => errors.push(text.join(" "));
console.warn = console.error;

/** The number of different colours on a canvas. */
function colours(canvas) {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}

/** Text with too little contrast to its background: less than 4.5 : 1. */
function faint() {
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const light = ({ rgb }) => {
    const [r, g, b] = rgb.map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  for (const element of document.body.querySelectorAll("main *, header *, footer")) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest(".unseen, .tip, noscript")) continue;
    let behind = element;
    while (behind && parse(getComputedStyle(behind).backgroundColor).a < 1) behind = behind.parentElement;
    const ground = light(parse(getComputedStyle(behind ?? document.documentElement).backgroundColor));
    const ink = light(parse(getComputedStyle(element).color));
    const ratio = (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
    if (ratio < 4.5) found.push(`${element.tagName} "${element.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return found;
}

async function look() {
  // A browser without a screen may make no frames; before printing, and after, charts are drawn without.
  const frame = () => new Promise((resolve) => setTimeout(resolve, 50));
  dispatchEvent(new Event("beforeprint"));
  await frame();
  const widths = [...document.querySelectorAll("canvas")].map((canvas) => canvas.getBoundingClientRect().width);
  const found = { colours: [], printed: { widest: Math.max(0, ...widths), ground: getComputedStyle(document.documentElement).backgroundColor } };
  dispatchEvent(new Event("afterprint"));
  await frame();
  for (const plot of document.querySelectorAll("#dirty-plot, #causes-plot")) {
    plot.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
    const canvas = plot.querySelector("canvas");
    if (canvas) found.colours.push(colours(canvas));
  }
  for (const details of document.querySelectorAll("details")) details.open = true;
  await frame();
  const text = (selector) => document.querySelector(selector)?.textContent ?? "";
  found.dirty = text("#dirty-summary");
  found.title = document.title;
  found.files = [...document.querySelectorAll("tbody th.path")].map((cell) => cell.textContent);
  found.markup = document.querySelectorAll("main script, main img, main b b").length;
  found.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  found.faint = faint();
  found.overflow = Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth);
  found.requests = performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !name.startsWith("data:"));
  found.errors = errors;
  const output = document.createElement("output");
  output.id = "found";
  output.textContent = JSON.stringify(found);
  document.body.append(output);
}

addEventListener("load", look);
