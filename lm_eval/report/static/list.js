// The list of samples. Only the rows in view are elements, so that 100,000 samples scroll as ten.

let index = null;
let listed = [];
let selected = null; // number of the document that is shown
let rowHeight = 56;

const VERDICTS = { [RIGHT]: ["✓", "right"], [WRONG]: ["✗", "wrong"], [PARTLY]: ["◐", "partly right"], "-": ["–", "not judged"] };
const KINDS = { [RIGHT]: "right", [WRONG]: "wrong", [PARTLY]: "partly", "-": "neither" };

function verdictMark(status) {
  const [sign, text] = VERDICTS[status];
  return el("span", { class: "verdict " + KINDS[status], role: "img", "aria-label": text, text: sign });
}

function startList() {
  const list = byId("list");
  const inner = el("div", { class: "list-inner", role: "presentation" });
  list.append(inner);
  list.addEventListener("scroll", drawRows, { passive: true });
  new ResizeObserver(drawRows).observe(list);
  list.addEventListener("click", (event) => {
    const row = event.target.closest("[data-document]");
    if (row) select(Number(row.dataset.document), { open: true });
  });
}

/** Applies the filters again and draws the list; `partial` while a search goes on. The first sample is shown with `first`, or if the filters hide the one that was. */
function refresh({ partial = false, first = false } = {}) {
  if (!index) return;
  listed = filtered(index);
  const note = byId("matches");
  note.textContent = `${plural(listed.length, "sample")}${listed.length === total ? "" : ` of ${count(total)}`}${partial ? " so far, searching …" : ""}`;
  byId("list").scrollTop = partial ? byId("list").scrollTop : 0;
  drawRows();
  if (partial) return;
  if (!listed.length) emptyDetail();
  else if (first || !listed.includes(selected)) select(listed[0], { quiet: true });
  else showDetail(selected); // marks what was searched for
}

function drawRows() {
  if (!index) return;
  const list = byId("list"), inner = list.firstElementChild;
  inner.style.height = listed.length * rowHeight + "px";
  const first = Math.max(0, Math.floor(list.scrollTop / rowHeight) - 4);
  const last = Math.min(listed.length, Math.ceil((list.scrollTop + list.clientHeight) / rowHeight) + 4);
  const rows = [];
  for (let i = first; i < last; i++) rows.push(listRow(i));
  inner.replaceChildren(...rows);
  const active = inner.querySelector("[aria-selected=true]");
  if (active) list.setAttribute("aria-activedescendant", active.id);
  else list.removeAttribute("aria-activedescendant");
}

function listRow(i) {
  const document_ = listed[i], t = taskOfNumber(document_), place = document_ - offsets[t], table = index[t];
  const chosen = document_ === selected;
  const facts = [wanted.task ? `${table.ids[place]}` : `${tasks[t].name}/${table.ids[place]}`];
  const shown = { confidence: "confidence", margin: "margin", length: "characters" };
  for (const [column, name] of Object.entries(shown)) {
    const value = table[column][wanted.run]?.[place];
    if (value !== null && value !== undefined) facts.push(`${name} ${column === "length" ? count(value) : value.toFixed(2)}`);
  }
  const row = el("div", { class: "row" + (chosen ? " chosen" : ""), role: "option", id: "row-" + document_, "data-document": document_,
    "aria-selected": String(chosen), "aria-setsize": listed.length, "aria-posinset": i + 1 },
    el("span", { class: "verdicts" }, runs.map((_, run) => verdictMark(statusOf(index, t, place, run)))),
    el("span", { class: "snippet" }, inline(table.snippets[place] || "(empty prompt)")),
    el("span", { class: "facts" }, inline(facts.join(" · "))));
  row.style.transform = `translateY(${i * rowHeight}px)`;
  return row;
}

/** Scrolls the list so that the i-th row is in view. */
function reveal(i) {
  const list = byId("list");
  const top = i * rowHeight;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + rowHeight > list.scrollTop + list.clientHeight) list.scrollTop = top + rowHeight - list.clientHeight;
}

/** Shows a document. `open` also opens it on narrow screens; `quiet` leaves the address alone. */
function select(document_, { open = false, quiet = false } = {}) {
  selected = document_;
  const i = listed.indexOf(document_);
  if (i >= 0) reveal(i);
  drawRows();
  if (open) document.body.classList.add("reading");
  if (!quiet) history.replaceState(null, "", addressOf(document_));
  showDetail(document_);
}

/** Shows the next document in the list, or the one before. */
function step(by) {
  if (!listed.length) return;
  const i = listed.indexOf(selected);
  select(listed[Math.min(listed.length - 1, Math.max(0, i < 0 ? 0 : i + by))]);
}

function addressOf(document_) {
  const t = taskOfNumber(document_);
  return `#${encodeURIComponent(tasks[t].name)}/${encodeURIComponent(String(index[t].ids[document_ - offsets[t]]))}`;
}

/** Returns the document that the address of the page names; null if there is none. */
function documentOfAddress() {
  const slash = location.hash.lastIndexOf("/");
  if (slash < 2) return null;
  let name, id;
  try {
    name = decodeURIComponent(location.hash.slice(1, slash));
    id = decodeURIComponent(location.hash.slice(slash + 1));
  } catch { return null; }
  const t = tasks.findIndex((task) => task.name === name);
  const place = t < 0 ? -1 : index[t].ids.findIndex((one) => String(one) === id);
  return place < 0 ? null : offsets[t] + place;
}

/** Shows the document of the address; filters that hide it are removed. */
function followAddress() {
  const document_ = documentOfAddress();
  if (document_ === null) return false;
  if (!listed.includes(document_)) resetFilters();
  select(document_, { open: true, quiet: true });
  byId("samples").scrollIntoView();
  return true;
}

function resetFilters() {
  Object.assign(wanted, { query: "", task: "", verdict: "all", flag: "" });
  matching = null;
  searchNumber++;
  fields.query.value = fields.task.value = "";
  if (fields.flag) fields.flag.value = "";
  byId("verdict-all").checked = true;
  fillJudge();
  refresh();
}
