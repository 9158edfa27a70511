// What both drivers look for on a page; it comes before them.

/** The number of different colours on a canvas. */
function colours(canvas) {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}

/** Text with too little contrast to its background, less than 4.5 : 1, in the elements of a selector. */
function faint(selector) {
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const light = ({ rgb }) => {
    const [r, g, b] = rgb.map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  for (const element of document.body.querySelectorAll(selector)) {
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

