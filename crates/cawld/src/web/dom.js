// The document: elements found, filled and made.

const byId = (id) => document.getElementById(id);

function put(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}

/** A new element with these properties around these children: elements, or text. */
function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

