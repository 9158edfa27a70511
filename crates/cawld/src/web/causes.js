// The causes of a call's time: colours, and time per cause over time.

/** All causes, in the order of reports; colours and stripes are in causes.css. */
const CAUSES = [
  "call", "stream", "copy", "new pages", "cold memory", "partial page read", "flusher beside", "throttle", "journal",
  "queue", "transfer", "seek", "device flush", "lock", "preempted", "discard", "unexpected",
];

/** Causes that share the colour of another one are striped. */
const STRIPED = new Set(["stream", "partial page read", "queue", "seek", "preempted", "discard"]);

/** Marks of causes: a place in the page cache is a disk, waiting for others a triangle, for the device a diamond. */
const causeShape = (cause) => {
  if (["throttle", "flusher beside", "lock", "preempted"].includes(cause)) return "flush";
  if (["journal", "queue", "transfer", "seek", "device flush", "partial page read"].includes(cause)) return "sync";
  return cause === "unexpected" ? "buffered" : "free";
};

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

/** The `most` causes with most time, in the order of reports; `sums` has seconds by cause. */
function largestCauses(sums, most) {
  const all = Object.values(sums).reduce((sum, part) => sum + part, 0);
  const ranked = Object.keys(sums).filter((cause) => sums[cause] > all / 200).sort((a, b) => sums[b] - sums[a]);
  const listed = ranked.slice(0, most);
  return CAUSES.filter((cause) => listed.includes(cause));
}

/** An entry of a legend. */
function causeKey(cause) {
  return element("i", { className: `key cause-${causeName(cause)}${STRIPED.has(cause) ? " striped" : ""}` });
}

/** Time per second of each cause, one upon the other; points have `causes_s`, seconds by cause. */
class CauseChart extends TimeChart {
  /** The causes that are drawn apart. */
  list = [];

  options() {
    const axis = { incrs: RATE_STEPS, values: (uplot, ticks) => ticks.map(lostRate) };
    const lines = [...this.list, "other"].map((cause, at) => ({
      fill: (uplot) => causeFill(uplot.ctx, cause), width: 0, paths: this.bars(at),
    }));
    return this.chart({ range: () => [0, this.most] }, axis, lines);
  }

  /** Chooses the causes to tell apart. */
  choose(sums, most = 8) {
    this.list = largestCauses(sums, most);
    this.uplot?.destroy();
    this.uplot = null;
    if (this.plot.clientWidth) this.resize();
  }

  /** Seconds per second of each cause drawn at a point, the others last. */
  parts(point) {
    const known = this.list.map((cause) => point.causes_s[cause] ?? 0);
    const all = Object.values(point.causes_s).reduce((sum, part) => sum + part, 0);
    const other = Math.max(0, all - known.reduce((sum, part) => sum + part, 0));
    return [...known, other].map((part) => part / point.span_s);
  }

  data() {
    this.stacks = this.points.map((point) => {
      let sum = 0;
      return [point, [0, ...this.parts(point).map((part) => (sum += part))]];
    });
    this.most = Math.max(1e-6, ...this.stacks.map(([, stack]) => stack.at(-1) * 1.08));
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
    return rows.reverse().map(([cause, part]) => [`cause-${causeName(cause)}`, cause, lostRate(part)]);
  }
}
