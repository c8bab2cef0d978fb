// Where the numbers come from: versions, hashes, seeds, data, and the commands to reproduce them.

function startProvenance() {
  const place = byId("provenance-content");
  summary.provenance.forEach((facts, i) => place.append(runProvenance(facts, i)));
  byId("provenance").hidden = !summary.provenance.length;
}

function runProvenance(facts, i) {
  const parts = [];
  if (facts.commands.length) {
    parts.push(el("div", { class: "part" }, el("h4", { text: "Reproduce" }), facts.commands.map((command) => el("div", { class: "command" }, textBlock(command), copyButton(command)))));
  }
  parts.push(el("dl", { class: "pairs facts-list" }, facts.facts.map(([name, value]) => [el("dt", { text: name }), el("dd", {}, inline(value))])));
  if (facts.contamination) parts.push(contaminationPart(facts.contamination));
  parts.push(el("details", { class: "data" }, el("summary", { text: `Data and hashes of ${plural(facts.tasks.length, "task")}` }),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Data and hashes" }, taskTable(facts.tasks))));
  const content = el("div", { class: "run-provenance" }, runs.length > 1 ? el("h3", {}, runMark(i), inline(runs[i].label)) : null, parts);
  return content;
}

function copyButton(text) {
  const button = el("button", { type: "button", class: "copy", on: { click: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch { button.textContent = "Select the text to copy it"; }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  } } }, "Copy");
  return button;
}

function taskTable(rows) {
  const head = ["Task", "Version", "Shots", "Documents", "Data", "Revision", "Hashes"];
  return el("table", { class: "facts-table" }, el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col", text })))),
    el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row", class: "name" }, inline(row.name)), el("td", { text: row.version }), el("td", { text: row.shots }),
      el("td", { text: row.documents[0] === undefined || row.documents[0] === null ? "" : row.documents[0] === row.documents[1] ? count(row.documents[0]) : `${count(row.documents[0])} of ${count(row.documents[1])}` }),
      el("td", {}, inline(row.data)), el("td", { class: "hash" }, inline(row.revision || "–")),
      el("td", { class: "hash" }, [...Object.entries(row.hashes).map(([name, hash]) => `${name} ${hash}`), ...row.fingerprints, row.samples_hash ? "samples " + row.samples_hash : ""].filter(Boolean).map((text) => el("div", {}, inline(text))))))));
}

function contaminationPart(found) {
  const rows = found.rows.flatMap((row) => row.scores.map((score) => [row, score]));
  return el("div", { class: "part contamination" }, el("h4", { text: "Contamination" }),
    el("p", { class: "note" }, "Scores without the documents that ", inline(found.findings), " lists as contaminated."),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Scores of clean documents" }, el("table", {}, el("thead", {}, el("tr", {}, ["Task", "Metric", "Clean score", "Clean documents", "Dropped", "Clean − contaminated"].map((text) => el("th", { scope: "col", text })))),
      el("tbody", {}, rows.map(([row, score]) => el("tr", {}, el("th", { scope: "row", class: "name" }, inline(row.name)), el("td", {}, inline(score.key.replace(",none", ""))), el("td", { class: "number", text: number(score.value) }),
        el("td", { class: "number", text: count(row.clean) }), el("td", { class: "number", text: count(row.dropped) }),
        el("td", { class: "number", text: score.difference ? signed(score.difference.difference) + (score.difference.interval ? ` (${signed(score.difference.interval[0])} to ${signed(score.difference.interval[1])})` : "") : "" })))))));
}
