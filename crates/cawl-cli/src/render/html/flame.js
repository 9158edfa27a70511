// Time by stack: functions below the functions that they call, then the operation and its causes.

/** The tree of all ways; the time of a node is that of the ways through it, in seconds. */
function flameTree(rows) {
  const root = { name: "all calls", time: 0, lost: 0, calls: 0, children: new Map() };
  const step = (node, name, more, row) => {
    if (!node.children.has(name)) node.children.set(name, { name, time: 0, lost: 0, calls: 0, children: new Map(), ...more });
    const next = node.children.get(name);
    next.time += row.observed_s;
    next.lost += row.lost_s;
    next.calls += row.calls;
    return next;
  };
  for (const row of rows) {
    root.time += row.observed_s;
    root.lost += row.lost_s;
    root.calls += row.calls;
    let node = root;
    if (row.truncated) node = step(node, "…", { detail: "the outer functions are not known" }, row);
    if (!row.way.length) node = step(node, "without a stack", {}, row);
    for (const frame of row.way) node = step(node, frame.name, { detail: frame.detail }, row);
    node = step(node, row.op, { op: true }, row);
    for (const [cause, seconds] of Object.entries(row.causes)) {
      // What was lost is known of the call, not of each cause.
      const lost = (row.lost_s * seconds) / (row.observed_s || 1);
      step(node, cause, { cause }, { observed_s: seconds, lost_s: lost, calls: 0 });
    }
  }
  return root;
}

/** Draws the tree into the element `flame`; a click makes a node as wide as all. */
class Flame {
  constructor(rows) {
    this.room = byId("flame");
    this.said = byId("flame-said");
    this.root = flameTree(rows);
    this.by = "time";
    this.top = [this.root];
    const button = byId("flame-lost");
    button.addEventListener("click", () => {
      this.by = this.by === "time" ? "lost" : "time";
      button.setAttribute("aria-pressed", String(this.by === "lost"));
      this.top = [this.root];
      this.draw();
    });
    this.draw();
  }

  text(node) {
    const all = this.root[this.by] || 1;
    const calls = node.calls ? `, ${count(node.calls)} calls` : "";
    const detail = node.detail ? ` (${node.detail})` : "";
    return `${node.name}${detail}: ${duration(node[this.by])}${this.by === "lost" ? " lost" : ""}, ${percent(node[this.by] / all)}${calls}`;
  }

  /** A node as a box from `left` to `left + width`, as parts of the whole. */
  box(node, way, depth, left, width) {
    const box = element("button", { type: "button", className: "frame", textContent: node.name });
    if (node.cause) box.className = `frame cause-${causeName(node.cause)}`;
    else if (node.op) box.classList.add("op");
    box.style.left = `${left * 100}%`;
    box.style.width = `${width * 100}%`;
    box.style.top = `${depth * 21}px`;
    const text = this.text(node);
    box.title = text;
    box.setAttribute("aria-label", text);
    const say = () => (this.said.textContent = text);
    box.addEventListener("pointerenter", say);
    box.addEventListener("focus", say);
    box.addEventListener("click", () => {
      this.top = way;
      this.draw();
      this.room.children[way.length - 1]?.focus();
    });
    this.room.append(box);
    this.depth = Math.max(this.depth, depth + 1);
  }

  below(node, way, depth, left, width) {
    const nodes = [...node.children.values()].filter((child) => child[this.by] > 0).sort((a, b) => b[this.by] - a[this.by]);
    for (const child of nodes) {
      const part = (width * child[this.by]) / (node[this.by] || 1);
      // Too narrow to be seen.
      if (part < 0.001) break;
      this.box(child, [...way, child], depth, left, part);
      this.below(child, [...way, child], depth + 1, left, part);
      left += part;
    }
  }

  draw() {
    this.room.replaceChildren();
    this.depth = 0;
    this.top.forEach((node, at) => this.box(node, this.top.slice(0, at + 1), at, 0, 1));
    this.below(this.top.at(-1), this.top, this.top.length, 0, 1);
    this.room.style.height = `${this.depth * 21}px`;
    this.said.textContent = this.text(this.top.at(-1));
  }
}

if (told.stacks?.length) new Flame(told.stacks);
