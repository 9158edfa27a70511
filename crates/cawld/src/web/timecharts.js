// The charts over time: dirty level with state bands, cost per call.

const TIME_STEPS = [...Array.from({ length: 27 }, (_, at) => [1, 2, 5][at % 3] * 10 ** (Math.floor(at / 3) - 9)), 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const BYTE_STEPS = Array.from({ length: 53 }, (_, power) => 2 ** power);
const RATE_STEPS = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((factor) => factor * 10 ** (power - 6))).flat();

/** A chart over the common time axis. */
class TimeChart extends Chart {
  constructor(plot, series) {
    super(plot);
    this.series = series;
  }

  /** How far this chart looks ahead. */
  get ahead() {
    return 0;
  }

  get begin() {
    return view.now - view.span;
  }

  get end() {
    return view.now + this.ahead;
  }

  /** `lines` are the series after the time, `foot` is kept free below the plotting area. */
  chart(y, axis, lines, foot = 0, more = {}) {
    this.lines = lines.length;
    const times = (uplot, times, at, space, step) => {
      const width = uplot.bbox.width / uPlot.pxRatio;
      const fits = (x) => x > 12 && x < width - 12;
      return times.map((time) => (fits(uplot.valToPos(time, "x")) ? view.tell(time, step < 60) : ""));
    };
    return {
      scales: { x: { time: view.dated, range: () => [this.begin, this.end] }, y },
      series: [{}, ...lines.map((line) => ({ points: { show: false }, ...line }))],
      axes: [
        this.axis({ incrs: TIME_STEPS, space: 74 * this.zoom, gap: 7 + foot, size: 24 * this.zoom + foot, values: times }),
        this.axis({ space: 38, gap: 8, size: 70 * this.zoom, ...axis }),
      ],
      padding: [10, 16, 0, 0],
      ...more,
    };
  }

  /** The points in sight. */
  get points() {
    const series = this.series();
    const first = Math.max(0, series.find(this.begin) - 1);
    const last = series.find(view.now);
    return series.points.slice(first, last + 1);
  }

  /** The sums of these fields over the points in sight. */
  sums(...names) {
    const points = this.points;
    return names.map((name) => points.reduce((sum, point) => sum + point[name], 0));
  }

  /** A column of times and one for each line; where nothing was recorded, an empty row breaks the lines. */
  columns(values, further = () => []) {
    const rows = [];
    let end = Infinity;
    for (const point of this.points) {
      if (point.time_s - end > 2.5 * Math.max(point.span_s, this.series().step, 1)) rows.push([point.time_s]);
      end = point.time_s + point.span_s;
      rows.push([point.time_s + point.span_s / 2, ...values(point)]);
    }
    rows.push(...further(end));
    if (!rows.length) rows.push([this.begin], [this.end]);
    rows.sort((a, b) => a[0] - b[0]);
    return Array.from({ length: 1 + this.lines }, (_, at) => rows.map((row) => row[at] ?? null));
  }

  /** The line at the moment pointed at, and the figures there if it is this chart that is pointed at. */
  finish() {
    const x = view.cursor == null ? NaN : this.uplot.valToPos(view.cursor, "x");
    const inside = x >= 0 && x <= this.uplot.over.clientWidth;
    this.uplot.setCursor(inside ? { left: x, top: 0 } : { left: -10, top: -10 });
    const series = this.series();
    const point = series.points[series.find(view.cursor)];
    if (inside && point && view.cursor <= view.now && this.plot.matches(":hover, :focus")) {
      const when = view.tell(point.time_s) + (point.span_s > 1.5 ? ` + ${duration(point.span_s)}` : "");
      this.showTip(x, when, this.rows(point));
    } else this.hideTip();
  }

  /** Moves the cursor of all charts over time. */
  pointAt(time) {
    view.cursor = time;
    for (const chart of view.charts) if (chart instanceof TimeChart && chart.uplot) chart.finish();
  }

  point(x) {
    this.pointAt(Math.min(this.uplot.posToVal(x, "x"), view.now));
  }

  leave() {
    if (view.cursor != null) this.pointAt(null);
  }

  step(by) {
    const series = this.series();
    if (!series.points.length) return this.say(0, 0, "nothing is known yet");
    const last = series.points.length - 1;
    const here = view.cursor == null ? last + (by < 0 ? 1 : 0) : series.find(view.cursor);
    const at = Math.min(last, Math.max(0, here + by));
    const point = series.points[at];
    const told = this.rows(point).map(([, name, value]) => `${name} ${value}`);
    this.say(at, last, `${view.tell(point.time_s)}: ${told.join(", ")}`);
    this.pointAt(Math.min(view.now, point.time_s + point.span_s / 2));
  }
}

/** Where throttling begins, by a status or a point of the past. */
function freerunOf(status) {
  return status.freerun_bytes || (status.background_bytes + status.hard_bytes) / 2;
}

class DirtyChart extends TimeChart {
  constructor(plot, series) {
    super(plot, series);
    this.status = null;
    this.fitData = false;
  }

  get ahead() {
    return view.ahead;
  }

  /** Room for the states below. */
  get foot() {
    return 50;
  }

  options() {
    const steps = uPlot.paths.stepped({ align: 1 });
    const axis = { incrs: BYTE_STEPS, values: (uplot, ticks) => ticks.map(bytes) };
    const lines = [
      { stroke: ink("hard"), width: 1.5, paths: steps },
      { stroke: ink("freerun"), width: 1.5, dash: [8, 3, 2, 3], paths: steps },
      { stroke: ink("background"), width: 1.5, dash: [10, 4], paths: steps },
      { stroke: ink("sampled"), width: 1, fill: ink("sampled", "38") },
      { stroke: ink("modelled", "80"), width: 1 },
      { stroke: ink("modelled"), width: 2 },
      { stroke: ink("modelled"), width: 2, dash: [6, 4], spanGaps: true, points: { size: 7, fill: ink("modelled"), filter: met } },
      { stroke: ink("modelled"), width: 1.5, dash: [1.5, 4], spanGaps: true },
    ];
    // Where the forecast meets a limit.
    function met(uplot, at) {
      const [times, levels] = [uplot.data[0], uplot.data[at]];
      const now = levels.find((level) => level != null);
      return [...levels.keys()].filter((row) => levels[row] > now && times[row] < uplot.scales.x.max);
    }
    const bands = [
      { series: [1, 2], fill: ink("zone-throttle") },
      { series: [2, 3], fill: ink("zone-flush") },
    ];
    return this.chart({ range: () => [0, this.most] }, axis, lines, this.foot, { bands });
  }

  data() {
    const [points, status] = [this.points, this.status];
    const highest = Math.max(...points.map((point) => Math.max(point.modelled_dirty_max_bytes, point.sampled_dirty_max_bytes ?? 0)), 0);
    // Only the present limit must be in sight: one that was far higher for a moment would flatten all else.
    const limit = this.fitData ? 0 : (status?.hard_bytes ?? points.at(-1)?.hard_bytes ?? 0) * 1.06;
    this.most = Math.max(highest * (this.fitData ? 1.1 : 1), limit, 1 << 20);
    const values = (point) => [
      point.hard_bytes, freerunOf(point), point.background_bytes, point.sampled_dirty_bytes,
      point.modelled_dirty_max_bytes > point.modelled_dirty_bytes * 1.02 ? point.modelled_dirty_max_bytes : null, point.modelled_dirty_bytes,
    ];
    return this.columns(values, (end) => (status && points.length ? this.forecast(status, end) : []));
  }

  /**
   * From now to the end of the axis: the limits as they are, the level at the present rate up to where writers are
   * throttled, and the level if writing stops.
   */
  forecast(status, end) {
    const limits = [status.hard_bytes, freerunOf(status), status.background_bytes];
    const level = status.modelled_dirty_bytes;
    const step = this.series().step;
    const fresh = step <= 10 && view.now - end < 3 * step;
    const rows = [[view.now, ...limits, fresh ? status.sampled_dirty_bytes : null, null, fresh ? level : null]];
    const { forecast } = status;
    if (forecast && this.ahead) {
      rows[0][7] = level;
      let highest = level;
      for (const [seconds, limit] of [[forecast.background_s, limits[2]], [forecast.throttle_s, limits[1]]]) {
        if (!(seconds > 0 && limit > highest)) continue;
        highest = limit;
        rows.push([view.now + seconds, ...limits, null, null, null, highest]);
      }
      if (forecast.clean_s > 0 && level > 0) {
        rows[0][8] = level;
        rows.push([view.now + forecast.clean_s, ...limits, null, null, null, null, 0]);
      }
      // Throttled, it stays where it is; without a limit ahead it stays as well.
      const last = [this.end, ...limits];
      if (forecast.throttle_s > 0 || highest === level) last[7] = highest;
      rows.push(last);
    } else rows.push([this.end, ...limits]);
    return rows;
  }

  rows(point) {
    return [
      ["modelled", "modelled", bytes(point.modelled_dirty_bytes)],
      ["sampled", "sampled", bytes(point.sampled_dirty_bytes)],
      ["hard", "hard limit", bytes(point.hard_bytes)],
      ["background", "background", bytes(point.background_bytes)],
      [point.state, "state", STATES[point.state]?.name ?? point.state],
      [null, "written by programs", rate(point.bytes / point.span_s)],
    ];
  }

  finish() {
    this.pen((context, width, height) => {
      if (this.ahead) {
        const x = Math.round(this.uplot.valToPos(view.now, "x")) + 0.5;
        context.fillStyle = palette.muted;
        context.fillRect(x, 0, 1, height + 50);
        if (width - x > 80) context.fillText("forecast", x + 5, height + 13);
      }
      if (this.status) this.limits(context, width, height);
      this.lanes(context, width, height);
    });
    super.finish();
  }

  /** Names of the limits on their lines, apart from each other. */
  limits(context, width, height) {
    const status = this.status;
    const names = [
      ["hard", "hard ", status.hard_bytes],
      ["freerun", width < 400 ? "" : "throttling from ", freerunOf(status)],
      ["background", "background ", status.background_bytes],
    ];
    context.textAlign = "right";
    let above = -Infinity;
    for (const [name, text, value] of names) {
      const line = this.uplot.valToPos(value, "y");
      const at = Math.max(line - 5, above + 14, 8);
      if (line < -2 || line > height || at > height) continue;
      context.lineWidth = 3;
      context.strokeStyle = palette.card;
      context.strokeText(text + bytes(value), width - 4, at);
      context.fillStyle = palette[name];
      context.fillText(text + bytes(value), width - 4, at);
      above = at;
    }
  }

  /** The state below the level: one lane each, so that place tells it as well as colour. */
  lanes(context, width, height) {
    const x = (time) => Math.min(width, Math.max(0, this.uplot.valToPos(time, "x")));
    context.textAlign = "right";
    context.textBaseline = "middle";
    const points = this.points;
    [...PHASES].reverse().forEach((state, row) => {
      const y = height + 13 + row * 13;
      context.fillStyle = palette.muted;
      context.fillText(state, -8, y + 5.5);
      context.fillStyle = palette.grid;
      context.fillRect(0, y + 10, width, 1);
      context.fillStyle = palette[state];
      let until = -Infinity;
      for (const point of points) {
        const begin = x(point.time_s);
        // No seam between parts that touch.
        const from = point.state === state && begin - until > 3 ? Math.floor(begin) : Math.min(until, Math.floor(begin));
        until = point.state === state ? Math.max(Math.ceil(x(point.time_s + point.span_s)), from + 1) : -Infinity;
        if (until > from) context.fillRect(from, y, until - from, 11);
      }
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
      most = Math.max(most, point.modelled_dirty_max_bytes);
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

/** Stripes, so that colour is not all there is. */
function hatch(context, colour) {
  const tile = document.createElement("canvas");
  const scale = uPlot.pxRatio;
  const size = Math.round(6 * scale);
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = `${colour}73`;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = colour;
  pen.lineWidth = 2 * scale;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

class CostChart extends TimeChart {
  options() {
    return this.chart({ distr: 3, range: () => decades(this.low, this.high) }, decadeAxis(24, { side: 3 }), [
      { stroke: ink("sampled"), width: 1.75 },
      { stroke: ink("modelled"), width: 1.75, dash: [6, 3] },
    ]);
  }

  data() {
    const mean = (point, name) => (point.calls > 0 && point[name] > 0 ? point[name] / point.calls : null);
    const columns = this.columns((point) => [mean(point, "observed_s"), mean(point, "predicted_s")]);
    const values = columns.slice(1).flat().filter((value) => value != null);
    [this.low, this.high] = values.length ? [Math.min(...values), Math.max(...values)] : [1e-5, 1e-2];
    return columns;
  }

  rows(point) {
    return [
      ["observed", "observed", point.calls ? duration(point.observed_s / point.calls) : NOTHING],
      ["predicted", "predicted", point.calls ? duration(point.predicted_s / point.calls) : NOTHING],
      [null, "calls", `${count(point.calls / point.span_s)}/s`],
    ];
  }

  tell() {
    const [calls, observed, predicted] = this.sums("calls", "observed_s", "predicted_s");
    this.summarize(
      calls
        ? `In this span ${count(calls)} calls, ${duration(observed / calls)} each as observed and ${duration(predicted / calls)} as predicted.`
        : "In this span no call was made.",
    );
  }
}
