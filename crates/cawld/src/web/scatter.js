// Predicted against observed cost: a mark for each of the latest calls by its main cause, on logarithmic axes.

class ScatterChart extends Chart {
  constructor(plot, ring, legend) {
    super(plot);
    this.ring = ring;
    this.legend = legend;
    this.hidden = new Set();
    this.interval = 1000;
    this.order = null;
    this.chosen = null;
  }

  get shown() {
    return this.ring.calls.filter((call) => call.observed_s > 0 && call.predicted_s > 0 && !this.hidden.has(call.cause));
  }

  options() {
    const scale = { time: false, distr: 3, range: () => this.range };
    // Calls are drawn on the axes, by their causes.
    const series = { facets: [{ scale: "x", auto: true }, { scale: "y", auto: true }], points: { show: false }, paths: () => null };
    const label = { labelSize: 16 * this.zoom, labelGap: 0 };
    return {
      mode: 2,
      scales: { x: scale, y: scale },
      series: [{}, series],
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
    // Those that the axes have room for, whatever comes before they are drawn.
    this.calls = calls;
    const costs = calls.flatMap((call) => [call.observed_s, call.predicted_s]);
    this.range = calls.length ? decades(Math.min(...costs), Math.max(...costs)) : [1e-6, 1e-1];
    return [null, [calls.map((call) => call.observed_s), calls.map((call) => call.predicted_s)]];
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
      if (!this.calls.length) {
        context.fillStyle = palette.muted;
        context.textAlign = "center";
        context.fillText("no calls yet", width / 2, height / 2 - 20);
      }
      drawCalls(context, this.calls, (call) => this.place(call), 2.8);
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
      [causeKey(call.cause), "main cause", printable(call.cause)],
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
        `predicted ${duration(call.predicted_s)}, mostly ${printable(call.cause)}`,
    );
  }

  tell() {
    const changed = () => {
      this.invalidate(true);
      this.tell();
    };
    causeButtons(this.legend, new Set(this.ring.calls.map((call) => call.cause)), this.hidden, changed);
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
