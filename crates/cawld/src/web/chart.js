// Charts by uPlot (vendor/), drawn when something changed and the chart is in sight.

/** Colours are the style sheet's; canvas cannot ask it by itself. */
const palette = {
  read() {
    const style = getComputedStyle(document.documentElement);
    for (const name of [
      "text", "muted", "grid", "card", "modelled", "sampled", "background", "freerun", "hard",
      "free", "flush", "throttle", "zone-flush", "zone-throttle", "zone-good",
    ]) {
      this[name] = style.getPropertyValue(`--${name}`).trim();
    }
  },
};

/** A colour of the palette as uPlot asks for it at each drawing; `alpha` in two hexadecimal digits. */
const ink = (name, alpha = "") => () => palette[name] + alpha;

/**
 * What all charts look at together: the end of the axis, its seconds (those of calls, if it goes on), the moment pointed
 * at, and how a moment is told: as a time of day, unless the page says otherwise.
 */
const view = { now: Date.now() / 1000, ahead: 0, span: 300, elapsed: null, cursor: null, charts: new Set(), dated: true, tell: clock };

/**
 * Draws what was invalidated, each chart no oftener than it says, and those that are nearly due with those
 * that are: a frame costs more than what is drawn in it.
 */
const painter = {
  framed: false,
  timer: null,
  wait(time) {
    let wait = Infinity;
    for (const chart of view.charts) {
      if (chart.stale && chart.visible) wait = Math.min(wait, chart.hurried ? 0 : chart.drawn + chart.interval - time);
    }
    return wait;
  },
  request() {
    if (this.framed || document.hidden) return;
    const wait = this.wait(performance.now());
    if (wait === Infinity) return;
    if (wait > 4) {
      this.timer ??= setTimeout(() => {
        this.timer = null;
        this.request();
      }, wait);
      return;
    }
    this.framed = true;
    requestAnimationFrame((time) => {
      this.framed = false;
      for (const chart of view.charts) {
        if (!chart.stale || !chart.visible) continue;
        if (chart.hurried || chart.drawn + chart.interval * 0.7 <= time) chart.paint(time);
      }
      this.request();
    });
  },
};

/** Pointer and keys are the page's own, the same for all charts. */
const UNBOUND = Object.fromEntries(
  ["mousedown", "mouseup", "click", "dblclick", "mousemove", "mouseleave", "mouseenter"].map((name) => [name, () => null]),
);

class Chart {
  /** `plot` is the focusable element around the chart. */
  constructor(plot) {
    this.plot = plot;
    this.tip = plot.querySelector(".tip");
    this.summary = byId(plot.getAttribute("aria-describedby"));
    this.stale = true;
    this.visible = true;
    this.drawn = -Infinity;
    this.interval = 200;
    view.charts.add(this);
    new ResizeObserver(() => this.resize()).observe(plot);
    new IntersectionObserver((entries) => {
      this.visible = entries.at(-1).isIntersecting;
      if (this.visible) painter.request();
    }).observe(plot);
    plot.addEventListener("pointermove", (event) => {
      const box = this.uplot.over.getBoundingClientRect();
      this.point(event.clientX - box.left, event.clientY - box.top);
    });
    plot.addEventListener("pointerleave", () => this.leave());
    plot.addEventListener("blur", () => this.leave());
    plot.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -20, PageUp: 20 }[event.key];
      if (step) this.step(step);
      else if (event.key === "Home") this.step(-Infinity);
      else if (event.key === "End") this.step(Infinity);
      else if (event.key === "Escape") this.leave();
      else return;
      event.preventDefault();
    });
  }

  resize() {
    // A chart grows with the page's letters, as on a very large screen.
    const style = getComputedStyle(document.documentElement);
    const zoom = parseFloat(style.fontSize) / 14;
    const size = { width: Math.max(1, this.plot.clientWidth), height: Math.max(1, this.plot.clientHeight) };
    if (this.uplot && zoom === this.zoom) this.uplot.setSize(size);
    else {
      this.zoom = zoom;
      this.font = `${12 * zoom}px ${style.getPropertyValue("--sans").trim() || "sans-serif"}`;
      this.uplot?.destroy();
      const all = {
        legend: { show: false },
        cursor: { y: false, points: { show: false }, drag: { setScale: false, x: false, y: false }, bind: UNBOUND },
        hooks: { draw: [() => this.finish()] },
      };
      this.uplot = new uPlot({ ...size, ...all, ...this.options() }, this.data(), (uplot, start) => {
        this.plot.prepend(uplot.root);
        uplot.root.ariaHidden = "true";
        start();
      });
    }
    this.invalidate(true);
  }

  /** An axis with these options of uPlot in addition to the common ones. */
  axis(options) {
    const grid = { stroke: ink("grid"), width: 1 };
    return { font: this.font, labelFont: this.font, stroke: ink("muted"), grid, ticks: { show: false }, ...options };
  }

  /** Something changed; with `now`, a person waits for it. */
  invalidate(now = false) {
    this.stale = true;
    this.hurried ||= now;
    painter.request();
  }

  paint(time) {
    if (!this.uplot) return;
    this.drawn = time;
    this.stale = false;
    this.hurried = false;
    this.uplot.setData(this.data());
  }

  /** Draws in CSS pixels from the upper left corner of the plotting area, as wide and high as told. */
  pen(draw) {
    const { ctx, bbox } = this.uplot;
    ctx.save();
    ctx.translate(bbox.left, bbox.top);
    ctx.scale(uPlot.pxRatio, uPlot.pxRatio);
    Object.assign(ctx, { font: this.font, lineJoin: "round", textAlign: "left", textBaseline: "alphabetic" });
    draw(ctx, bbox.width / uPlot.pxRatio, bbox.height / uPlot.pxRatio);
    ctx.restore();
  }

  /** The sentence above the chart. */
  summarize(text) {
    if (this.summary.textContent !== text) this.summary.textContent = text;
  }

  /** The value at the cursor, for screen readers. */
  say(at, of, text) {
    this.plot.setAttribute("aria-valuemax", of);
    this.plot.setAttribute("aria-valuenow", at);
    this.plot.setAttribute("aria-valuetext", text);
  }

  /** Rows of [mark, name, value], a mark being an element or its name, beside a point of the plotting area. */
  showTip(x, title, rows) {
    const tip = this.tip;
    const lines = rows.map(([mark, name, value]) => {
      const key = mark instanceof Element ? mark : element("i", { className: mark ? `key key-${mark}` : "" });
      return element("span", {}, key, element("span", {}, name), element("b", {}, value));
    });
    tip.replaceChildren(element("strong", {}, title), ...lines);
    tip.hidden = false;
    const at = x + this.uplot.bbox.left / uPlot.pxRatio;
    const [room, width] = [tip.offsetWidth + 14, this.plot.clientWidth];
    const left = at > width / 2 || at + room > width ? Math.max(0, at - room) : at + 14;
    tip.style.transform = `translate(${Math.round(left)}px, 6px)`;
  }

  hideTip() {
    this.tip.hidden = true;
  }
}

/** Whole powers of ten around values, at least one apart. */
function decades(low, high) {
  const from = Math.floor(Math.log10(Math.max(low, 1e-9)) + 1e-9);
  const until = Math.max(from + 1, Math.ceil(Math.log10(Math.max(high, 1e-9)) - 1e-9));
  return [10 ** from, 10 ** until];
}

/** A logarithmic axis of durations: powers of ten, with 2 and 5 where there is room, thinned out where there is none. */
function decadeAxis(space, options) {
  const splits = (uplot, axis, low, high) => {
    const { width, height } = uplot.bbox;
    const most = Math.floor((options.side === 2 ? width : height) / uPlot.pxRatio / space);
    const [from, until] = [Math.round(Math.log10(low)), Math.round(Math.log10(high))];
    const step = Math.max(1, Math.ceil((until - from) / Math.max(1, most)));
    const factors = (until - from) * 3 <= most ? [1, 2, 5] : [1];
    const ticks = [];
    for (let power = from; power < until; power += step) ticks.push(...factors.map((factor) => factor * 10 ** power));
    if ((until - from) % step === 0) ticks.push(high);
    return ticks;
  };
  return { ...options, splits, filter: (uplot, ticks) => ticks, values: (uplot, ticks) => ticks.map(duration) };
}
