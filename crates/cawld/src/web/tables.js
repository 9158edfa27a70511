// Tables sorted by buttons, with rows that stay in place in the document and change only where they must.

const TEXT = (name, value) => ({ name, value, text: (row) => printable(value(row)), kind: "text", sort: null });
/** A renamed file has its first name beside the last. */
const filed = (row) => {
  if (!row.path) return `inode ${row.inode}`;
  if (!row.first_path) return row.path;
  const folder = row.path.slice(0, row.path.lastIndexOf("/") + 1);
  const inside = row.first_path.startsWith(folder) && !row.first_path.slice(folder.length).includes("/");
  return `${row.path} (was ${inside ? row.first_path.slice(folder.length) : row.first_path})`;
};
/** A path whose folders give way, not its name. */
const PATH = (name, value) => ({
  ...TEXT(name, value),
  className: "path",
  fill: (holder, row, text) => {
    const name = text.lastIndexOf("/") + 1;
    holder.replaceChildren(element("span", {}, text.slice(0, name)), element("span", {}, text.slice(name)));
  },
});
/** The two main causes of a row's time. */
const sharesOf = (row) => causeShares(row.causes_s ?? {}, 2).map(([cause, share]) => [cause, `${printable(cause)} ${percent(share)}`]);
const CAUSED = {
  ...TEXT("Causes", (row) => sharesOf(row).map(([, text]) => text).join(", ") || NOTHING),
  className: "causes",
  fill: (holder, row) => {
    const parts = sharesOf(row).flatMap(([cause, text], at) => [at ? ", " : "", causeKey(cause), text]);
    holder.replaceChildren(...(parts.length ? parts : [NOTHING]));
  },
};
const FIGURE = (name, key, text, sort = null) => ({ name, value: (row) => row[key] ?? -Infinity, text: (row) => text(row[key]), kind: "figure", sort });
const LOST = { ...FIGURE("Lost", "lost_s", duration, "lost"), share: true };
const COSTS = [
  LOST,
  FIGURE("Observed", "observed_s", duration, "observed"),
  CAUSED,
  FIGURE("Predicted", "predicted_s", duration),
];
const WRITTEN = [FIGURE("Rate", "rate", rate, "rate"), FIGURE("Written", "bytes", bytes, "bytes"), FIGURE("Calls", "calls", count, "calls")];
const COLUMNS = {
  processes: [TEXT("Program", (row) => row.program), { ...FIGURE("PID", "pid", String), kind: "id" }, ...COSTS, ...WRITTEN],
  files: [PATH("File", filed), { ...TEXT("Device", (row) => row.device), kind: "id" }, ...COSTS, ...WRITTEN],
  devices: [
    TEXT("Device", (row) => (row.name ? `${row.name} (${row.device})` : row.device)),
    ...COSTS,
    ...WRITTEN,
    FIGURE("Device writes", "write_rate", rate),
    FIGURE("Busy", "busy", percent),
  ],
};

class SortTable {
  /** `changed` is called when other rows might be asked for. */
  constructor(section, columns, changed) {
    this.section = section;
    this.columns = columns;
    this.changed = changed;
    this.by = columns.indexOf(LOST);
    this.descending = true;
    this.rows = [];
    this.omitted = 0;
    this.table = section.querySelector("table");
    this.note = section.querySelector(".note");
    this.filter = section.querySelector("input[type=search]");
    this.filter?.addEventListener("input", () => this.render());
    const head = this.table.tHead.insertRow();
    this.heads = columns.map((column, at) => {
      const arrow = element("span", { className: "arrow", ariaHidden: "true" });
      const button = element("button", { type: "button", onclick: () => this.sort(at) }, column.name, arrow);
      const cell = element("th", { scope: "col", className: column.kind }, button);
      head.append(cell);
      return cell;
    });
    this.body = this.table.tBodies[0];
    this.mark();
  }

  /** What the daemon should choose rows by. */
  get order() {
    return this.columns[this.by].sort ?? "lost";
  }

  sort(at) {
    this.descending = this.by === at ? !this.descending : this.columns[at].kind === "figure";
    this.by = at;
    this.mark();
    this.render();
    this.changed();
  }

  mark() {
    this.heads.forEach((cell, at) => {
      if (at === this.by) cell.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }

  show(rows, omitted = 0) {
    this.rows = rows;
    this.omitted = omitted;
    this.render();
  }

  render() {
    const column = this.columns[this.by];
    const sign = this.descending ? -1 : 1;
    const wanted = (this.filter?.value ?? "").trim().toLowerCase();
    const rows = this.rows
      .filter((row) => !wanted || this.columns[0].text(row).toLowerCase().includes(wanted))
      .sort((a, b) => {
        const [left, right] = [column.value(a), column.value(b)];
        return sign * (left < right ? -1 : left > right ? 1 : 0);
      });
    const most = Math.max(1e-12, ...rows.map(LOST.value));
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    while (this.body.rows.length < rows.length) {
      const cells = this.columns.map((column, at) => {
        const text = element("span", { className: column.share ? "share" : (column.className ?? "") });
        const head = at === 0 ? { scope: "row" } : {};
        return element(at === 0 ? "th" : "td", { className: column.kind, ...head }, text);
      });
      this.body.append(element("tr", {}, ...cells));
    }
    rows.forEach((row, line) => {
      const cells = this.body.rows[line].cells;
      this.columns.forEach((column, at) => {
        const text = column.text(row);
        const holder = cells[at].firstChild;
        if (holder.textContent !== text) {
          if (column.fill) column.fill(holder, row, text);
          else holder.textContent = text;
          if (at === 0) cells[at].title = text;
        }
        if (column.share) holder.style.setProperty("--share", (column.value(row) / most).toFixed(3));
      });
    });
    this.table.hidden = !this.rows.length;
    this.section.querySelector(".empty").hidden = this.rows.length > 0;
    const notes = [];
    if (this.rows.length && rows.length < this.rows.length) notes.push(`${count(rows.length)} of ${count(this.rows.length)} rows match`);
    if (this.omitted) notes.push(`${count(this.omitted)} more not shown`);
    this.note.textContent = notes.join("; ");
  }
}

