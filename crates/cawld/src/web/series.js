// The history on screen: the daemon's, and the pushes since.

/** Most points that the page asks for and keeps for a span. */
const POINTS = 600;

/** Points of one span of time, oldest first; their number is bounded by the span. */
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
    const points = history.points.map((point) => ({
      time: point.time_s,
      span: Math.max(point.span_s, 1e-3),
      modelled: point.modelled_dirty_bytes,
      modelledMax: point.modelled_dirty_max_bytes,
      sampled: point.sampled_dirty_bytes ?? null,
      sampledMax: point.sampled_dirty_max_bytes ?? null,
      background: point.background_bytes,
      hard: point.hard_bytes,
      state: point.state,
      calls: point.calls,
      bytes: point.bytes,
      observed: point.observed_s,
      predicted: point.predicted_s,
      throttled: point.throttled_s,
      sync: point.sync_s,
      written: point.written_bytes,
      drops: point.drops,
      live: 0,
    }));
    const end = points.length ? points.at(-1).time + points.at(-1).span : -Infinity;
    this.points = points.concat(this.points.filter((point) => point.live && point.time >= end));
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
      this.points = this.points.filter((point) => point.time < status.time_s);
      return;
    }
    let point = this.points.at(-1);
    // Points of the daemon's history are not counted again.
    let news = 1;
    if (!point || !point.live || status.time_s >= point.time + this.step) {
      const end = point ? point.time + point.span : -Infinity;
      const begin = before && elapsed < 2 * this.step ? before.time : status.time_s - Math.min(this.step, 1);
      if (before && end > before.time) news = Math.max(0, (status.time_s - end) / elapsed);
      point = {
        time: Math.min(Math.max(begin, end), status.time_s),
        span: 0, modelled: 0, modelledMax: 0, sampled: null, sampledMax: null, background: 0, hard: 0,
        state: "free", calls: 0, bytes: 0, observed: 0, predicted: 0, throttled: 0, sync: 0, written: 0, drops: 0,
        live: 0,
      };
      this.points.push(point);
    }
    point.live += 1;
    point.span = Math.max(status.time_s - point.time, 1e-3);
    point.modelled += (status.modelled_dirty_bytes - point.modelled) / point.live;
    point.modelledMax = Math.max(point.modelledMax, status.modelled_dirty_bytes);
    if (status.sampled_dirty_bytes != null) {
      const sampled = point.sampled ?? status.sampled_dirty_bytes;
      point.sampled = sampled + (status.sampled_dirty_bytes - sampled) / point.live;
      point.sampledMax = Math.max(point.sampledMax ?? 0, status.sampled_dirty_bytes);
    }
    point.background = status.background_bytes;
    point.hard = status.hard_bytes;
    if (PHASES.indexOf(status.state) > PHASES.indexOf(point.state)) point.state = status.state;
    if (before && elapsed < Math.max(5, 2 * this.step)) {
      for (const name of Object.keys(sums)) point[name] += news * Math.max(0, sums[name] - before.sums[name]);
    }
    this.trim();
  }

  /** Forgets what is out of sight. */
  trim() {
    const last = this.points.at(-1);
    if (!last) return;
    const begin = this.held ? -Infinity : last.time + last.span - this.span * 1.02;
    let old = 0;
    while (old < this.points.length && this.points[old].time + this.points[old].span < begin) old += 1;
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
      if (points[middle].time <= time) low = middle;
      else high = middle - 1;
    }
    return high < 0 ? -1 : low;
  }
}

/** What a status counts from the daemon's start, programs that ended included. */
function totals(status) {
  const cost = status.cost ?? {};
  return {
    calls: status.calls ?? 0,
    bytes: status.bytes ?? 0,
    drops: status.drops ?? 0,
    observed: cost.observed_s ?? 0,
    predicted: cost.predicted_s ?? 0,
    throttled: cost.throttled_s ?? 0,
    sync: cost.sync_s ?? 0,
  };
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
      this.calls[this.next] = call;
      this.next = (this.next + 1) % this.size;
    }
  }
}

