// Runs in the browser with the page: uses it as a person would and reports the results.

const $ = (selector) => document.querySelector(selector);
const text = (selector) => $(selector).textContent.trim();

/** Waits for a condition on the page; the test has the time limit. */
function until(probe, root = document) {
  return new Promise((resolve) => {
    const look = () => {
      if (!probe()) return false;
      observer.disconnect();
      resolve();
      return true;
    };
    const observer = new MutationObserver(look);
    if (look()) return;
    observer.observe(root, { subtree: true, childList: true, characterData: true, attributes: true });
  });
}

const frame = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
const column = (table, at) => [...$(table).querySelectorAll(`tbody tr > :nth-child(${at})`)].map((cell) => cell.textContent);

/** Controls without a name. */
function nameless() {
  const named = (element) =>
    element.labels?.length || element.getAttribute("aria-label") || element.getAttribute("aria-labelledby") || element.textContent.trim();
  return [...document.querySelectorAll("button, input, select, summary, [tabindex='0'], [role=region]")]
    .filter((element) => !named(element))
    .map((element) => element.outerHTML.slice(0, 80));
}

function key(selector, name) {
  $(selector).dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
  return $(selector).getAttribute("aria-valuetext");
}

const scenarios = {
  async busy() {
    await until(() => text("#state-name") === "Throttle" && $("#processes tbody").rows.length && $("#files tbody").rows.length);
    await until(() => $("#announce").textContent && text("#dirty-summary").includes("throttle") && text("#scatter-summary").includes("5 calls"));
    const found = {
      state: text("#state-name"), dirty: text("#dirty-value"), sampled: text("#dirty-sub"), forecast: text("#forecast-value"),
      lost: `${text("#lost-value")} ${text("#lost-sub")}`, error: text("#error-value"), drops: text("#drops-value"), node: text("#node"), sampler: text("#sampler-list"),
      announced: text("#announce"), dirtySummary: text("#dirty-summary"), causesSummary: text("#causes-summary"),
      costSummary: text("#cost-summary"), scatterSummary: text("#scatter-summary"), note: text("#processes .note"),
      programs: column("#processes", 1), files: column("#files", 1), devices: column("#devices", 1),
      causes: [column("#processes", 5), column("#files", 5)].map(([first]) => first),
      legends: ["#causes-legend", "#scatter-legend"].map((legend) => [...$(legend).children].map((item) => item.textContent).join()),
      markup: document.querySelectorAll("td *:not(span, i.key), tbody th *:not(span)").length,
    };
    [...document.querySelectorAll("#processes thead button")].find((button) => button.textContent === "Written").click();
    found.byBytes = column("#processes", 2);
    found.sorts = [...document.querySelectorAll("#processes th[aria-sort]")].map((cell) => `${cell.textContent} ${cell.ariaSort}`);
    document.querySelector("#processes thead button").click();
    found.byName = column("#processes", 2);
    $("#processes input").value = "DD";
    $("#processes input").dispatchEvent(new Event("input"));
    found.filtered = column("#processes", 1);

    $("#dirty-plot").scrollIntoView();
    await frame();
    found.keys = [key("#dirty-plot", "Home"), key("#dirty-plot", "ArrowRight"), key("#dirty-plot", "End")];
    key("#dirty-plot", "Escape");
    $("#scatter-plot").scrollIntoView();
    await frame();
    found.call = key("#scatter-plot", "End");
    await frame();
    found.tip = text("#scatter-plot .tip");
    found.mark = $("#scatter-plot .tip .cause-throttle") !== null;
    [...document.querySelectorAll("#scatter-legend button")].find((button) => button.textContent === "throttle").click();
    found.without = [key("#scatter-plot", "Escape"), key("#scatter-plot", "End")][1];
    found.pressed = $("#scatter-legend").querySelectorAll("[aria-pressed=false]").length;
    $("#causes-plot").scrollIntoView();
    await frame();
    found.cause = key("#causes-plot", "End");
    found.colours = ["#dirty-plot", "#causes-plot", "#scatter-plot"].map((plot) => colours($(`${plot} canvas`)));

    $("#plan").elements.bytes.value = "2 GiB";
    $("#plan").requestSubmit();
    await until(() => $("#plan-answer .value"));
    found.plan = text("#plan-answer");
    $("#plan").elements.bytes.value = "much";
    $("#plan").requestSubmit();
    found.refused = $("#plan").elements.bytes.validationMessage;

    $("#advise").click();
    await until(() => $("#advice-list li"));
    found.advice = text("#advice-list");
    $("#profile").open = true;
    await until(() => $("#constants tbody").rows.length);
    found.constants = column("#constants", 3);
    found.spans = [];
    for (const choice of document.querySelectorAll("input[name=span]")) {
      choice.click();
      await until(() => text("#link") === "Live");
      found.spans.push(Number(choice.value));
    }
    found.themes = [];
    found.faint = [];
    for (let click = 0; click < 2; click += 1) {
      $("#theme").click();
      found.themes.push(getComputedStyle(document.documentElement).colorScheme);
      found.faint.push(...faint("*"));
      for (const plot of ["#dirty-plot", "#causes-plot", "#scatter-plot"]) {
        $(plot).scrollIntoView();
        await frame();
        found.colours.push(colours($(`${plot} canvas`)));
      }
    }
    found.nameless = nameless();
    return found;
  },
  async day() {
    await until(() => text("#link") === "Live" && $("#processes tbody").rows.length);
    document.querySelector("input[name=span][value='86400']").click();
    // The time of the day before is in minutes.
    await until(() => text("#causes-summary").includes(" min of 24 h"));
    const parts = [];
    let part = key("#dirty-plot", "Home");
    while (part !== parts.at(-1)) {
      parts.push(part);
      part = key("#dirty-plot", "ArrowRight");
    }
    key("#dirty-plot", "Escape");
    const legend = [...$("#dirty-plot").closest("figure").querySelectorAll(".legend li")].filter((item) => item.checkVisibility());
    const found = { parts, causesSummary: text("#causes-summary"), legend: legend.map((item) => item.textContent), colours: [] };
    for (const plot of ["#dirty-plot", "#causes-plot", "#cost-plot"]) {
      $(plot).scrollIntoView();
      await frame();
      found.colours.push(colours($(`${plot} canvas`)));
    }
    return found;
  },
  async empty() {
    await until(() => text("#state-name") === "Free" && text("#link") === "Live" && text("#dirty-summary").startsWith("Now"));
    await until(() => text("#causes-summary") !== "No data yet.");
    const shown = (selector) => $(selector).checkVisibility();
    // The window of a browser has a least width; a frame has none.
    const frame = document.createElement("iframe");
    frame.width = 320;
    frame.src = "/#frame";
    document.body.append(frame);
    await new Promise((resolve) => frame.addEventListener("load", resolve));
    const inner = frame.contentDocument;
    await until(() => inner.getElementById("link").textContent === "Live" && inner.getElementById("causes-summary").textContent.startsWith("In this span"), inner);
    return {
      width: inner.documentElement.clientWidth, overflow: inner.documentElement.scrollWidth - inner.documentElement.clientWidth,
      programs: shown("#processes .empty") && !shown("#processes table"), files: shown("#files .empty"), devices: shown("#devices .empty"),
      sampled: text("#dirty-sub"), forecast: text("#forecast-value"), error: text("#error-value"), causesSummary: text("#causes-summary"),
      costSummary: text("#cost-summary"),
    };
  },
  async cut() {
    await until(() => text("#link") === "Live");
    await fetch("/cut");
    await until(() => text("#link") === "Connection lost");
    const banner = { shown: $("#lost-banner").checkVisibility(), text: text("#lost-text"), role: $("#lost-banner").role };
    await fetch("/mend");
    $("#retry").click();
    await until(() => text("#link") === "Live");
    return { banner, gone: $("#lost-banner").hidden };
  },
  async token() {
    const address = location.href;
    await until(() => text("#link") === "Token needed");
    const refused = { why: text("#token-why"), shown: $("#token-form").checkVisibility(), dashboard: $("#dashboard").checkVisibility() };
    $("#token").value = "sesame";
    $("#token-form").requestSubmit();
    await until(() => text("#link") === "Live");
    return { address, refused, form: $("#token-form").checkVisibility(), kept: sessionStorage.getItem("cawl-token") };
  },
};

if (location.hash !== "#frame") {
  const found = await scenarios[location.hash.slice(1)]().catch((error) => ({ broken: String(error.stack) }));
  await fetch("/told", { method: "POST", body: JSON.stringify({ ...found, fault: text("#fault"), title: document.title }) });
}
