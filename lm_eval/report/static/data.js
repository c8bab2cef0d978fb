// The data of the report: a summary that is read at once, and compressed blocks that are unpacked
// when they are looked at.

const summary = JSON.parse(byId("summary").textContent);
const runs = summary.runs;
const tasks = summary.tasks;
const RIGHT = "1", WRONG = "0", PARTLY = "p";
const FLAGS = { unanswered: 1, length: 2, truncated: 4, contaminated: 8 };

// Documents are numbered through all tasks: task t has the numbers from offsets[t].
const offsets = [0];
for (const task of tasks) offsets.push(offsets[offsets.length - 1] + task.shown);
const total = offsets[tasks.length];

/** Chunks of documents: the block's number, the task, the first document and how many. */
const chunks = [];
tasks.forEach((task, t) => {
  let first = offsets[t];
  for (const size of task.chunks) {
    chunks.push({ number: chunks.length, task: t, first, size });
    first += size;
  }
});

const parsed = new Promise((resolve) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", resolve, { once: true });
  else resolve();
});

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Returns the text of a compressed block. */
async function unpack(id) {
  await parsed;
  const stream = new Blob([bytesOf(byId(id).textContent)]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).text();
}

let indexPromise = null;
/** Returns the columns of all documents, one table per task. */
function loadIndex() {
  indexPromise ??= unpack("index").then(JSON.parse);
  return indexPromise;
}

// Unpacked chunks, the least recently used first, up to this many characters.
const CACHE_CHARACTERS = 24e6;
const cache = new Map();
let cached = 0;

/** Returns the lines of a chunk, each the JSON of a document. */
async function chunkLines(number) {
  let lines = cache.get(number);
  if (lines) cache.delete(number);
  else {
    const text = await unpack("chunk" + number);
    lines = text.split("\n");
    lines.characters = text.length;
    cached += text.length;
  }
  cache.set(number, lines);
  for (const [old, content] of cache) {
    if (cached <= CACHE_CHARACTERS || old === number) break;
    cache.delete(old);
    cached -= content.characters;
  }
  return lines;
}

function chunkOf(document_) {
  let low = 0, high = chunks.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (chunks[middle].first <= document_) low = middle;
    else high = middle - 1;
  }
  return chunks[low];
}

const taskOf = (document_) => chunkOf(document_).task;

/** Returns a document with everything that the report has of it. */
async function loadDocument(document_) {
  const chunk = chunkOf(document_);
  const lines = await chunkLines(chunk.number);
  return JSON.parse(lines[document_ - chunk.first]);
}

/** Yields for each chunk among `wanted` (a set of tasks) the documents whose text has the query. */
async function* search(query, wanted) {
  const escaped = JSON.stringify(query).slice(1, -1).toLowerCase();
  for (const chunk of chunks) {
    if (!wanted.has(chunk.task)) continue;
    const lines = await chunkLines(chunk.number);
    const found = [];
    for (let i = 0; i < lines.length; i++) {
      // The JSON is searched first: most documents need not be parsed.
      if (lines[i].toLowerCase().includes(escaped) && hasText(JSON.parse(lines[i]), query)) found.push(chunk.first + i);
    }
    yield found;
  }
}

/** Returns whether a text of the document contains the query, which is in lower case. */
function hasText(value, query) {
  if (typeof value === "string") return value.toLowerCase().includes(query);
  if (Array.isArray(value)) return value.some((one) => hasText(one, query));
  return value !== null && typeof value === "object" && Object.values(value).some((one) => hasText(one, query));
}
