// The history on screen: the daemon's, and the pushes since.

/** Most points that the page asks for and keeps for a span. */
const POINTS = 600;

/** Points of one span of time as the daemon tells them, oldest first; their number is bounded by the span. */
class Series {
  constructor(span) {
    this.span = span;
    /** Length of a point made of pushes. */
    this.step = span / POINTS;
    this.points = [];
    this.latest = null;
    /** While a person reads a view that stands still, its past stays. */
    this.held = false;
  }

  /** The daemon's own history replaces everything older than its end. */
  load(history) {
    const points = history.points.map((point) => ({ ...point, causes_s: point.causes_s ?? {}, span_s: Math.max(point.span_s, 1e-3), live: 0 }));
    const end = points.length ? points.at(-1).time_s + points.at(-1).span_s : -Infinity;
    this.points = points.concat(this.points.filter((point) => point.live && point.time_s >= end));
    this.trim();
  }

  /** A status that was pushed: into the youngest point, or a new one. */
  push(status) {
    const sums = totals(status);
    const before = this.latest;
    this.latest = { time: status.time_s, sums };
    const elapsed = before ? status.time_s - before.time : 0;
    if (before && elapsed <= 0) {
      // The daemon's clock was set back: later points are dropped.
      this.points = this.points.filter((point) => point.time_s < status.time_s);
      return;
    }
    // What came after a pause of pushes has no place in time.
    const isCounted = before && elapsed < Math.max(5, 2 * this.step);
    let point = this.points.at(-1);
    // Points of the daemon's history are not counted again.
    let news = 1;
    if (!point || !point.live || status.time_s >= point.time_s + this.step) {
      const end = point ? point.time_s + point.span_s : -Infinity;
      const begin = isCounted ? before.time : status.time_s - Math.min(this.step, 1);
      if (before && end > before.time) news = Math.max(0, (status.time_s - end) / elapsed);
      point = {
        time_s: Math.min(Math.max(begin, end), status.time_s),
        state: "free",
        live: 0,
        ...totals({}),
      };
      this.points.push(point);
    }
    point.live += 1;
    point.span_s = Math.max(status.time_s - point.time_s, 1e-3);
    for (const level of ["modelled_dirty", "sampled_dirty"]) {
      const [mean, highest, now] = [`${level}_bytes`, `${level}_max_bytes`, status[`${level}_bytes`]];
      if (now == null) continue;
      const known = point[mean] ?? now;
      point[mean] = known + (now - known) / point.live;
      point[highest] = Math.max(point[highest] ?? 0, now);
    }
    point.background_bytes = status.background_bytes;
    point.hard_bytes = status.hard_bytes;
    if (PHASES.indexOf(status.state) > PHASES.indexOf(point.state)) point.state = status.state;
    if (isCounted) {
      const { causes_s: causes, ...figures } = sums;
      for (const name of Object.keys(figures)) point[name] += news * Math.max(0, sums[name] - before.sums[name]);
      for (const [cause, seconds] of Object.entries(causes)) {
        const more = news * (seconds - (before.sums.causes_s[cause] ?? 0));
        if (more > 0) point.causes_s[cause] = (point.causes_s[cause] ?? 0) + more;
      }
    }
    this.trim();
  }

  /** Forgets what is out of sight. */
  trim() {
    const last = this.points.at(-1);
    if (!last) return;
    const begin = this.held ? -Infinity : last.time_s + last.span_s - this.span * 1.02;
    let old = 0;
    while (old < this.points.length && this.points[old].time_s + this.points[old].span_s < begin) old += 1;
    if (old > 0) this.points.splice(0, old);
    if (this.points.length > 3 * POINTS) this.points.splice(0, this.points.length - 3 * POINTS);
  }

  /** The point that covers or is next to a moment; -1 if there is none. */
  find(time) {
    const points = this.points;
    let low = 0;
    let high = points.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (points[middle].time_s <= time) low = middle;
      else high = middle - 1;
    }
    return high < 0 ? -1 : low;
  }
}

/** What a status counts from the daemon's start, programs that ended included. */
function totals(status) {
  const { calls = 0, bytes = 0, drops = 0 } = status;
  const { observed_s = 0, predicted_s = 0, lost_s = 0 } = status.cost ?? {};
  return { calls, bytes, drops, observed_s, predicted_s, lost_s, causes_s: { ...status.causes_s } };
}

/** The latest calls, in a ring. */
class CallRing {
  constructor(size) {
    this.size = size;
    this.calls = [];
    this.next = 0;
    this.total = 0;
  }

  push(batch) {
    this.total += batch.total;
    for (const call of batch.calls) {
      this.calls[this.next] = { ...call, cause: call.cause || "unknown" };
      this.next = (this.next + 1) % this.size;
    }
  }
}

