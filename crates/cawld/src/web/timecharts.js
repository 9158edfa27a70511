// The charts over time: dirty level with state bands, time lost, cost per call.

const DASH = { background: [10, 4], freerun: [8, 3, 2, 3], hard: [], forecast: [6, 4], clean: [1.5, 4] };

function freerun(point) {
  return (point.background + point.hard) / 2;
}

class DirtyChart extends TimeChart {
  constructor(plot, data) {
    super(plot, data);
    this.foot = 50;
    this.status = null;
    this.fitData = false;
  }

  get ahead() {
    return view.ahead;
  }

  rows(point) {
    return [
      ["modelled", "modelled", bytes(point.modelled)],
      ["sampled", "sampled", bytes(point.sampled)],
      ["hard", "hard limit", bytes(point.hard)],
      ["background", "background", bytes(point.background)],
      [point.state, "state", STATES[point.state]?.name ?? point.state],
      [null, "written by programs", rate(point.bytes / point.span)],
    ];
  }

  draw(context) {
    const { left, right, top, bottom } = this.area;
    const points = this.points;
    const status = this.status;
    let most = 0;
    for (const point of points) most = Math.max(most, point.modelledMax, point.sampledMax ?? 0);
    // Only the present limit must be in sight: one that was far higher for a moment would flatten all else.
    const limit = status?.hard_bytes ?? points.at(-1)?.hard ?? 0;
    if (!this.fitData) most = Math.max(most, limit * 1.06);
    most = Math.max(most * (this.fitData ? 1.1 : 1), 1 << 20);
    const y = (value) => bottom - (value / most) * (bottom - top);
    const step = niceStep(most, Math.max(2, Math.floor((bottom - top) / 38)), true);
    const ticks = [];
    for (let value = 0; value <= most; value += step) ticks.push([y(value), bytes(value)]);

    this.inside(context, () => {
      this.zone(context, points, y, "zone-flush", (point) => point.background, freerun);
      this.zone(context, points, y, "zone-throttle", freerun, (point) => point.hard);
    });
    this.axes(context, ticks);
    this.inside(context, () => {
      this.level(context, points, y);
      if (status) this.forecast(context, status, y);
      for (const [name, limit] of [["background", (point) => point.background], ["freerun", freerun], ["hard", (point) => point.hard]]) {
        context.strokeStyle = palette[name];
        context.lineWidth = 1.5;
        context.setLineDash(DASH[name]);
        context.beginPath();
        this.steps(context, points, limit, y);
        context.stroke();
      }
      context.setLineDash([]);
    });
    if (status) this.limits(context, status, y);
    if (this.ahead) {
      const x = Math.round(this.x(view.now)) + 0.5;
      context.strokeStyle = palette.muted;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, bottom + this.foot);
      context.stroke();
      context.fillStyle = palette.muted;
      context.textAlign = "left";
      context.textBaseline = "alphabetic";
      if (right - x > 80) context.fillText("forecast", x + 5, bottom + 14);
    }
    this.bands(context, points);
    this.crosshair(context);
  }

  /** Limits stand still and jump: as steps, up to the end of the axis. */
  steps(context, points, value, y) {
    let before = null;
    for (const point of points) {
      const at = Math.round(y(value(point))) + 0.5;
      if (before == null) context.moveTo(this.x(point.time), at);
      else if (at !== before) {
        context.lineTo(this.x(point.time), before);
        context.lineTo(this.x(point.time), at);
      }
      before = at;
    }
    if (before != null) context.lineTo(this.area.right, before);
  }

  zone(context, points, y, colour, low, high) {
    context.fillStyle = palette[colour];
    let begin = 0;
    for (let at = 1; at <= points.length; at += 1) {
      const same = at < points.length && points[at].background === points[begin].background && points[at].hard === points[begin].hard;
      if (same) continue;
      const from = Math.max(this.area.left, this.x(points[begin].time));
      const until = at < points.length ? this.x(points[at].time) : this.area.right;
      const upper = y(high(points[begin]));
      context.fillRect(from, upper, until - from, y(low(points[begin])) - upper);
      begin = at;
    }
  }

  level(context, points, y) {
    const now = this.x(view.now);
    // What the kernel counted: an area. Closed piece by piece, for where nothing was counted there is none.
    context.fillStyle = palette.sampled;
    context.strokeStyle = palette.sampled;
    context.lineWidth = 1;
    const floor = y(0);
    let piece = [];
    const close = () => {
      if (piece.length) {
        context.globalAlpha = 0.22;
        context.beginPath();
        context.moveTo(piece[0][0], floor);
        for (const [x, at] of piece) context.lineTo(x, at);
        context.lineTo(piece.at(-1)[0], floor);
        context.fill();
        context.globalAlpha = 1;
        context.beginPath();
        for (const [x, at] of piece) context.lineTo(x, at);
        context.stroke();
      }
      piece = [];
    };
    let end = -Infinity;
    for (const point of points) {
      if (point.sampled == null || point.time - end > 2.5 * Math.max(point.span, this.data().step, 1)) close();
      end = point.time + point.span;
      if (point.sampled == null) continue;
      if (!piece.length) piece.push([this.x(point.time), y(point.sampled)]);
      piece.push([this.x(point.time + point.span / 2), y(point.sampled)]);
    }
    const fresh = this.status && this.data().step <= 10 && view.now - end < 3 * this.data().step;
    if (piece.length && fresh && this.status.sampled_dirty_bytes != null) piece.push([now, y(this.status.sampled_dirty_bytes)]);
    close();
    // What was modelled: a line, and a thin one for the highest within each point where that differs.
    context.strokeStyle = palette.modelled;
    context.globalAlpha = 0.5;
    context.beginPath();
    this.trace(context, points, (point) => (point.modelledMax > point.modelled * 1.02 ? point.modelledMax : null), y);
    context.stroke();
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.beginPath();
    this.trace(context, points, (point) => point.modelled, y);
    if (points.length && fresh) context.lineTo(now, y(this.status.modelled_dirty_bytes));
    context.stroke();
  }

  /** Ahead: at the present rate (dashed) up to where writers are throttled, and if writing stops (dotted). */
  forecast(context, status, y) {
    const forecast = status.forecast;
    if (!forecast || !this.ahead) return;
    const from = [view.now, status.modelled_dirty_bytes];
    const path = [from];
    const limits = [[forecast.background_s, status.background_bytes], [forecast.throttle_s, freerunOf(status)]];
    for (const [seconds, level] of limits) {
      if (seconds > 0 && level > path.at(-1)[1]) path.push([view.now + seconds, level]);
    }
    context.strokeStyle = palette.modelled;
    context.lineWidth = 2;
    context.setLineDash(DASH.forecast);
    context.beginPath();
    if (path.length === 1) path.push([this.end, from[1]]);
    const [last, level] = path.at(-1);
    for (const [time, at] of path) context.lineTo(this.x(time), y(at));
    if (last < this.end && forecast.throttle_s > 0) context.lineTo(this.area.right, y(level));
    context.stroke();
    if (forecast.clean_s > 0 && from[1] > 0) {
      context.lineWidth = 1.5;
      context.setLineDash(DASH.clean);
      context.beginPath();
      context.moveTo(this.x(view.now), y(from[1]));
      context.lineTo(this.x(view.now + forecast.clean_s), y(0));
      context.stroke();
    }
    context.setLineDash([]);
    context.fillStyle = palette.modelled;
    for (const [time, at] of path.slice(1)) {
      if (at === from[1] || time > this.end) continue;
      context.beginPath();
      context.arc(this.x(time), y(at), 3.5, 0, 7);
      context.fill();
    }
  }

  /** Names of the limits on their lines, apart from each other. */
  limits(context, status, y) {
    const { right, top, bottom } = this.area;
    const narrow = this.width < 480;
    const names = [
      ["hard", `hard ${bytes(status.hard_bytes)}`, status.hard_bytes],
      ["freerun", `${narrow ? "" : "throttling from "}${bytes(freerunOf(status))}`, freerunOf(status)],
      ["background", `background ${bytes(status.background_bytes)}`, status.background_bytes],
    ];
    context.textAlign = "right";
    context.textBaseline = "alphabetic";
    let above = -Infinity;
    for (const [name, text, value] of names) {
      const line = y(value);
      if (line < top - 2 || line > bottom) continue;
      const at = Math.max(line - 5, above + 14, top + 8);
      if (at > bottom) continue;
      context.lineWidth = 3;
      context.strokeStyle = palette.card;
      context.strokeText(text, right - 4, at);
      context.fillStyle = palette[name];
      context.fillText(text, right - 4, at);
      above = at;
    }
  }

  /** The state under the level: one lane each, so that place tells it as well as colour. */
  bands(context, points) {
    const { left, right, bottom } = this.area;
    const lane = 11;
    const top = bottom + this.foot - 3 * (lane + 2) + 2;
    context.textAlign = "right";
    context.textBaseline = "middle";
    [...PHASES].reverse().forEach((state, row) => {
      const y = top + row * (lane + 2);
      context.fillStyle = palette.muted;
      context.fillText(state, left - 8, y + lane / 2);
      context.fillStyle = palette.grid;
      context.fillRect(left, y + lane - 1, right - left, 1);
      context.fillStyle = palette[state];
      let from = null;
      let until = 0;
      const close = () => {
        if (from != null) context.fillRect(from, y, Math.max(1, until - from), lane);
        from = null;
      };
      for (const point of points) {
        const begin = Math.max(left, this.x(point.time));
        if (point.state !== state || begin - until > 3) close();
        if (point.state !== state) continue;
        from ??= begin;
        until = Math.min(right, this.x(point.time + point.span));
      }
      close();
    });
  }

  tell() {
    const status = this.status;
    if (!status) return;
    const points = this.points;
    let most = 0;
    const shares = { free: 0, flush: 0, throttle: 0 };
    for (const point of points) {
      shares[point.state] += 1 / points.length;
      most = Math.max(most, point.modelledMax);
    }
    const worst =
      shares.flush + shares.throttle > 0
        ? `the worst state was flush in ${percent(shares.flush)} and throttle in ${percent(shares.throttle)} of its ${points.length} parts`
        : "free throughout";
    this.summarize(
      `Now ${bytes(status.modelled_dirty_bytes)} modelled, ${bytes(status.sampled_dirty_bytes)} sampled, ` +
        `hard limit ${bytes(status.hard_bytes)}. In this span: highest ${bytes(most)}; ${worst}.`,
    );
  }
}

function freerunOf(status) {
  return status.freerun_bytes || (status.background_bytes + status.hard_bytes) / 2;
}

class LostChart extends TimeChart {
  rows(point) {
    return [
      ["throttle", "throttled", lostRate(point.throttled / point.span)],
      ["sync", "sync", lostRate(point.sync / point.span)],
    ];
  }

  draw(context) {
    const { top, bottom } = this.area;
    const points = this.points;
    let most = 0.001;
    for (const point of points) most = Math.max(most, (point.throttled + point.sync) / point.span);
    most *= 1.08;
    const y = (value) => bottom - (value / most) * (bottom - top);
    const step = niceStep(most, Math.max(2, Math.floor((bottom - top) / 38)));
    const ticks = [];
    for (let value = 0; value <= most; value += step) ticks.push([y(value), value === 0 ? "0" : lostRate(value)]);
    this.axes(context, ticks);
    this.inside(context, () => {
      const throttled = (point) => point.throttled / point.span;
      this.bars(context, points, () => 0, throttled, y, palette.throttle);
      this.bars(context, points, throttled, (point) => throttled(point) + point.sync / point.span, y, hatch(context, palette.sync));
    });
    this.crosshair(context);
  }

  bars(context, points, low, high, y, style) {
    context.fillStyle = style;
    context.beginPath();
    for (const point of points) {
      const upper = y(high(point));
      const height = y(low(point)) - upper;
      if (height < 0.1) continue;
      const from = this.x(point.time);
      const width = this.x(point.time + point.span) - from;
      context.rect(from, upper, width > 5 ? width - 1 : Math.max(width, 1), Math.max(height, 1));
    }
    context.fill();
  }

  tell() {
    let [throttled, sync, span] = [0, 0, 0];
    for (const point of this.points) {
      throttled += point.throttled;
      sync += point.sync;
      span += point.span;
    }
    this.summarize(
      throttled + sync > 0
        ? `In this span programs lost ${duration(throttled)} to throttling and ${duration(sync)} to synchronous writing, ${lostRate((throttled + sync) / span)} on average.`
        : "In this span programs lost no time to throttling or synchronous writing.",
    );
  }
}

/** Stripes, so that colour is not all there is. */
function hatch(context, colour) {
  const tile = document.createElement("canvas");
  const scale = devicePixelRatio || 1;
  const size = Math.round(6 * scale);
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = colour;
  pen.globalAlpha = 0.45;
  pen.fillRect(0, 0, size, size);
  pen.globalAlpha = 1;
  pen.strokeStyle = colour;
  pen.lineWidth = 2 * scale;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  return pattern;
}

class CostChart extends TimeChart {
  rows(point) {
    return [
      ["observed", "observed", point.calls ? duration(point.observed / point.calls) : NOTHING],
      ["predicted", "predicted", point.calls ? duration(point.predicted / point.calls) : NOTHING],
      [null, "calls", `${count(point.calls / point.span)}/s`],
    ];
  }

  draw(context) {
    const { top, bottom } = this.area;
    const points = this.points;
    const mean = (name) => (point) => (point.calls > 0 && point[name] > 0 ? point[name] / point.calls : null);
    let [low, high] = [Infinity, 0];
    for (const point of points) {
      for (const value of [mean("observed")(point), mean("predicted")(point)]) {
        if (value == null) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (!high) [low, high] = [1e-5, 1e-2];
    [low, high] = decades(low, high);
    const y = (value) => bottom - (Math.log10(value / low) / Math.log10(high / low)) * (bottom - top);
    this.axes(context, decadeTicks(low, high, Math.floor((bottom - top) / 24)).map((value) => [y(value), duration(value)]));
    this.inside(context, () => {
      for (const [name, colour, dash] of [["observed", "sampled", []], ["predicted", "modelled", [6, 3]]]) {
        context.strokeStyle = palette[colour];
        context.lineWidth = 1.75;
        context.setLineDash(dash);
        context.beginPath();
        this.trace(context, points, mean(name), y);
        context.stroke();
      }
      context.setLineDash([]);
    });
    this.crosshair(context);
  }

  tell() {
    let [calls, observed, predicted] = [0, 0, 0];
    for (const point of this.points) {
      calls += point.calls;
      observed += point.observed;
      predicted += point.predicted;
    }
    this.summarize(
      calls
        ? `In this span ${count(calls)} calls, ${duration(observed / calls)} each as observed and ${duration(predicted / calls)} as predicted.`
        : "In this span no call was made.",
    );
  }
}

/** Whole powers of ten around values, at least one apart. */
function decades(low, high) {
  const from = Math.floor(Math.log10(Math.max(low, 1e-9)) + 1e-9);
  const until = Math.max(from + 1, Math.ceil(Math.log10(Math.max(high, 1e-9)) - 1e-9));
  return [10 ** from, 10 ** until];
}

/** The powers of ten between, with 2 and 5 where there is room, thinned out where there is none. */
function decadeTicks(low, high, most) {
  const [from, until] = [Math.round(Math.log10(low)), Math.round(Math.log10(high))];
  const step = Math.max(1, Math.ceil((until - from) / Math.max(1, most)));
  const ticks = [];
  if ((until - from) * 3 <= most) {
    for (let power = from; power < until; power += 1) ticks.push(10 ** power, 2 * 10 ** power, 5 * 10 ** power);
    return [...ticks, high];
  }
  for (let power = from; power <= until; power += step) ticks.push(10 ** power);
  return ticks;
}

