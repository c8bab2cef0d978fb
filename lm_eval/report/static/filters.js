// Search, filters and order of the samples.

const wanted = { query: "", task: "", verdict: "all", flag: "", order: "given", judge: "", run: 0 };
let matching = null; // documents whose text has the query; null without a query
let searchNumber = 0;

const fields = {};

function startFilters(index) {
  const form = byId("filters");
  const field = (name, label, node) => {
    fields[name] = node;
    node.addEventListener("change", () => { wanted[name] = name === "run" ? Number(node.value) : node.value; changed(name); });
    return el("label", { class: "field field-" + name }, el("span", { text: label }), node);
  };
  const options = (pairs) => pairs.map(([value, text]) => el("option", { value, text }));
  const input = el("input", { type: "search", id: "search", placeholder: "Search prompts and answers", "aria-label": "Search prompts and answers", autocomplete: "off", spellcheck: "false" });
  fields.query = input;
  let timer = 0;
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(startSearch, 150); });
  const verdicts = [["all", "All"], ["right", "Right"], ["wrong", "Wrong"]];
  if (runs.length > 1) verdicts.push(["flips", "Flipped"]);
  const has = (bit) => index.some((table) => table.flags.some((column) => column.some((value) => value & bit)));
  const flags = [["", "Any"]];
  const named = { unanswered: "No answer", length: "Stopped by length", truncated: "Truncated prompt", contaminated: "Contaminated" };
  for (const [name, text] of Object.entries(named)) if (has(FLAGS[name])) flags.push([name, text]);
  const any = (column) => index.some((table) => table[column].some((values) => values.some((value) => value !== null)));
  const orders = [["given", "Order of the data"]];
  if (any("confidence")) orders.push(["confidence-down", "Most confident"], ["confidence-up", "Least confident"]);
  if (any("margin")) orders.push(["margin-up", "Narrowest margin"], ["margin-down", "Widest margin"]);
  if (any("length")) orders.push(["length-down", "Longest answer"], ["length-up", "Shortest answer"]);
  form.append(
    el("div", { class: "field search" }, input),
    field("task", "Task", el("select", { id: "filter-task" }, options([["", "All tasks"], ...tasks.filter((task) => task.shown).map((task) => [task.name, `${task.name} (${count(task.shown)})`])]))),
    segments(verdicts),
    runs.length > 1 ? field("run", "Run", el("select", { id: "filter-run" }, options(runs.map((run, i) => [i, run.label])))) : "",
    field("judge", "Judged by", el("select", { id: "filter-judge" })),
    flags.length > 1 ? field("flag", "Only", el("select", { id: "filter-flag" }, options(flags))) : "",
    orders.length > 1 ? field("order", "Sort by", el("select", { id: "filter-order" }, options(orders))) : "",
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  fillJudge();
}

function segments(pairs) {
  const group = el("fieldset", { class: "segments" }, el("legend", { class: "visually-hidden", text: "Verdict" }));
  for (const [value, text] of pairs) {
    const radio = el("input", { type: "radio", name: "verdict", value, id: "verdict-" + value, checked: value === "all" });
    radio.addEventListener("change", () => { wanted.verdict = value; changed("verdict"); });
    group.append(radio, el("label", { for: "verdict-" + value, text }));
  }
  return group;
}

/** Fills the choice of the metric that tells right from wrong; only one task has several. */
function fillJudge() {
  const task = tasks.find((one) => one.name === wanted.task);
  const keys = task ? task.keys : [];
  fields.judge.parentElement.hidden = keys.length < 2;
  fields.judge.replaceChildren(...keys.map((key) => el("option", { value: key, text: key.replace(",none", "").replace(",", " · ") })));
  wanted.judge = "";
}

function changed(name) {
  if (name === "task") {
    fillJudge();
    if (wanted.query) { startSearch(); return; }
  }
  refresh({ first: true });
}

/** Shows the samples of one task. */
function filterTask(name) {
  wanted.task = name;
  fields.task.value = name;
  changed("task");
}

/** Searches the text of all samples of the chosen tasks; matches appear as they are found. */
async function startSearch() {
  const query = fields.query.value.trim().toLowerCase();
  wanted.query = query;
  const mine = ++searchNumber;
  if (!query) { matching = null; refresh({ first: true }); return; }
  matching = new Set();
  const inTasks = new Set(tasks.map((task, t) => t).filter((t) => !wanted.task || tasks[t].name === wanted.task));
  let shown = performance.now();
  byId("matches").dataset.state = "searching";
  for await (const found of search(query, inTasks)) {
    if (mine !== searchNumber) return;
    for (const document_ of found) matching.add(document_);
    if (performance.now() - shown > 120) {
      refresh({ partial: true });
      await new Promise((resolve) => setTimeout(resolve));
      shown = performance.now();
    }
  }
  if (mine !== searchNumber) return;
  byId("matches").dataset.state = "done";
  refresh({ first: true });
}

const judgeOf = (t) => (wanted.judge && tasks[t].name === wanted.task ? wanted.judge : tasks[t].keys[0]);

/** Returns the status of a document in a run: right, wrong, partly right, or "-". */
function statusOf(index, t, place, run) {
  const key = judgeOf(t);
  return key ? index[t].status[key][run][place] : "-";
}

const isWrong = (status) => status === WRONG || status === PARTLY;

function isFlip(index, t, place) {
  const found = new Set(runs.map((_, run) => statusOf(index, t, place, run)));
  found.delete("-");
  return found.size > 1;
}

/** Returns the numbers of the documents that pass all filters, in order. */
function filtered(index) {
  const found = [];
  tasks.forEach((task, t) => {
    if (wanted.task && task.name !== wanted.task) return;
    const table = index[t];
    for (let place = 0; place < task.shown; place++) {
      if (matching && !matching.has(offsets[t] + place)) continue;
      const status = statusOf(index, t, place, wanted.run);
      if (wanted.verdict === "right" && status !== RIGHT) continue;
      if (wanted.verdict === "wrong" && !isWrong(status)) continue;
      if (wanted.verdict === "flips" && !isFlip(index, t, place)) continue;
      if (wanted.flag && !table.flags.some((column, run) => (column[place] & FLAGS[wanted.flag]) && (wanted.flag === "contaminated" || run === wanted.run || runs.length === 1))) continue;
      found.push(offsets[t] + place);
    }
  });
  if (wanted.order !== "given") {
    const [column, direction] = wanted.order.split("-");
    const values = new Map();
    for (const document_ of found) {
      const t = taskOfNumber(document_);
      values.set(document_, index[t][column][wanted.run][document_ - offsets[t]]);
    }
    const sign = direction === "down" ? -1 : 1;
    found.sort((a, b) => {
      const one = values.get(a), two = values.get(b);
      if (one === two) return a - b;
      if (one === null || one === undefined) return 1;
      if (two === null || two === undefined) return -1;
      return sign * (one - two);
    });
  }
  return found;
}

function taskOfNumber(document_) {
  let low = 0, high = tasks.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= document_) low = middle;
    else high = middle - 1;
  }
  return low;
}
