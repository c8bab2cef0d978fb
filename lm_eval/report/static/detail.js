// One sample: the exact prompt, the choices or answers of each run, the values of the metrics.

let shownDetail = null;

function emptyDetail() {
  shownDetail = null;
  byId("detail").replaceChildren(el("p", { class: "note", text: "No sample passes these filters." }));
}

async function showDetail(document_) {
  shownDetail = document_;
  const content = await loadDocument(document_);
  if (shownDetail !== document_) return; // another one was chosen meanwhile
  const detail = byId("detail");
  detail.replaceChildren(...detailParts(document_, content));
  detail.scrollTop = 0;
}

function detailParts(document_, content) {
  const t = taskOfNumber(document_), task = tasks[t];
  const place = document_ - offsets[t];
  const first = content.r.find(Boolean);
  const parts = [
    el("header", { class: "detail-head" },
      el("button", { type: "button", class: "back", on: { click: closeDetail } }, "← List"),
      el("h3", {}, inline(task.name), el("span", { class: "slash", text: " / " }), inline(content.i)),
      el("span", { class: "walk" },
        el("button", { type: "button", class: "quiet", "aria-label": "Previous sample", on: { click: () => step(-1) } }, "↑"),
        el("button", { type: "button", class: "quiet", "aria-label": "Next sample", on: { click: () => step(1) } }, "↓"),
        el("a", { class: "link", href: addressOf(document_), title: "Link to this sample" }, "Link"))),
    promptPart(first, content),
  ];
  parts.push(el("div", { class: "answers" + (runs.length > 1 ? " side-by-side" : "") },
    content.r.map((run, i) => run && runPart(run, i, statusOf(index, t, place, i), i && run.p ? promptPart(run, content, "Prompt of this run") : null))));
  if (content.t) parts.push(section("Target", textBlock(targetText(content, first), { query: wanted.query })));
  parts.push(folded("Document", fieldTable(content.d)));
  return parts;
}

function closeDetail() {
  document.body.classList.remove("reading");
  byId("list").focus();
}

function section(title, ...content) {
  return el("section", { class: "part" }, el("h4", { text: title }), content);
}

function folded(title, ...content) {
  return el("details", { class: "part" }, el("summary", { text: title }), content);
}

function targetText(content, first) {
  const gold = (first.g ?? []).map((i) => first.c?.[i]?.[0]).filter((text) => text !== undefined);
  return gold.length && first.c.length > 1 ? `${content.t}  (${gold.map((text) => text.trim()).join("; ")})` : content.t;
}

/** The prompt: folded examples and turns, the question, and the boundary where the model begins. */
function promptPart(run, content, title = "Prompt") {
  const part = section(title);
  const segments = run.p ?? [[""]];
  segments.forEach(([text, role, isFolded], i) => {
    const last = i === segments.length - 1;
    const block = promptBlock(text, last && !run.c?.some((choice) => choice[3] !== null), run);
    if (isFolded) {
      const name = role === "examples" ? "Few-shot examples" : role;
      part.append(el("details", { class: "turn", open: Boolean(wanted.query) && text.toLowerCase().includes(wanted.query) },
        el("summary", {}, inline(name), el("span", { class: "size", text: ` ${plural(text.length, "character")}` })), block));
    } else if (role) part.append(el("div", { class: "turn" }, el("p", { class: "role" }, inline(role)), block));
    else part.append(block);
  });
  return part;
}

/** A piece of a prompt. After the last piece, a mark shows where scored or generated tokens begin. */
function promptBlock(text, last, run) {
  if (!last || run.l !== undefined) return textBlock(text, { query: wanted.query });
  // Space at the end of a prompt is scored with the continuation.
  const end = run.c ? text.trimEnd().length : text.length;
  const rest = text.slice(end);
  const mark = el("span", {}, el("span", { class: "boundary", role: "img", "aria-label": "boundary: the model's tokens begin here", title: run.c ? "The scored tokens begin here" : "The answer begins here", text: "‖" }),
    rest ? el("span", { class: "space", text: visibleSpace(rest) }) : null);
  return textBlock(text.slice(0, end), { query: wanted.query, after: mark });
}

const visibleSpace = (text) => text.replace(/ /g, "␣").replace(/\n/g, "⏎\n").replace(/\t/g, "⇥");

/** A text whose leading space is visible, because it belongs to the scored tokens. */
function continuation(text) {
  const space = text.length - text.trimStart().length;
  const node = el("bdi", { class: "continuation" }, space ? el("span", { class: "space", text: visibleSpace(text.slice(0, space)) }) : null);
  return appendText(node, text.slice(space, space + LONGEST), wanted.query);
}

function runPart(run, i, status, ownPrompt) {
  const flags = [];
  for (const [name, text] of [["unanswered", "no answer"], ["length", "stopped by length"], ["truncated", "prompt truncated"], ["contaminated", "contaminated"]]) {
    if (run.x & FLAGS[name]) flags.push(el("span", { class: "flag", text }));
  }
  const part = el("section", { class: "run run-" + (i % 6), "aria-label": runs[i].label },
    el("p", { class: "run-head" }, runs.length > 1 ? [runMark(i), inline(runs[i].label, { class: "run-name" })] : null,
      el("span", { class: "badge " + KINDS[status] }, verdictMark(status), " ", VERDICTS[status][1]), flags),
    ownPrompt);
  if (run.c) part.append(choicesPart(run));
  if (run.l !== undefined) part.append(section("Log-likelihood of the text", el("p", { class: "number-line", text: number(run.l, decimals(run.l, 3)) + " nats" })));
  if (run.a) part.append(...answerParts(run));
  if (run.m) part.append(metricsPart(run.m));
  if (run.e) part.append(folded("Other fields", fieldTable(run.e)));
  if (run.s) part.append(folded("Generation settings", fieldTable(run.s)));
  return part;
}

/** The choices with their log-likelihoods; a bar is the probability among the choices. */
function choicesPart(run) {
  const scores = run.c.map((choice) => choice[1]).filter((score) => score !== null);
  const best = Math.max(...scores);
  const sum = scores.reduce((all, score) => all + Math.exp(score - best), 0);
  const single = run.c.length === 1;
  const rows = run.c.map(([text, score, greedy, context], i) => {
    const share = score === null ? 0 : single ? Math.exp(score) : Math.exp(score - best) / sum;
    const gold = !single && (run.g ?? []).includes(i), chosen = !single && i === run.b;
    const bar = el("span", { class: "bar-fill" + (chosen || single ? " chosen" : "") });
    bar.style.width = Math.max(0.4, 100 * share) + "%";
    return el("li", { class: "choice" + (gold ? " gold" : "") },
      el("div", { class: "choice-text" }, context ? [el("span", { class: "context" }, inline(context.slice(-200))), el("span", { class: "boundary", "aria-hidden": "true", text: "‖" })] : null, continuation(text),
        gold ? el("span", { class: "tag gold", text: "gold" }) : null, chosen ? el("span", { class: "tag chosen", text: "chosen" }) : null,
        greedy ? el("span", { class: "tag", text: "greedy" }) : null),
      el("div", { class: "choice-bar", "aria-hidden": "true" }, bar),
      el("span", { class: "choice-number", text: score === null ? "?" : number(score, decimals(score, 3)), title: "log-likelihood in nats" }),
      el("span", { class: "choice-share", text: percent(share) }));
  });
  return section(single ? "Continuation" : "Choices", el("ol", { class: "choices" }, rows),
    el("p", { class: "note", text: single ? "Log-likelihood in nats, and probability." : "Log-likelihood in nats; bars show the probability among the choices." }));
}

function answerParts(run) {
  const parts = [];
  if (run.h?.some(Boolean)) {
    parts.push(el("details", { class: "part" }, el("summary", {}, "Thoughts", el("span", { class: "size", text: ` ${plural(run.h.join("").length, "character")}` })),
      run.h.map((text) => textBlock(text, { query: wanted.query, className: "thought" }))));
  }
  const many = run.a.length > 1;
  parts.push(section(many ? `Answers (${run.a.length} repeats)` : "Answer", many
    ? el("ol", { class: "repeats" }, run.a.map((text) => el("li", {}, textBlock(text, { query: wanted.query }))))
    : textBlock(run.a[0] ?? "", { query: wanted.query, className: run.a[0] ? "" : "empty" })));
  const filters = Object.entries(run.f ?? {});
  if (filters.length) {
    parts.push(section("Filtered", el("dl", { class: "pairs" }, filters.map(([name, texts]) => [
      el("dt", {}, inline(name)), el("dd", {}, texts.map((text) => textBlock(text, { query: wanted.query, className: "small" })))]))));
  }
  return parts;
}

function metricsPart(values) {
  return section("Metrics", el("dl", { class: "pairs metrics" }, Object.entries(values).map(([key, value]) => {
    const [metric, filter] = [key.slice(0, key.indexOf(",")), key.slice(key.indexOf(",") + 1)];
    return [el("dt", {}, inline(metric), filter === "none" ? null : el("span", { class: "filter" }, " ", inline(filter))), el("dd", {}, inline(typeof value === "number" ? number(value) : value))];
  })));
}

/** A table of the fields of a document, or the value itself if it has none. */
function fieldTable(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return textBlock(typeof value === "string" ? value : JSON.stringify(value, null, 1) ?? "", { query: wanted.query });
  return el("dl", { class: "pairs" }, Object.entries(value).map(([name, one]) => [
    el("dt", {}, inline(name)), el("dd", {}, textBlock(typeof one === "string" ? one : JSON.stringify(one, null, 1) ?? "", { query: wanted.query, className: "small" }))]));
}
