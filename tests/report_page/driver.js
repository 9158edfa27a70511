// Looks at a page of a report and writes what it found into the document.

const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => errors.push(`${event.violatedDirective} ${event.blockedURI}`));
console.error = (...text) => errors.push(text.join(" "));
console.warn = console.error;

async function look() {
  // A browser without a screen may make no frames; before printing, and after, charts are drawn without.
  const frame = () => new Promise((resolve) => setTimeout(resolve, 50));
  dispatchEvent(new Event("beforeprint"));
  await frame();
  const charts = [...document.querySelectorAll("canvas")];
  const widths = charts.map((canvas) => canvas.getBoundingClientRect().width);
  const filled = Math.min(1, ...charts.map((canvas, at) => widths[at] / canvas.closest(".plot").clientWidth));
  const found = { colours: [], printed: { widest: Math.max(0, ...widths), filled, ground: getComputedStyle(document.documentElement).backgroundColor } };
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
  found.causes = text("#causes-summary");
  found.brand = text(".brand .sub");
  const all = (selector) => [...document.querySelectorAll(selector)].map((element) => element.textContent);
  found.headings = all("main > .card:not([hidden]) > h2");
  found.ranks = all("#ranks tbody tr");
  found.classes = all("#classes tbody tr");
  found.remarks = all(".use li");
  found.uses = all(".use span");
  found.densities = all("#densities h3");
  found.cells = [...document.querySelectorAll("td, tr > th")].filter((cell) => !["table-cell", "none"].includes(getComputedStyle(cell).display)).length;
  found.width = innerWidth;
  found.reach = Math.max(0, ...[...document.querySelectorAll("td.wrap")].map((cell) => cell.getBoundingClientRect().right));
  found.frames = all("#flame .frame");
  document.querySelectorAll("#flame .frame")[2]?.click();
  document.querySelector("#flame-lost")?.click();
  document.querySelector("#flame-lost")?.click();
  [...document.querySelectorAll("#flame .frame")].find((frame) => frame.textContent === "<" + "/script><!--")?.click();
  found.zoomed = document.querySelectorAll("#flame .frame").length;
  found.title = document.title;
  found.files = [...document.querySelectorAll("tbody th.path")].map((cell) => cell.textContent);
  found.markup = document.querySelectorAll("main script, main img, main b b").length;
  found.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  found.faint = faint("main *, header *, footer");
  found.overflow = Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth);
  found.requests = performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !name.startsWith("data:"));
  found.errors = errors;
  const output = document.createElement("output");
  output.id = "found";
  output.textContent = JSON.stringify(found);
  document.body.append(output);
}

addEventListener("load", look);
