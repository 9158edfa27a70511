// Tiles, the form of `predict`, and the model's constants.

/** Fills a list of terms and figures, reusing its elements. */
function describe(list, rows) {
  while (list.children.length > rows.length) list.lastChild.remove();
  while (list.children.length < rows.length) list.append(element("div", {}, element("dt"), element("dd")));
  rows.forEach(([term, value], at) => {
    const [dt, dd] = list.children[at].children;
    if (dt.textContent !== term) dt.textContent = term;
    if (dd.textContent !== value) dd.textContent = value;
  });
}

/** What the forecast says, in a word and a sentence. */
function outlook(status) {
  const forecast = status.forecast;
  if (!forecast) return [NOTHING, "no forecast"];
  const clean = forecast.clean_s == null ? "not clean within an hour if writing stops" : `clean in ${duration(forecast.clean_s)} if writing stops`;
  if (status.state === "throttle" || forecast.throttle_s === 0) return ["now", `throttled; ${clean}`];
  if (forecast.throttle_s == null) {
    if (forecast.background_s > 0) return ["never", `background flush in ${duration(forecast.background_s)}; ${clean}`];
    return ["never", `${forecast.rate >= 4096 ? `not at ${rate(forecast.rate)}` : "nothing makes pages dirty"}; ${clean}`];
  }
  const background = forecast.background_s > 0 ? `background flush in ${duration(forecast.background_s)}; ` : "";
  return [duration(forecast.throttle_s), background + clean];
}

function showTiles(status, time) {
  const state = STATES[status.state] ?? { name: status.state, long: "" };
  const tile = byId("tile-state");
  if (tile.dataset.state !== status.state) tile.dataset.state = status.state;
  put("state-name", state.name);
  put("state-long", status.throttled_rate != null && status.state === "throttle" ? `${state.long}, ${rate(status.throttled_rate)} let through` : state.long);

  put("dirty-value", bytes(status.modelled_dirty_bytes));
  put("dirty-sub", `sampled ${bytes(status.sampled_dirty_bytes)}; ${percent(status.modelled_dirty_bytes / status.hard_bytes)} of the hard limit`);
  const gauge = byId("gauge").style;
  const part = (value) => (Math.min(1, Math.max(0, value / status.hard_bytes)) || 0).toFixed(4);
  gauge.setProperty("--at-modelled", part(status.modelled_dirty_bytes));
  gauge.setProperty("--at-sampled", part(status.sampled_dirty_bytes ?? 0));
  gauge.setProperty("--at-background", part(status.background_bytes));
  gauge.setProperty("--at-freerun", part(freerunOf(status)));

  const [soon, more] = outlook(status);
  put("forecast-value", soon);
  put("forecast-sub", more);

  put("rate-value", rate(status.dirtying_rate + status.untraced_rate));
  put("rate-sub", `${rate(status.untraced_rate)} of it untraced; written back at ${rate(status.sampled_writeback_rate ?? status.writeback_rate)}`);

  put("lost-value", time ? lostRate(time.lost) : NOTHING);
  put("lost-sub", time ? `of ${lostRate(time.observed)} in calls` : "nothing known yet");

  const error = status.error ?? {};
  put("error-value", percent(error.total));
  put("error-sub", error.calls ? `windowed ${percent(error.windowed)}, dirty level ${percent(error.dirty)}; ${count(error.calls)} calls` : "no call in the latest minute of writing");
  put("drops-value", status.drops ? `${count(status.drops)} events lost` : "");
}

function showModel(status) {
  const sampler = status.sampler ?? {};
  const error = status.error ?? {};
  describe(byId("model-list"), [
    ["Model", `${status.model}, ${status.mode}`],
    ["Profile", printable(status.profile)],
    ["Error, total time", percent(error.total)],
    ["Error, in windows", percent(error.windowed)],
    ["Error, dirty level", percent(error.dirty)],
    ["Calls judged", count(error.calls)],
    ["Calls recorded", count(status.calls)],
    ["Bytes written", bytes(status.bytes)],
    ["Events lost", count(status.drops)],
    ["Programs connected", count(status.clients)],
  ]);
  describe(byId("sampler-list"), [
    ["Sampling every", duration(sampler.interval_s)],
    ["Its cost", `${percent(sampler.cpu_fraction)} of a processor`],
    ["Reads", (sampler.sources ?? []).map(printable).join(", ") || NOTHING],
    ["Some task waits for I/O", sampler.pressure == null ? NOTHING : `${percent(sampler.pressure)} of the time`],
    ["Written back, modelled", rate(status.writeback_rate)],
    ["Written back, counted", rate(status.sampled_writeback_rate)],
    ["Daemon", `${printable(status.version) || "unknown version"}, up ${duration(status.uptime_s)}`],
    ["Labels", Object.entries(status.labels ?? {}).map(([name, value]) => printable(`${name}=${value}`)).join(", ") || NOTHING],
  ]);
}

/** A constant in its own unit, or in one for people. */
function constant(value, unit) {
  if (value == null) return NOTHING;
  if (unit === "B/s") return rate(value);
  if (unit === "B") return bytes(value);
  if (unit === "ns") return duration(value / 1e9);
  if (unit === "s") return duration(value);
  const figure = Math.abs(value) >= 1e-3 || value === 0 ? digits(value) : value.toExponential(2);
  return unit === "1" || !unit ? figure : `${figure} ${printable(unit)}`;
}

function showProfile(answer) {
  const lines = answer.constants.map((row) => {
    const change = row.configured ? row.learned / row.configured - 1 : null;
    const range = row.p10 == null || row.p90 == null ? NOTHING : `${constant(row.p10, row.unit)} to ${constant(row.p90, row.unit)}`;
    const figures = [
      constant(row.configured, row.unit),
      row.samples ? constant(row.learned, row.unit) : "not learned",
      row.samples && change != null ? `${change > 0 ? "+" : ""}${percent(change)}` : NOTHING,
      range,
      count(row.samples),
    ];
    const name = element("th", { scope: "row", className: "text" }, printable(row.name));
    return element("tr", {}, name, ...figures.map((text) => element("td", { className: "figure" }, text)));
  });
  byId("constants").tBodies[0].replaceChildren(...lines);
  byId("constants").hidden = !answer.constants.length;
  byId("constants-empty").hidden = answer.constants.length > 0;
  put("profile-learned", answer.learned);
}

class PlanForm {
  constructor(ask) {
    this.form = byId("plan");
    this.ask = ask;
    this.answer = byId("plan-answer");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    for (const name of ["bytes", "chunk"]) {
      this.form.elements[name].addEventListener("input", () => this.check(name));
    }
  }

  /** The browser's own message beside the field, and to screen readers. */
  check(name) {
    const field = this.form.elements[name];
    const size = parseBytes(field.value);
    const right = size >= 1 && size <= Number.MAX_SAFE_INTEGER;
    field.setCustomValidity(right ? "" : "A size, for instance 4 GiB, 512K or 1048576.");
    return right ? size : NaN;
  }

  /** The devices that can be asked about. */
  devices(devices) {
    const select = this.form.elements.device;
    const told = devices.map((device) => device.device).join();
    if (told === this.told) return;
    this.told = told;
    const before = select.value;
    const name = ({ name, device }) => (name ? `${printable(name)} (${device})` : device);
    const options = devices.map((device) => new Option(name(device), device.device));
    select.replaceChildren(new Option("most written to", ""), ...options);
    select.value = devices.some((device) => device.device === before) ? before : "";
  }

  async submit() {
    const fields = this.form.elements;
    const [size, chunk] = [this.check("bytes"), this.check("chunk")];
    if (!this.form.reportValidity()) return;
    this.answer.setAttribute("aria-busy", "true");
    try {
      const predicted = await this.ask("predict", {
        bytes: size,
        chunk,
        sync: fields.sync.checked || null,
        fsync: fields.fsync.checked || null,
        at_s: Number(fields.at.value) || null,
        device: fields.device.value || null,
      });
      this.show(predicted, size);
    } catch (error) {
      const why = error instanceof Refused ? error.message : "The daemon does not answer.";
      this.answer.replaceChildren(element("p", { className: "bad" }, why));
    } finally {
      this.answer.removeAttribute("aria-busy");
    }
  }

  show(predicted, size) {
    const range = predicted.p10_s == null || predicted.p90_s == null ? "" : `, between ${duration(predicted.p10_s)} and ${duration(predicted.p90_s)} four times of five`;
    const parts = Object.entries(predicted.states_s).filter(([, seconds]) => seconds > 0);
    const bars = parts.map(([state, seconds]) => {
      const bar = element("span");
      bar.dataset.state = CALL_STATES.includes(state) ? state : "buffered";
      bar.style.flexGrow = String(seconds);
      return bar;
    });
    const list = element("dl", { className: "pairs" });
    describe(list, [
      ["Throughput", rate(predicted.cost_s > 0 ? size / predicted.cost_s : null)],
      ...parts.map(([state, seconds]) => [`In ${printable(state)}`, `${duration(seconds)} (${percent(seconds / predicted.cost_s)})`]),
      ["Costliest call", duration(predicted.worst_call_s)],
      ["Highest dirty level", bytes(predicted.peak_dirty_bytes)],
      ["Dirty at the end", bytes(predicted.final_dirty_bytes)],
      ["One more fsync", duration(predicted.fsync_s)],
    ]);
    this.answer.replaceChildren(
      element("p", { className: "value" }, duration(predicted.cost_s)),
      element("p", { className: "sub" }, `for ${bytes(size)} in ${count(predicted.calls)} calls${range}`),
      element("div", { className: "split", ariaHidden: "true" }, ...bars),
      list,
    );
  }
}

/** How long the calls are kept that advice is made of, in seconds. */
const ADVISE_S = 8;
/** Part of the time that calls take at least, if they are what programs wait for. */
const IN_CALLS = 0.05;

/** A change that is worth it, in a sentence, as at the end of a report. */
function adviceText(one, paper) {
  const [low, high] = one.interval;
  const gain = `gains ${duration(one.gain_s)} (${duration((1 - high) * paper)} to ${duration((1 - low) * paper)}) of ${duration(paper)} on paper`;
  const safety = one.safety.length ? `; less safe: ${one.safety.join("; ")}` : "";
  const program = one.program ? `, of ${one.program}` : "";
  return printable(`${one.what} ${gain}, ${one.sure}${program}: ${one.how}${safety}`);
}

/** What the calls of some seconds suggest. */
function showAdvice({ for_s, calls, observed_s, advice }) {
  const list = byId("advice-list");
  const say = (...texts) => list.replaceChildren(...texts.map((text) => element("li", {}, text)));
  if (!advice) return say(`No program that reports here made a call with a cost in ${duration(for_s)}.`);
  if (advice.tried == null) return say("The calls were too many to try changes here: use the command above, with a shorter --for.");
  const by = observed_s < IN_CALLS * for_s ? "what the programs do beside their calls" : advice.bound.by;
  const some = advice.advice.map((one) => adviceText(one, advice.paper_s));
  if (!some.length) some.push(`Nothing is worth it: ${by} is the bound (${count(calls)} calls, ${duration(observed_s)} in ${duration(for_s)}; ${count(advice.tried)} changes tried).`);
  if (some.length > 1) some.push("Each is a change by itself: some exclude others, and gains do not add up.");
  if (advice.more) some.push(`${count(advice.more)} more: the command above has them.`);
  say(...some);
}
