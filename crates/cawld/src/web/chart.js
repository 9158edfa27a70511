// Charts on canvas: sharp at any density of pixels, drawn when something changed and somebody looks.

/** Colours are the style sheet's; canvas cannot ask it by itself. */
const palette = {
  read() {
    const style = getComputedStyle(document.documentElement);
    for (const name of [
      "text", "muted", "grid", "card", "accent", "modelled", "sampled", "background", "freerun", "hard",
      "free", "flush", "throttle", "sync", "buffered", "zone-flush", "zone-throttle", "zone-good",
    ]) {
      this[name] = style.getPropertyValue(`--${name}`).trim();
    }
    this.font = `12px ${style.getPropertyValue("--sans").trim() || "sans-serif"}`;
  },
};

/** What all charts look at together: the end of the axis, and the moment pointed at. */
const view = { now: Date.now() / 1000, ahead: 0, span: 300, cursor: null, charts: new Set() };

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

class Chart {
  /** `plot` is the focusable element around the canvas. */
  constructor(plot) {
    this.plot = plot;
    this.canvas = plot.querySelector("canvas");
    this.context = this.canvas.getContext("2d");
    this.tip = plot.querySelector(".tip");
    this.summary = document.getElementById(plot.getAttribute("aria-describedby"));
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
      const box = this.canvas.getBoundingClientRect();
      this.point((event.clientX - box.left) / this.zoom, (event.clientY - box.top) / this.zoom);
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
    this.zoom = parseFloat(getComputedStyle(document.documentElement).fontSize) / 14;
    const scale = (devicePixelRatio || 1) * this.zoom;
    const width = Math.max(1, this.plot.clientWidth / this.zoom);
    const height = Math.max(1, this.plot.clientHeight / this.zoom);
    if (width === this.width && height === this.height && scale === this.scale) return;
    [this.width, this.height, this.scale] = [width, height, scale];
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.invalidate(true);
  }

  /** Something changed; with `now`, a person waits for it. */
  invalidate(now = false) {
    this.stale = true;
    this.hurried ||= now;
    painter.request();
  }

  paint(time) {
    if (!this.width) return;
    this.drawn = time;
    this.resize();
    this.stale = false;
    this.hurried = false;
    const context = this.context;
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = palette.font;
    context.lineJoin = "round";
    this.draw(context);
  }

  /** What is told to who cannot see, or does not look closely. */
  summarize(text) {
    if (this.summary.textContent !== text) this.summary.textContent = text;
  }

  /** The value at the cursor for who uses keys. */
  say(at, of, text) {
    this.plot.setAttribute("aria-valuemax", of);
    this.plot.setAttribute("aria-valuenow", at);
    this.plot.setAttribute("aria-valuetext", text);
  }

  /** Rows of [mark, name, value] beside a point of the plot. */
  showTip(x, title, rows) {
    const tip = this.tip;
    tip.replaceChildren();
    const head = document.createElement("strong");
    head.textContent = title;
    tip.append(head);
    for (const [mark, name, value] of rows) {
      const row = document.createElement("span");
      const key = document.createElement("i");
      if (mark) key.className = `key key-${mark}`;
      const label = document.createElement("span");
      label.textContent = name;
      const figure = document.createElement("b");
      figure.textContent = value;
      row.append(key, label, figure);
      tip.append(row);
    }
    tip.hidden = false;
    const room = tip.offsetWidth / this.zoom + 14;
    const left = x > this.width / 2 || x + room > this.width ? Math.max(0, x - room) : x + 14;
    tip.style.transform = `translate(${Math.round(left * this.zoom)}px, 6px)`;
  }

  hideTip() {
    this.tip.hidden = true;
  }
}

/** A step of 1, 2 or 5 times a power of ten (or of two, for bytes) that gives at most `most` steps. */
function niceStep(range, most, binary = false) {
  const raw = range / most;
  if (!(raw > 0)) return 1;
  if (binary) return 2 ** Math.ceil(Math.log2(raw));
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999) * power;
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** A chart over the time axis that all such charts share. */
class TimeChart extends Chart {
  constructor(plot, data) {
    super(plot);
    this.data = data;
    this.foot = 0;
  }

  get area() {
    const narrow = this.width < 480;
    const left = narrow ? 66 : 70;
    return { left, top: 10, right: this.width - 10, bottom: this.height - 22 - this.foot };
  }

  get begin() {
    return view.now - view.span;
  }

  get end() {
    return view.now + this.ahead;
  }

  /** How far this chart looks ahead. */
  get ahead() {
    return 0;
  }

  x(time) {
    const { left, right } = this.area;
    return left + ((time - this.begin) / (this.end - this.begin)) * (right - left);
  }

  timeAt(x) {
    const { left, right } = this.area;
    return this.begin + ((x - left) / (right - left)) * (this.end - this.begin);
  }

  /** The points in sight. */
  get points() {
    const series = this.data();
    const first = Math.max(0, series.find(this.begin) - 1);
    const last = series.find(view.now);
    return series.points.slice(first, last + 1);
  }

  /** Lines and labels of both axes; `ticks` are [y, label]. */
  axes(context, ticks) {
    const { left, right, top, bottom } = this.area;
    context.lineWidth = 1;
    context.strokeStyle = palette.grid;
    context.fillStyle = palette.muted;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.beginPath();
    for (const [y, label] of ticks) {
      const line = Math.round(y) + 0.5;
      context.moveTo(left, line);
      context.lineTo(right, line);
      context.fillText(label, left - 8, y);
    }
    context.stroke();
    const range = this.end - this.begin;
    const fits = (step) => (range / step) * (step < 60 ? 84 : 58) <= right - left;
    const step = TIME_STEPS.find(fits) ?? 86400;
    const zone = -new Date(view.now * 1000).getTimezoneOffset() * 60;
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    context.beginPath();
    for (let time = Math.ceil((this.begin + zone) / step) * step - zone; time <= this.end; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      context.moveTo(x, top);
      context.lineTo(x, bottom + this.foot);
      if (x > left + 12 && x < right - 12) context.fillText(clock(time, step < 60), x, this.height - 6);
    }
    context.stroke();
  }

  inside(context, draw) {
    const { left, right, top, bottom } = this.area;
    context.save();
    context.beginPath();
    context.rect(left, top - 4, right - left, bottom - top + 4.5);
    context.clip();
    draw();
    context.restore();
  }

  /**
   * A line through values of the points, broken where nothing is known. Where a point is narrower than
   * a pixel it costs a pixel all the same: there are at most a few hundred.
   */
  trace(context, points, value, y) {
    let open = false;
    let end = 0;
    for (const point of points) {
      const at = value(point);
      if (at == null || (open && point.time - end > 2.5 * Math.max(point.span, this.data().step, 1))) open = false;
      if (at == null) continue;
      const x = this.x(point.time + point.span / 2);
      if (open) context.lineTo(x, y(at));
      else {
        context.moveTo(this.x(point.time), y(at));
        context.lineTo(x, y(at));
      }
      open = true;
      end = point.time + point.span;
    }
  }

  crosshair(context) {
    if (view.cursor == null) return this.hideTip();
    const { left, right, top, bottom } = this.area;
    const x = this.x(view.cursor);
    if (x < left || x > right) return this.hideTip();
    context.strokeStyle = palette.text;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, top);
    context.lineTo(Math.round(x) + 0.5, bottom + this.foot);
    context.stroke();
    const series = this.data();
    const point = series.points[series.find(view.cursor)];
    if (!point || view.cursor > view.now) return this.hideTip();
    if (this.plot.matches(":hover, :focus")) this.showTip(x, this.when(point), this.rows(point));
    else this.hideTip();
  }

  when(point) {
    return clock(point.time) + (point.span > 1.5 ? ` + ${duration(point.span)}` : "");
  }

  point(x) {
    view.cursor = Math.min(this.timeAt(x), view.now);
    for (const chart of view.charts) if (chart instanceof TimeChart) chart.invalidate(true);
  }

  leave() {
    if (view.cursor == null) return;
    view.cursor = null;
    this.hideTip();
    for (const chart of view.charts) if (chart instanceof TimeChart) chart.invalidate(true);
  }

  step(by) {
    const series = this.data();
    if (!series.points.length) return this.say(0, 0, "nothing is known yet");
    const last = series.points.length - 1;
    const here = view.cursor == null ? last + (by < 0 ? 1 : 0) : series.find(view.cursor);
    const at = Math.min(last, Math.max(0, here + by));
    const point = series.points[at];
    view.cursor = Math.min(view.now, point.time + point.span / 2);
    const told = this.rows(point).map(([, name, value]) => `${name} ${value}`);
    this.say(at, last, `${clock(point.time)}: ${told.join(", ")}`);
    for (const chart of view.charts) if (chart instanceof TimeChart) chart.invalidate(true);
  }
}

