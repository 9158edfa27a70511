// The page: one link, one series, all charts and tables, and what connects them.

const SPANS = [300, 3600, 21600, 86400];
let series = new Series(SPANS[0]);
let latest = null;
let paused = false;
let connected = false;
let lostNow = null;
const recent = [];
const ring = new CallRing(2000);

const dirtyChart = new DirtyChart(byId("dirty-plot"), () => series);
const causeChart = new CauseChart(byId("causes-plot"), () => series, byId("causes-legend"));
const costChart = new CostChart(byId("cost-plot"), () => series);
const scatter = new ScatterChart(byId("scatter-plot"), ring, byId("scatter-legend"));
const timeCharts = [dirtyChart, causeChart, costChart];

const link = new Link({ pushed, changed });
const ask = (path, parameters) => link.ask(path, parameters);
const plan = new PlanForm(ask);
const tables = {
  processes: new SortTable(byId("processes"), COLUMNS.processes, () => loadTable("processes")),
  files: new SortTable(byId("files"), COLUMNS.files, () => loadTable("files")),
  devices: new SortTable(byId("devices"), COLUMNS.devices, () => {}),
};

/** Speaks through the live region, at most once in five seconds; the latest word wins. */
const speaker = {
  last: -Infinity,
  say(text) {
    this.text = text;
    if (this.timer) return;
    const wait = Math.max(0, this.last + 5000 - performance.now());
    this.timer = setTimeout(() => {
      this.timer = null;
      this.last = performance.now();
      put("announce", this.text);
    }, wait);
  },
};

function pushed(topic, data) {
  if (topic === "calls") {
    ring.push(data);
    if (!paused) scatter.invalidate();
    return;
  }
  if (latest && latest.state !== data.state) {
    const state = STATES[data.state];
    speaker.say(`State: ${state?.name ?? data.state}, ${state?.long ?? ""}. ${bytes(data.modelled_dirty_bytes)} dirty of ${bytes(data.hard_bytes)}.`);
  }
  const restarted = latest && data.uptime_s < latest.uptime_s;
  latest = data;
  series.push(data);
  rememberLost(data);
  if (restarted && connected) loadHistory();
  if (!paused) look();
}

/** Brings the latest status to the screen. */
function look() {
  view.now = latest.time_s;
  dirtyChart.status = latest;
  for (const chart of timeCharts) chart.invalidate();
  showSoon();
}

/** Time in calls and time lost per second over the latest two seconds or so, from what the daemon sums up. */
function rememberLost(status) {
  recent.push({ time: status.time_s, ...totals(status) });
  while (recent.length > 2 && recent[1].time <= status.time_s - 2) recent.shift();
  const first = recent[0];
  const span = status.time_s - first.time;
  if (span < 0 || recent.length > 100) recent.splice(0, recent.length - 1);
  if (span <= 0) return;
  const last = recent.at(-1);
  const since = (name) => Math.max(0, last[name] - first[name]) / span;
  lostNow = { lost: since("lost_s"), observed: since("observed_s") };
}

/** Figures change twice a second at most; sentences and tables once a second or two. */
let shown = -Infinity;
let told = -Infinity;
let showTimer = null;
function showSoon() {
  if (showTimer || document.hidden) return;
  showTimer = setTimeout(() => {
    showTimer = null;
    show();
  }, Math.max(0, shown + 500 - performance.now()));
}

function show() {
  if (!latest) return;
  shown = performance.now();
  showTiles(latest, lostNow);
  put("node", printable(latest.node) || "cawl");
  put("speaks", `${latest.model}, ${latest.mode}`);
  if (shown - told < 2000) return;
  told = shown;
  const title = `${STATES[latest.state]?.name ?? latest.state} ${bytes(latest.modelled_dirty_bytes)} – ${printable(latest.node) || "cawl"}`;
  if (document.title !== title) document.title = title;
  showModel(latest);
  tables.devices.show(latest.devices ?? []);
  plan.devices(latest.devices ?? []);
  for (const chart of [...timeCharts, scatter]) chart.tell();
}

async function load(name, parameters, show) {
  try {
    show(await ask(name, parameters));
  } catch (error) {
    // Where the connection is lost, the link says so; a refusal is worth a line.
    if (error instanceof Refused) put("fault", `No ${name}: ${error.message}`);
  }
}

function loadHistory() {
  const asked = series;
  load("history", { last_s: asked.span, points: POINTS }, (history) => {
    if (asked !== series) return;
    series.load(history);
    const last = series.points.at(-1);
    if (!latest && last) view.now = last.time_s + last.span_s;
    for (const chart of timeCharts) chart.invalidate(true);
    told = -Infinity;
    showSoon();
  });
}

function loadTable(name) {
  const table = tables[name];
  const order = table.order;
  load(name, { sort: order, limit: 50 }, (answer) => order === table.order && table.show(answer[name], answer.omitted));
}

const loadProfile = () => load("profile", {}, showProfile);

function loadAll() {
  put("fault", "");
  loadHistory();
  loadTable("processes");
  loadTable("files");
  if (byId("profile").open) loadProfile();
}

let countdown = null;
function changed(state, detail) {
  const before = document.body.dataset.link;
  document.body.dataset.link = state;
  put("link", { connecting: "Connecting", live: paused ? "Paused" : "Live", lost: "Connection lost", refused: "Token needed" }[state]);
  byId("lost-banner").hidden = state !== "lost";
  byId("token-form").hidden = state !== "refused";
  byId("dashboard").hidden = state === "refused" && !latest;
  clearInterval(countdown);
  connected = state === "live";
  if (state === "live") {
    loadAll();
    if (before === "lost") speaker.say("Connected again.");
  } else if (state === "lost") {
    const since = latest ? ` What is shown is of ${clock(latest.time_s)}.` : "";
    put("lost-text", `Connection lost, retrying: ${detail.why}.${since}`);
    const end = performance.now() + detail.wait * 1000;
    const tick = () => put("lost-wait", `next try in ${Math.max(0, Math.ceil((end - performance.now()) / 1000))} s`);
    tick();
    countdown = setInterval(tick, 1000);
  } else if (state === "refused") {
    put("token-why", detail.why);
    byId("token").focus();
  }
}

function setSpan(span) {
  series = new Series(span);
  series.held = paused;
  view.span = span;
  view.ahead = span <= 300 ? 60 : span <= 3600 ? 300 : 0;
  view.cursor = null;
  // What is not drawn needs no explanation.
  for (const item of document.querySelectorAll("[data-near]")) item.hidden = !view.ahead;
  for (const item of document.querySelectorAll("[data-far]")) item.hidden = view.ahead > 0;
  // About a pixel's worth of time, within what is worth the processor and what feels alive.
  const interval = Math.min(4000, Math.max(500, series.step * 1000));
  for (const chart of timeCharts) {
    chart.interval = interval;
    chart.invalidate(true);
  }
  if (connected) loadHistory();
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  put("theme-name", { auto: "Auto", light: "Light", dark: "Dark" }[theme]);
  palette.read();
  for (const chart of view.charts) chart.invalidate(true);
}

function setUp() {
  let theme = memory.read("cawl-theme", "localStorage") ?? "auto";
  if (!["auto", "light", "dark"].includes(theme)) theme = "auto";
  setTheme(theme);
  byId("theme").addEventListener("click", () => {
    theme = { auto: "light", light: "dark", dark: "auto" }[theme];
    memory.write("cawl-theme", theme, "localStorage");
    setTheme(theme);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(theme));

  for (const choice of document.querySelectorAll("input[name=span]")) {
    choice.addEventListener("change", () => setSpan(Number(choice.value)));
  }
  setSpan(Number(document.querySelector("input[name=span]:checked").value));

  byId("pause").addEventListener("click", () => {
    paused = !paused;
    byId("pause").setAttribute("aria-pressed", String(paused));
    if (connected) put("link", paused ? "Paused" : "Live");
    document.body.dataset.paused = paused;
    series.held = paused;
    if (paused || !latest) return;
    look();
    if (connected) loadHistory();
  });
  byId("fit").addEventListener("click", () => {
    dirtyChart.fitData = !dirtyChart.fitData;
    byId("fit").setAttribute("aria-pressed", String(dirtyChart.fitData));
    dirtyChart.invalidate(true);
  });
  byId("retry").addEventListener("click", () => link.connect());
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    link.setToken(byId("token").value.trim());
  });
  byId("advise").addEventListener("click", async () => {
    const button = byId("advise");
    button.disabled = true;
    put("advice-list", `Looking at the calls of ${ADVISE_S} s …`);
    try {
      showAdvice(await ask("advise", { for_s: ADVISE_S }));
    } catch (error) {
      put("advice-list", error instanceof Refused ? error.message : "no answer");
    }
    button.disabled = false;
  });
  byId("profile").addEventListener("toggle", () => byId("profile").open && loadProfile());
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    painter.request();
    showSoon();
  });
  setInterval(() => {
    if (!connected || paused || document.hidden) return;
    loadTable("processes");
    loadTable("files");
  }, 2000);
  setInterval(() => {
    if (!connected || paused || document.hidden) return;
    loadHistory();
    if (byId("profile").open) loadProfile();
  }, 60000);
}

addEventListener("error", (event) => put("fault", `The page has a fault: ${event.message}`));
addEventListener("unhandledrejection", (event) => put("fault", `The page has a fault: ${event.reason}`));
setUp();
link.connect();
