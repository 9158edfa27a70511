// The report's charts: the run over time, and densities of costs.

const told = JSON.parse(byId("data").textContent);

/** The buckets of the run as points of a series. */
function pointsOf(timeline) {
  const seconds = (ns) => ns / 1e9;
  let limits = timeline.limits[0] ?? { background: 0, hard: 0 };
  let next = 0;
  return timeline.calls.map((calls, at) => {
    while (timeline.limits[next] && timeline.limits[next].bucket <= at) limits = timeline.limits[next++];
    const causes = timeline.causes.filter(({ ns }) => ns[at] > 0).map(({ name, ns }) => [name, seconds(ns[at])]);
    return {
      time_s: seconds(timeline.from_ns + at * timeline.width_ns),
      span_s: seconds(timeline.width_ns),
      modelled_dirty_bytes: timeline.modelled.last[at],
      modelled_dirty_max_bytes: timeline.modelled.max[at],
      sampled_dirty_bytes: timeline.sampled.last[at],
      sampled_dirty_max_bytes: timeline.sampled.max[at],
      background_bytes: limits.background,
      hard_bytes: limits.hard,
      calls,
      bytes: timeline.bytes[at],
      causes_s: Object.fromEntries(causes),
    };
  });
}

/** Single calls, of columns. */
function callsOf(single) {
  return single.at_ns.map((at, row) => ({
    at_s: at / 1e9,
    observed_s: single.observed_ns[row] / 1e9,
    predicted_s: single.predicted_ns[row] / 1e9,
    cause: single.causes[single.cause[row]],
    op: single.ops[single.op[row]],
    path: single.files[single.file[row]],
    bytes: single.bytes[row],
  }));
}

/** The dirty level with calls over it, at the height of their duration on an axis of their own. */
class CallsChart extends DirtyChart {
  constructor(plot, series, calls) {
    super(plot, series);
    this.calls = calls.filter((call) => call.observed_s > 0);
    this.hidden = new Set();
    const costs = this.calls.map((call) => call.observed_s);
    this.costs = costs.length ? decades(Math.min(...costs), Math.max(...costs)) : [1e-6, 1e-3];
    const last = series().points.at(-1);
    if (last?.hard_bytes) this.status = last;
    const highest = Math.max(0, ...series().points.map((point) => Math.max(point.modelled_dirty_max_bytes, point.sampled_dirty_max_bytes)));
    // Where the limits are far above, the level would be a line at the bottom.
    this.fitData = highest < 0.2 * (last?.background_bytes ?? 0);
  }

  get ahead() {
    return 0;
  }

  get foot() {
    return 0;
  }

  forecast() {
    return [];
  }

  lanes() {}

  options() {
    const options = super.options();
    options.series.forEach((line, at) => (line.spanGaps = at !== 5));
    options.scales.cost = { distr: 3, range: () => this.costs };
    options.series.push({ scale: "cost", points: { show: false } });
    this.lines += 1;
    const costs = decadeAxis(26, { scale: "cost", side: 1, gap: 6, size: 58 * this.zoom, grid: { show: false } });
    options.axes.push(this.axis(costs));
    options.padding = [10, 0, 0, 0];
    return options;
  }

  get shown() {
    return this.calls.filter((call) => !this.hidden.has(call.cause));
  }

  place(call) {
    return [this.uplot.valToPos(call.at_s, "x"), this.uplot.valToPos(call.observed_s, "cost")];
  }

  finish() {
    this.pen((context) => {
      drawCalls(context, this.shown, (call) => this.place(call), 2.4);
    });
    super.finish();
    const call = this.chosen;
    if (!call || !this.plot.matches(":hover")) return;
    const [x, y] = this.place(call);
    this.pen((context) => {
      context.strokeStyle = palette.text;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, 6, 0, 7);
      context.stroke();
    });
    this.showTip(x, `${call.op}, ${bytes(call.bytes)}`, [
      [null, "at", duration(call.at_s)],
      [null, "observed", duration(call.observed_s)],
      [null, "predicted", duration(call.predicted_s)],
      [causeKey(call.cause), "cause", call.cause],
      [null, "file", printable(call.path).slice(-48)],
    ]);
  }

  rows(point) {
    return [
      ["modelled", "modelled", bytes(point.modelled_dirty_bytes)],
      ["sampled", "sampled", bytes(point.sampled_dirty_bytes)],
      ["hard", "hard limit", bytes(point.hard_bytes)],
      ["background", "background", bytes(point.background_bytes)],
      [null, "written", rate(point.bytes / point.span_s)],
      [null, "calls", count(point.calls)],
    ];
  }

  point(x, y) {
    let nearest = null;
    let best = 100;
    for (const call of this.shown) {
      const [left, top] = this.place(call);
      const distance = (left - x) ** 2 + (top - y) ** 2;
      if (distance < best) [nearest, best] = [call, distance];
    }
    const changed = nearest !== this.chosen;
    this.chosen = nearest;
    super.point(x);
    if (changed) this.invalidate(true);
  }

  leave() {
    this.chosen = null;
    super.leave();
    this.invalidate(true);
  }
}

/** How often calls cost how much, on a logarithmic axis; modes in the colours of their causes. */
class DensityChart extends Chart {
  constructor(plot, density, text) {
    super(plot);
    this.density = density;
    this.text = text;
    this.costs = density.density.map((_, at) => density.from * density.ratio ** at);
  }

  options() {
    const range = [this.costs[0], this.costs.at(-1) > this.costs[0] ? this.costs.at(-1) : this.costs[0] * 2];
    const splits = (uplot, axis, low, high) => {
      const ticks = [];
      const factors = Math.log10(high / low) > 2.5 ? [1] : [1, 2, 5];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
        ticks.push(...factors.map((factor) => factor * 10 ** power).filter((tick) => tick >= low && tick <= high));
      }
      return ticks;
    };
    const values = (uplot, ticks) => {
      const fits = (x) => x > 14 && x < uplot.bbox.width / uPlot.pxRatio - 10;
      return ticks.map((tick) => (fits(uplot.valToPos(tick, "x")) ? this.text(tick) : ""));
    };
    const x = { side: 2, splits, filter: (uplot, ticks) => ticks, values, gap: 6, size: 24 * this.zoom };
    return {
      scales: { x: { time: false, distr: 3, range: () => range }, y: { range: (uplot, low, high) => [0, (high || 1) * 1.08] } },
      series: [{}, { stroke: ink("text"), width: 1.25, points: { show: false } }],
      axes: [this.axis(x), this.axis({ show: false })],
      padding: [8, 20, 0, 14],
      hooks: { drawAxes: [() => this.ground()], draw: [() => this.finish()] },
    };
  }

  data() {
    return [this.costs, this.density.density];
  }

  /** The density at a cost, between two points in proportion. */
  height(cost) {
    const { density, from, ratio } = this.density;
    const at = Math.min(density.length - 1, Math.max(0, Math.log(cost / from) / Math.log(ratio)));
    const [low, part] = [Math.floor(at), at % 1];
    return density[low] * (1 - part) + (density[low + 1] ?? 0) * part;
  }

  /** Each mode from its begin to its end, filled up to the density. */
  ground() {
    this.pen((context, width, height) => {
      for (const mode of this.density.modes) {
        const inside = this.costs.filter((cost) => cost > mode.from && cost < mode.to);
        const outline = [mode.from, ...inside, mode.to].map((cost) => [cost, this.height(cost)]);
        context.beginPath();
        const place = ([cost, y]) => [this.uplot.valToPos(cost, "x"), this.uplot.valToPos(y, "y")];
        context.moveTo(place(outline[0])[0], height);
        for (const point of outline) context.lineTo(...place(point));
        context.lineTo(place(outline.at(-1))[0], height);
        context.closePath();
        context.globalAlpha = 0.85;
        context.fillStyle = causeFill(context, mode.cause);
        context.fill();
        context.globalAlpha = 1;
      }
    });
  }

  finish() {}
  point() {}
  leave() {}

  step() {
    this.say(0, 0, this.summary.textContent);
  }
}

/** ns per byte, or a part of a second. */
const perByte = (value) => `${value < 0.01 ? `${value.toExponential(0)} ns` : duration(value / 1e9)}/B`;

/** A factor. */
const times = (value) => `×${value < 0.01 || value >= 1e5 ? value.toExponential(0) : digits(value)}`;

/** Two figures for each operation: the density of its cost, and of observed over predicted time. */
function drawDensities(densities) {
  const room = byId("densities");
  const figure = (op, what, density, text) => {
    if (!density || density.calls < 10) return;
    const at = room.children.length;
    const modes = density.modes.map((mode) => `${percent(mode.share)} of the calls at ${text(mode.from)} to ${text(mode.to)}, ${percent(mode.time_share)} of the time (${mode.cause})`);
    const title = element("h3", { id: `density-${at}` }, `${printable(op)}: ${what}, ${count(density.calls)} calls`);
    const summary = element("p", { id: `density-${at}-summary`, className: "sub" }, `${modes.length} ${modes.length === 1 ? "mode" : "modes"}: ${modes.join("; ")}.`);
    const plot = element("div", { className: "plot density", tabIndex: 0, role: "img" }, element("div", { className: "tip", hidden: true }));
    plot.setAttribute("aria-labelledby", title.id);
    plot.setAttribute("aria-describedby", summary.id);
    room.append(element("figure", {}, title, plot, summary));
    new DensityChart(plot, density, text);
  };
  for (const { op, per_byte, per_call, over_predicted } of densities) {
    if (per_byte) figure(op, "cost per byte", per_byte, perByte);
    else figure(op, "cost per call", per_call, (ns) => duration(ns / 1e9));
    figure(op, "observed over predicted", over_predicted, times);
  }
  byId("densities-card").hidden = !room.children.length;
}

function draw(timeline) {
  const series = new Series(1);
  series.points = pointsOf(timeline);
  series.step = timeline.width_ns / 1e9;
  const last = series.points.at(-1);
  const begin = series.points[0].time_s;
  view.span = last.time_s + last.span_s - begin;
  view.now = last.time_s + last.span_s;
  view.elapsed = told.elapsed_s;
  const calls = callsOf(timeline.single);
  const dirty = new CallsChart(byId("dirty-plot"), () => series, calls);
  new CauseChart(byId("causes-plot"), () => series, byId("causes-legend")).tell();
  const met = new Set(calls.map((call) => call.cause));
  causeButtons(byId("calls-legend"), met, dirty.hidden, () => dirty.invalidate(true));
  const after = view.span > 1.05 * view.elapsed ? ` The axis goes on to the last sample, at ${duration(view.now)}.` : "";
  const highest = (name) => Math.max(0, ...series.points.map((point) => point[name]));
  const limit = last.hard_bytes ? `, hard limit ${bytes(last.hard_bytes)}, throttling from ${bytes(freerunOf(last))}` : "";
  dirty.summarize(
    `At most ${bytes(highest("modelled_dirty_max_bytes"))} modelled, ${bytes(highest("sampled_dirty_max_bytes") || null)} sampled${limit}. ` +
      `Marks (right axis): ${count(calls.length)} of ${count(timeline.single.of)} calls, among them the slowest of each ${duration(series.step)}, by the cause of most of their time.${after}`,
  );
  const fit = byId("fit");
  const tell = () => fit.setAttribute("aria-pressed", String(dirty.fitData));
  tell();
  fit.addEventListener("click", () => {
    dirty.fitData = !dirty.fitData;
    tell();
    dirty.invalidate(true);
  });
}

/** On paper all is light, in sight and open. */
function print(printing) {
  const { dataset } = document.documentElement;
  if (printing) [dataset.theme, dataset.printing] = ["light", ""];
  else {
    delete dataset.theme;
    delete dataset.printing;
  }
  palette.read();
  for (const details of document.querySelectorAll("details")) details.open = printing;
  for (const chart of view.charts) {
    chart.visible = true;
    chart.zoom = null;
    chart.resize();
    chart.paint(performance.now());
  }
}

view.dated = false;
view.tell = (seconds) => duration(Math.abs(seconds) < 1e-9 ? 0 : seconds);
palette.read();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  palette.read();
  for (const chart of view.charts) chart.invalidate(true);
});
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));
if (told.timeline) draw(told.timeline);
if (told.densities) drawDensities(told.densities);
