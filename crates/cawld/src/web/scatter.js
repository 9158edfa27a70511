// Predicted against observed cost: a mark for each of the latest calls, on logarithmic axes.

/** Marks differ by shape as well as by colour: lines through these corners, closed if there are more than two; a disk without. */
const SHAPES = {
  free: [],
  flush: [[[0, -1.2], [1.1, 0.8], [-1.1, 0.8]]],
  throttle: [[[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]],
  sync: [[[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]],
  buffered: [[[-1, 0], [1, 0]], [[0, -1], [0, 1]]],
};

/** Adds the mark of a state to a path: about a place, in a size. */
function mark(path, state, x, y, r) {
  for (const corners of SHAPES[state]) {
    corners.forEach(([right, down], at) => path[at ? "lineTo" : "moveTo"](x + r * right, y + r * down));
    if (corners.length > 2) path.closePath();
  }
  if (SHAPES[state].length) return;
  path.moveTo(x + r, y);
  path.arc(x, y, r, 0, 7);
}

class ScatterChart extends Chart {
  constructor(plot, ring) {
    super(plot);
    this.ring = ring;
    this.hidden = new Set();
    this.interval = 1000;
    this.order = null;
    this.chosen = null;
  }

  get shown() {
    return this.ring.calls.filter((call) => call.observed_s > 0 && call.predicted_s > 0 && !this.hidden.has(call.state));
  }

  options() {
    const scale = { time: false, distr: 3, range: () => this.range };
    const marks = (state) => (uplot, at) => {
      const path = new Path2D();
      const [observed, predicted] = uplot.data[at];
      observed.forEach((cost, call) => {
        const [x, y] = [uplot.valToPos(cost, "x", true), uplot.valToPos(predicted[call], "y", true)];
        mark(path, state, x, y, 3.2 * uPlot.pxRatio);
      });
      return { stroke: path, fill: path };
    };
    const series = CALL_STATES.map((state) => ({
      facets: [{ scale: "x", auto: true }, { scale: "y", auto: true }],
      stroke: ink(state, "d9"), fill: ink(state, "4d"), width: 1.25, points: { show: false }, paths: marks(state),
    }));
    const label = { labelSize: 16 * this.zoom, labelGap: 0 };
    return {
      mode: 2,
      scales: { x: scale, y: scale },
      series: [{}, ...series],
      axes: [
        this.axis(decadeAxis(56, { ...label, side: 2, label: "observed", gap: 6, size: 22 * this.zoom })),
        this.axis(decadeAxis(24, { ...label, side: 3, label: "predicted", gap: 8, size: 56 * this.zoom })),
      ],
      padding: [10, 22, 0, 0],
      cursor: { show: false },
      hooks: { drawClear: [() => this.ground()], draw: [() => this.finish()] },
    };
  }

  data() {
    const calls = this.shown;
    const costs = calls.flatMap((call) => [call.observed_s, call.predicted_s]);
    this.range = calls.length ? decades(Math.min(...costs), Math.max(...costs)) : [1e-6, 1e-1];
    const columns = CALL_STATES.map((state) => {
      const own = calls.filter((call) => call.state === state);
      return [own.map((call) => call.observed_s), own.map((call) => call.predicted_s)];
    });
    return [null, ...columns];
  }

  /** Where predicted is observed, and within a factor of two of it. */
  ground() {
    this.pen((context, width, height) => {
      const [low, high] = this.range;
      const half = (Math.log10(2) / Math.log10(high / low)) * height;
      context.beginPath();
      context.rect(0, 0, width, height);
      context.clip();
      context.fillStyle = palette["zone-good"];
      context.beginPath();
      for (const [x, y] of [[0, height - half], [width, -half], [width, half], [0, height + half]]) context.lineTo(x, y);
      context.fill();
      context.strokeStyle = palette.muted;
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(0, height);
      context.lineTo(width, 0);
      context.stroke();
    });
  }

  place(call) {
    return [this.uplot.valToPos(call.observed_s, "x"), this.uplot.valToPos(call.predicted_s, "y")];
  }

  finish() {
    const call = this.chosen;
    this.pen((context, width, height) => {
      if (!this.shown.length) {
        context.fillStyle = palette.muted;
        context.textAlign = "center";
        context.fillText("no calls yet", width / 2, height / 2 - 20);
      }
      if (!call) return;
      context.strokeStyle = palette.text;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(...this.place(call), 7, 0, 7);
      context.stroke();
    });
    if (!call) return this.hideTip();
    // Above the diagonal and away from it, where hardly ever anything lies.
    this.showTip(-6, `${printable(call.op)}, ${bytes(call.bytes)}`, [
      [null, "observed", duration(call.observed_s)],
      [null, "predicted", duration(call.predicted_s)],
      [call.state, "state", STATES[call.state]?.name ?? printable(call.state)],
      [null, "process", String(call.pid)],
    ]);
  }

  choose(call) {
    if (call === this.chosen) return;
    this.chosen = call;
    this.invalidate(true);
  }

  point(x, y) {
    let nearest = null;
    let best = 144;
    for (const call of this.shown) {
      const [left, top] = this.place(call);
      const distance = (left - x) ** 2 + (top - y) ** 2;
      if (distance < best) [nearest, best] = [call, distance];
    }
    this.choose(nearest);
  }

  leave() {
    this.order = null;
    this.choose(null);
  }

  /** From the costliest down; the order stands still while keys are used. */
  step(by) {
    this.order ??= this.shown.sort((a, b) => a.observed_s - b.observed_s);
    const last = this.order.length - 1;
    if (last < 0) return this.say(0, 0, "no calls yet");
    const here = this.order.indexOf(this.chosen);
    const at = Math.min(last, Math.max(0, here < 0 ? last : here + by));
    const call = this.order[at];
    this.choose(call);
    this.say(
      at,
      last,
      `${printable(call.op)} of ${bytes(call.bytes)} by process ${call.pid}: observed ${duration(call.observed_s)}, ` +
        `predicted ${duration(call.predicted_s)}, ${STATES[call.state]?.name ?? printable(call.state)}`,
    );
  }

  tell() {
    const calls = this.shown;
    if (!calls.length) return this.summarize("No call to compare yet.");
    const ratios = calls.map((call) => call.predicted_s / call.observed_s).sort((a, b) => a - b);
    const near = ratios.filter((ratio) => ratio >= 0.5 && ratio <= 2).length / ratios.length;
    const begin = calls.reduce((first, call) => Math.min(first, call.time_s), Infinity);
    this.summarize(
      `The latest ${count(calls.length)} calls shown (of ${count(this.ring.total)} heard of), from ${clock(begin)} on: ` +
        `${percent(near)} predicted within a factor of two, the median is ${digits(ratios[ratios.length >> 1])} times the observed cost.`,
    );
  }
}
