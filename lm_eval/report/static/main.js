// Draws the page: first what the summary has, then the samples.

const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme-button").title = `Colors: ${theme === "auto" ? "automatic" : theme}`;
  try { localStorage.setItem("lm_eval theme", theme); } catch { /* some browsers keep nothing for files */ }
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
}

function startTheme() {
  let theme = "auto";
  try { theme = localStorage.getItem("lm_eval theme"); } catch { /* as above */ }
  setTheme(THEMES.includes(theme) ? theme : "auto");
  byId("theme-button").addEventListener("click", nextTheme);
}

function startTitle() {
  const title = byId("title");
  const last = runs.length - 1;
  if (runs.length > 4) title.textContent = plural(runs.length, "run");
  else runs.forEach((run, i) => title.append(i ? el("span", { class: "versus", text: i < last ? ", " : " and " }) : "", inline(run.label)));
  if (!runs.length) title.textContent = summary.title;
  if (title.textContent.length > 60) title.classList.add("long");
  const counted = tasks.reduce((all, task) => all + task.total, 0);
  const facts = [];
  const names = summary.table.rows.filter((row) => !row.group);
  if (names.length) facts.push(plural(new Set(names.map((row) => row.name)).size, "task"));
  if (counted) facts.push(plural(counted, "document"));
  if (summary.studies.length) facts.push(plural(summary.studies.length, "study", "studies"));
  if (summary.sweeps.length) facts.push(plural(summary.sweeps.reduce((all, sweep) => all + sweep.runs, 0), "run"));
  facts.push(summary.created);
  byId("subtitle").textContent = facts.join("  ·  ");
  const legend = byId("legend");
  if (runs.length > 1) legend.append(...runs.map((run, i) => el("li", {}, runMark(i), inline(run.label), run.label.includes(run.model.split("/").pop()) && !run.model.includes("/") ? null : el("span", { class: "model" }, " ", inline(run.model)))));
  else legend.remove();
  if (summary.notes.length) {
    byId("notes").append(el("details", { class: "missing", open: summary.notes.length < 4 }, el("summary", { text: "What is missing in this report" }),
      el("ul", {}, summary.notes.map((note) => el("li", {}, note.run !== null && runs.length > 1 ? [inline(runs[note.run].label, { class: "run-name" }), ": "] : null, inline(note.text))))));
  }
  byId("footer").append(`Made by lm_eval ${summary.version}. ` + (summary.live ? "Served on this machine alone." : "This file loads nothing from anywhere."));
}

function startTable() {
  if (!summary.table.rows.length) return;
  byId("scores").hidden = false;
  const normal = summary.table.rows.some((row) => row.scores.some((score) => score.values.some((value) => value?.normal)));
  const levels = [...new Set(summary.table.levels.filter(Boolean))];
  byId("scores-note").textContent = normal ? "± is half the 95 % interval: 1.96 standard errors." + (levels.length ? ` Runs with --confidence have intervals of ${levels.map(percent).join(", ")}.` : "")
    : levels.length ? `± is half the ${levels.map(percent).join(", ")} interval.` : "";
  drawTable();
}

function startSections() {
  const names = [["scores", "Scores"], ["sweeps", "Sweep"], ["plots", "Plots"], ["samples", "Samples"], ["provenance", "Provenance"]];
  byId("sections").append(...names.filter(([id]) => !byId(id).hidden).map(([id, text]) => el("a", { href: "#" + id, text })));
}

async function startSamples() {
  const counted = tasks.reduce((all, task) => all + task.total, 0);
  if (!counted) return;
  byId("samples").hidden = false;
  byId("samples-note").textContent = summary.selection
    ? `This report contains ${count(total)} of ${count(counted)} samples: ${summary.selection}. The table and the plots are of all.` : "";
  byId("samples-note").hidden = !summary.selection;
  byId("list").append(el("p", { class: "note loading", text: "Unpacking the samples …" }));
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))); // after the first paint
  const content = await loadIndex();
  byId("list").replaceChildren();
  index = content;
  startList();
  startFilters(index);
  refresh();
  followAddress();
  window.addEventListener("hashchange", followAddress);
  document.documentElement.dataset.samples = "ready";
}

startTheme();
startTitle();
startTable();
startSweeps();
startPlots();
startProvenance();
startKeys();
startSamples().finally(() => { document.documentElement.dataset.ready = "yes"; });
startSections();
startCatalog();
startLive();
