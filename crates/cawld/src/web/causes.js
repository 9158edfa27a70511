// The causes of a call's time: colours, and time per cause over time.

/** All causes, in the order of reports; colours and stripes are in causes.css. */
const CAUSES = [
  "call", "stream", "copy", "large folio", "new pages", "freed pages", "cold memory", "partial page read", "read",
  "copy up", "flusher beside", "throttle", "journal", "queue", "transfer", "seek", "device flush", "network", "lock",
  "preempted", "discard", "unexpected",
];

/** Causes that share the colour of another one are striped. */
const STRIPED = new Set([
  "stream", "large folio", "freed pages", "partial page read", "read", "copy up", "queue", "seek", "network",
  "preempted", "discard",
]);

/** Marks differ by shape as well as by colour: lines through these corners, closed if there are more than two; a disk without. */
const SHAPES = {
  disk: [],
  triangle: [[[0, -1.2], [1.1, 0.8], [-1.1, 0.8]]],
  diamond: [[[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]],
  plus: [[[-1, 0], [1, 0]], [[0, -1], [0, 1]]],
};

/** The shape of a cause: a disk in the page cache, a triangle waiting for others, a diamond for the device. */
const causeShape = (cause) => {
  if (["throttle", "flusher beside", "lock", "preempted"].includes(cause)) return "triangle";
  if (["journal", "queue", "transfer", "seek", "device flush", "network", "partial page read", "read", "copy up"].includes(cause)) return "diamond";
  return cause === "unexpected" ? "plus" : "disk";
};

/** Adds the mark of a cause to a path: about a place, in a size. */
function mark(path, cause, x, y, r) {
  const shape = SHAPES[causeShape(cause)];
  for (const corners of shape) {
    corners.forEach(([right, down], at) => path[at ? "lineTo" : "moveTo"](x + r * right, y + r * down));
    if (corners.length > 2) path.closePath();
  }
  if (shape.length) return;
  path.moveTo(x + r, y);
  path.arc(x, y, r, 0, 7);
}

/** Draws calls by their causes, where `place` says, in a size. */
function drawCalls(context, calls, place, r) {
  const paths = new Map();
  for (const call of calls) {
    if (!paths.has(call.cause)) paths.set(call.cause, new Path2D());
    mark(paths.get(call.cause), call.cause, ...place(call), r);
  }
  for (const [cause, path] of paths) {
    // The outline lies below, so that marks that cover each other keep their colour; a plus has no area.
    const isPlus = causeShape(cause) === "plus";
    context.fillStyle = causeColour(cause);
    context.lineWidth = isPlus ? 1.75 : 1;
    context.strokeStyle = isPlus ? context.fillStyle : `${palette.text}80`;
    context.stroke(path);
    if (!isPlus) context.fill(path);
  }
}

const causeName = (cause) => cause.replaceAll(" ", "-");

/** The colour of a cause, or of what is not listed; from the style sheet. */
function causeColour(cause) {
  const style = getComputedStyle(document.documentElement);
  return (style.getPropertyValue(`--cause-${causeName(cause)}`) || style.getPropertyValue("--cause-other")).trim();
}

/** What areas of a cause are filled with. */
function causeFill(context, cause) {
  const colour = causeColour(cause);
  return STRIPED.has(cause) ? hatch(context, colour) : colour;
}

/** Sums over points, seconds by cause. */
function sumCauses(points) {
  const sums = {};
  for (const { causes_s } of points) {
    for (const [cause, seconds] of Object.entries(causes_s)) sums[cause] = (sums[cause] ?? 0) + seconds;
  }
  return sums;
}

const sumOf = (sums) => Object.values(sums).reduce((sum, part) => sum + part, 0);

/** The causes with most time, at most `most`, with their shares; without those of less than 1 % beside others. */
function causeShares(sums, most) {
  const all = sumOf(sums);
  const shares = Object.entries(sums).map(([cause, part]) => [cause, part / all]).sort((a, b) => b[1] - a[1]);
  return shares.slice(0, most).filter(([, share], at) => at === 0 || share >= 0.01);
}

/** The `most` causes with most time, in the order of reports; `sums` has seconds by cause. */
function largestCauses(sums, most) {
  const all = sumOf(sums);
  const ranked = Object.keys(sums).filter((cause) => sums[cause] > all / 200).sort((a, b) => sums[b] - sums[a]);
  const listed = ranked.slice(0, most);
  return CAUSES.filter((cause) => listed.includes(cause));
}

/** An entry of a legend. */
function causeKey(cause) {
  return element("i", { className: `key cause-${causeName(cause)}${STRIPED.has(cause) ? " striped" : ""}` });
}

/** Buttons that hide calls of a cause; `hidden` has those hidden now. Buttons change only if other causes are met. */
function causeButtons(holder, met, hidden, changed) {
  const causes = [...CAUSES.filter((cause) => met.has(cause)), ...[...met].filter((cause) => !CAUSES.includes(cause))];
  if ([...holder.children].map((button) => button.textContent).join() === causes.join()) return;
  holder.replaceChildren(...causes.map((cause) => {
    const button = element("button", { type: "button", ariaPressed: !hidden.has(cause) }, causeKey(cause), cause);
    button.addEventListener("click", () => {
      if (!hidden.delete(cause)) hidden.add(cause);
      button.ariaPressed = !hidden.has(cause);
      changed();
    });
    return button;
  }));
}

/** Time per second of each cause, one upon the other; points have `causes_s`, seconds by cause. */
class CauseChart extends TimeChart {
  /** The causes that are drawn apart. */
  list = [];

  constructor(plot, series, legend) {
    super(plot, series);
    this.legend = legend;
  }

  /** Parts that are wide enough to be seen, and stay the same parts while time passes. */
  get points() {
    const all = super.points;
    const each = Math.max(1, Math.ceil((all.length * 2.5) / Math.max(100, this.plot.clientWidth)));
    const width = each * (this.series().step || 1);
    const groups = [];
    for (const point of all) {
      const [at, last] = [Math.floor(point.time_s / width + 1e-6), groups.at(-1)];
      if (last?.at === at && point.time_s - last.end < width) {
        last.points.push(point);
        last.end = point.time_s + point.span_s;
      } else groups.push({ at, begin: point.time_s, end: point.time_s + point.span_s, points: [point] });
    }
    return groups.map(({ begin, end, points }) => ({ time_s: begin, span_s: end - begin, causes_s: sumCauses(points) }));
  }

  options() {
    const axis = { incrs: RATE_STEPS, values: (uplot, ticks) => ticks.map(lostRate) };
    const lines = [...this.list, "other"].map((cause, at) => ({
      fill: (uplot) => causeFill(uplot.ctx, cause), width: 0, paths: this.bars(at),
    }));
    return this.chart({ range: () => [0, this.most] }, axis, lines);
  }

  /** Tells the largest causes apart, in the legend too, and says what they took. */
  tell() {
    const sums = sumCauses(this.points);
    const [all, list] = [sumOf(sums), largestCauses(sums, 8)];
    if (list.join() !== this.list.join()) {
      this.list = list;
      this.uplot?.destroy();
      this.uplot = null;
      if (this.plot.clientWidth) this.resize();
    }
    const rest = all > list.reduce((sum, cause) => sum + sums[cause], 0) * 1.0001 ? ["other"] : [];
    const told = [...list, ...rest];
    if ([...this.legend.children].map((item) => item.textContent).join() !== told.join()) {
      this.legend.replaceChildren(...told.map((cause) => element("li", {}, causeKey(cause), cause)));
    }
    const shares = causeShares(sums, 4).map(([cause, share]) => `${cause} ${percent(share)}`);
    this.summarize(
      all > 0
        ? `Time in calls: ${duration(all)} of ${duration(view.elapsed ?? view.span)} elapsed: ${shares.join(", ")}. Above 1 s/s several threads are in calls.`
        : "In this span no call took time.",
    );
  }

  /** Seconds per second of each cause drawn at a point, the others last. */
  parts(point) {
    const known = this.list.map((cause) => point.causes_s[cause] ?? 0);
    const other = Math.max(0, sumOf(point.causes_s) - known.reduce((sum, part) => sum + part, 0));
    return [...known, other].map((part) => part / point.span_s);
  }

  data() {
    this.stacks = this.points.map((point) => {
      let sum = 0;
      return [point, [0, ...this.parts(point).map((part) => (sum += part))]];
    });
    this.most = Math.max(0, ...this.stacks.map(([, stack]) => stack.at(-1))) * 1.08 || 1e-3;
    return this.columns((point) => this.parts(point));
  }

  /** A bar for each point, as wide as the time it covers. */
  bars(at) {
    return (uplot) => {
      const fill = new Path2D();
      for (const [point, stack] of this.stacks) {
        if (stack[at + 1] <= stack[at]) continue;
        const [from, until] = [point.time_s, point.time_s + point.span_s].map((time) => uplot.valToPos(time, "x", true));
        const [top, bottom] = [stack[at + 1], stack[at]].map((value) => uplot.valToPos(value, "y", true));
        fill.rect(from, top, until - from > 5 ? until - from - 1 : Math.max(until - from, 1), bottom - top);
      }
      return { fill };
    };
  }

  rows(point) {
    const rows = [...this.list, "other"].map((cause, at) => [cause, this.parts(point)[at]]).filter(([, part]) => part > 0);
    return rows.reverse().map(([cause, part]) => [causeKey(cause), cause, lostRate(part)]);
  }
}
