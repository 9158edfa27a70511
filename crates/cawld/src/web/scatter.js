// Predicted against observed cost: a mark for each of the latest calls, on logarithmic axes.

/** Marks differ by shape as well as by colour. */
const SHAPES = {
  free(context, x, y, r) {
    context.moveTo(x + r, y);
    context.arc(x, y, r, 0, 7);
  },
  flush(context, x, y, r) {
    context.moveTo(x, y - r * 1.2);
    context.lineTo(x + r * 1.1, y + r * 0.8);
    context.lineTo(x - r * 1.1, y + r * 0.8);
    context.closePath();
  },
  throttle(context, x, y, r) {
    context.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
  },
  sync(context, x, y, r) {
    context.moveTo(x, y - r * 1.3);
    context.lineTo(x + r * 1.3, y);
    context.lineTo(x, y + r * 1.3);
    context.lineTo(x - r * 1.3, y);
    context.closePath();
  },
  buffered(context, x, y, r) {
    context.moveTo(x - r, y);
    context.lineTo(x + r, y);
    context.moveTo(x, y - r);
    context.lineTo(x, y + r);
  },
};

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

  draw(context) {
    const calls = this.shown;
    let [low, high] = [Infinity, 0];
    for (const call of calls) {
      low = Math.min(low, call.observed_s, call.predicted_s);
      high = Math.max(high, call.observed_s, call.predicted_s);
    }
    if (!calls.length) [low, high] = [1e-6, 1e-1];
    [low, high] = decades(low, high);
    const area = { left: 62, top: 10, right: this.width - 12, bottom: this.height - 40 };
    const scale = (value) => Math.log10(Math.min(Math.max(value, low), high) / low) / Math.log10(high / low);
    this.toX = (value) => area.left + scale(value) * (area.right - area.left);
    this.toY = (value) => area.bottom - scale(value) * (area.bottom - area.top);
    this.grid(context, area, low, high);
    for (const state of CALL_STATES) {
      const colour = palette[state];
      context.strokeStyle = colour;
      context.fillStyle = colour;
      context.lineWidth = 1.25;
      context.beginPath();
      for (const call of calls) {
        if (call.state === state) SHAPES[state](context, this.toX(call.observed_s), this.toY(call.predicted_s), 3.2);
      }
      context.globalAlpha = 0.3;
      context.fill();
      context.globalAlpha = 0.85;
      context.stroke();
      context.globalAlpha = 1;
    }
    if (!calls.length) {
      context.fillStyle = palette.muted;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText("no calls yet", (area.left + area.right) / 2, (area.top + area.bottom) / 2 - 20);
    }
    if (this.chosen) this.mark(context, this.chosen);
    else this.hideTip();
  }

  grid(context, area, low, high) {
    context.save();
    context.beginPath();
    context.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
    context.clip();
    // Within a factor of two of the truth.
    const half = (Math.log10(2) / Math.log10(high / low)) * (area.bottom - area.top);
    context.fillStyle = palette["zone-good"];
    context.beginPath();
    context.moveTo(area.left, area.bottom - half);
    context.lineTo(area.right, area.top - half);
    context.lineTo(area.right, area.top + half);
    context.lineTo(area.left, area.bottom + half);
    context.fill();
    context.restore();
    context.fillStyle = palette.muted;
    context.strokeStyle = palette.grid;
    context.lineWidth = 1;
    context.beginPath();
    for (const value of decadeTicks(low, high, Math.floor((area.right - area.left) / 56))) {
      const x = Math.round(this.toX(value)) + 0.5;
      context.moveTo(x, area.top);
      context.lineTo(x, area.bottom);
      context.textAlign = "center";
      context.textBaseline = "alphabetic";
      const label = duration(value);
      // Clear of the other axis' labels on the left, and whole on the right.
      const half = context.measureText(label).width / 2;
      const at = Math.min(Math.max(x, area.left + half - 2), this.width - half - 1);
      context.fillText(label, at, area.bottom + 15);
    }
    for (const value of decadeTicks(low, high, Math.floor((area.bottom - area.top) / 24))) {
      const y = Math.round(this.toY(value)) + 0.5;
      context.moveTo(area.left, y);
      context.lineTo(area.right, y);
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillText(duration(value), area.left - 8, y);
    }
    context.stroke();
    context.strokeStyle = palette.muted;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(area.left, area.bottom);
    context.lineTo(area.right, area.top);
    context.stroke();
    context.setLineDash([]);
    context.textAlign = "right";
    context.textBaseline = "alphabetic";
    context.fillText("observed →", area.right, area.bottom + 33);
    context.textAlign = "left";
    context.fillText("↑ predicted", area.left + 6, area.top + 12);
  }

  mark(context, call) {
    const x = this.toX(call.observed_s);
    context.strokeStyle = palette.text;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, this.toY(call.predicted_s), 7, 0, 7);
    context.stroke();
    // Above the diagonal and away from it, where hardly ever anything lies.
    this.showTip(56, `${printable(call.op)}, ${bytes(call.bytes)}`, [
      [null, "observed", duration(call.observed_s)],
      [null, "predicted", duration(call.predicted_s)],
      [call.state, "state", STATES[call.state]?.name ?? printable(call.state)],
      [null, "process", String(call.pid)],
    ]);
  }

  point(x, y) {
    if (!this.toX) return;
    let nearest = null;
    let best = 144;
    for (const call of this.shown) {
      const distance = (this.toX(call.observed_s) - x) ** 2 + (this.toY(call.predicted_s) - y) ** 2;
      if (distance < best) [nearest, best] = [call, distance];
    }
    if (nearest === this.chosen) return;
    this.chosen = nearest;
    this.invalidate(true);
  }

  leave() {
    this.order = null;
    if (!this.chosen) return;
    this.chosen = null;
    this.hideTip();
    this.invalidate(true);
  }

  /** From the costliest down; the order stands still while keys are used. */
  step(by) {
    this.order ??= this.shown.sort((a, b) => a.observed_s - b.observed_s);
    const last = this.order.length - 1;
    if (last < 0) return this.say(0, 0, "no calls yet");
    const here = this.order.indexOf(this.chosen);
    const at = Math.min(last, Math.max(0, here < 0 ? last : here + by));
    const call = this.order[at];
    this.chosen = call;
    this.say(
      at,
      last,
      `${printable(call.op)} of ${bytes(call.bytes)} by process ${call.pid}: observed ${duration(call.observed_s)}, ` +
        `predicted ${duration(call.predicted_s)}, ${STATES[call.state]?.name ?? printable(call.state)}`,
    );
    this.invalidate(true);
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

