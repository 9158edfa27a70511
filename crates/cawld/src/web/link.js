// The daemon: questions, and the stream of pushes with its failures.

const TOKEN_KEY = "cawl-token";

/** Session storage may be forbidden; the token then lives as long as the page. */
const memory = {
  read(key, store = "sessionStorage") {
    try {
      return window[store].getItem(key);
    } catch {
      return null;
    }
  },
  write(key, value, store = "sessionStorage") {
    try {
      if (value == null) window[store].removeItem(key);
      else window[store].setItem(key, value);
    } catch {
      // Not kept, then: the page works without.
    }
  },
};

/** The daemon refused: the message is its own. */
class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

class Link {
  /** `on` has: pushed(topic, data), changed(state, detail), unauthorized(). */
  constructor(on) {
    this.on = on;
    this.source = null;
    this.timer = null;
    this.failures = 0;
    this.state = "connecting";
    this.every = 0.25;
    const query = new URLSearchParams(location.search);
    const given = query.get("token");
    if (given != null) {
      // Out of the address bar, so that it is neither bookmarked nor seen by others.
      memory.write(TOKEN_KEY, given);
      query.delete("token");
      const rest = query.toString();
      history.replaceState(null, "", location.pathname + (rest ? `?${rest}` : "") + location.hash);
    }
    this.token = given ?? memory.read(TOKEN_KEY);
    const every = Number(query.get("every"));
    if (every >= 0.05 && every <= 10) this.every = every;
    addEventListener("online", () => this.state === "lost" && this.connect());
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => event.persisted && this.connect());
  }

  setToken(token) {
    this.token = token;
    memory.write(TOKEN_KEY, token);
    this.failures = 0;
    this.connect();
  }

  /** One question; throws Refused, or TypeError without an answer. */
  async ask(path, parameters = {}) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters)) if (value != null) query.set(name, value);
    const text = query.toString();
    const headers = this.token ? { Authorization: `Bearer ${this.token}` } : {};
    const timeout = AbortSignal.timeout(15000);
    const answer = await fetch(`/api/v1/${path}${text ? `?${text}` : ""}`, { headers, signal: timeout, cache: "no-store" });
    const data = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Refused(answer.status, data.error ?? `the daemon answered ${answer.status}`);
    return data;
  }

  change(state, detail = {}) {
    this.state = state;
    this.on.changed(state, detail);
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    this.source?.close();
    this.source = null;
  }

  /** Asks for the status first: unlike a stream, its answer says why it is refused. */
  async connect() {
    this.close();
    const attempt = (this.attempt = (this.attempt ?? 0) + 1);
    if (this.state !== "lost") this.change("connecting");
    try {
      const status = await this.ask("status");
      if (attempt !== this.attempt) return;
      this.on.pushed("status", status);
    } catch (error) {
      if (attempt !== this.attempt) return;
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        this.change("refused", { why: error.message });
        return;
      }
      this.retry(error instanceof Refused ? error.message : "no answer");
      return;
    }
    const query = new URLSearchParams({ topics: "status,calls", every_s: this.every });
    if (this.token) query.set("token", this.token);
    const source = new EventSource(`/api/v1/subscribe?${query}`);
    this.source = source;
    source.onopen = () => {
      this.failures = 0;
      this.change("live");
      this.watch();
    };
    source.onerror = () => source === this.source && this.retry("the stream ended");
    for (const topic of ["status", "calls"]) {
      source.addEventListener(topic, (event) => {
        this.watch();
        this.on.pushed(topic, JSON.parse(event.data));
      });
    }
  }

  /** A connection may end without notice; then no pushes arrive. */
  watch() {
    const now = performance.now();
    if (now - (this.watched ?? -Infinity) < 500) return;
    this.watched = now;
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => this.retry("nothing was heard"), Math.max(8000, 4000 * this.every));
  }

  retry(why) {
    this.close();
    this.watched = -Infinity;
    const wait = Math.min(15, 2 ** this.failures) * (0.8 + 0.4 * Math.random());
    this.failures += 1;
    this.change("lost", { why, wait });
    this.timer = setTimeout(() => this.connect(), wait * 1000);
  }
}

