// Elements and texts. Every text of a run goes through textContent; nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Returns an element. `props` are attributes, `text`, `on` (event handlers) and `class`. */
function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Returns an SVG element; the arguments are those of `el`. */
function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = String(value);
    else if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

const byId = (id) => document.getElementById(id);

/** Returns how many decimals a number of this size has: fewer for large ones. */
const decimals = (value, most = 4) => Math.abs(value) >= 1000 ? 0 : Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : most;

/** Returns a number as text: four decimals for scores, fewer for large ones, powers of ten for huge and tiny ones. */
function number(value, places = null) {
  if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
  const size = Math.abs(value);
  if (size >= 1e9 || (places === null && size > 0 && size < 1e-4)) return power(value);
  if (Number.isInteger(value) && size >= 10) places = 0;
  const shown = places ?? decimals(value);
  return value.toLocaleString("en", { minimumFractionDigits: shown, maximumFractionDigits: shown }).replace(/^-/, "−");
}

/** Returns a number as a power of ten, such as 3.2 × 10⁻⁷. */
function power(value) {
  const [digits, exponent] = value.toExponential(2).split("e");
  const raised = [...exponent.replace("+", "")].map((one) => one === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[one]).join("");
  return `${String(Number(digits)).replace("-", "−")} × 10${raised}`;
}

const signed = (value) => (value > 0 ? "+" : "") + number(value);
const count = (value) => value === null || value === undefined ? "" : Number(value).toLocaleString("en");
const percent = (value) => (100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0) + " %";

function plural(value, one, many = one + "s") {
  return `${count(value)} ${value === 1 ? one : many}`;
}

// Characters that are invisible or reorder the text around them; they are shown by their code.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const LONGEST = 20000;

/** Appends a text to a node, with hidden characters by their code and matches of `query` marked. */
function appendText(node, text, query = "") {
  const pieces = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > from) pieces.push(text.slice(from, found.index));
    const code = found[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
    pieces.push(el("span", { class: "hidden-character", text: "U+" + code }));
    from = found.index + 1;
  }
  pieces.push(from ? text.slice(from) : text);
  for (const piece of pieces) {
    if (typeof piece === "string" && query) appendMarked(node, piece, query);
    else node.append(piece);
  }
  return node;
}

function appendMarked(node, text, query) {
  const lower = text.toLowerCase();
  let from = 0;
  let at = lower.length === text.length ? lower.indexOf(query) : -1;
  while (at >= 0) {
    node.append(text.slice(from, at), el("mark", { text: text.slice(at, at + query.length) }));
    from = at + query.length;
    at = lower.indexOf(query, from);
  }
  node.append(text.slice(from));
}

/** Returns a block with an exact text. Long texts are shown in parts. */
function textBlock(text, { query = "", after = null, className = "" } = {}) {
  const block = el("pre", { class: "text " + className, dir: "auto" });
  let shown = 0;
  const more = el("button", { type: "button", class: "more" });
  const show = () => {
    let end = Math.min(shown + LONGEST, text.length);
    if (end < text.length && /[\ud800-\udbff]/.test(text[end - 1])) end -= 1;
    more.remove();
    appendText(block, text.slice(shown, end), query);
    shown = end;
    if (shown < text.length) {
      more.textContent = `Show more: ${count(text.length - shown)} of ${count(text.length)} characters are left`;
      block.append("\n", more);
    } else if (after) block.append(after);
  };
  more.addEventListener("click", show);
  show();
  return block;
}

/** Returns a short text of a run for a line of the page, isolated from the text around it. */
function inline(text, props = {}) {
  return appendText(el("bdi", props), String(text));
}
