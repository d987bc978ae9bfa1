// Reads the packed data: the index at once, chunks of bodies when they are wanted.

const element = (id) => document.getElementById(id);

/** Makes an element. Texts become text nodes: nothing that a model wrote is ever read as markup. */
function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== "") node.append(child);
  }
  return node;
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** JSON data of one packed element. */
async function unpack(id) {
  const stream = new Blob([bytesOf(element(id).textContent.trim())]).stream();
  return JSON.parse(await new Response(stream.pipeThrough(new DecompressionStream("gzip"))).text());
}

const data = { rows: 0 };

async function readIndex() {
  Object.assign(data, await unpack("index"));
  for (const name of Object.keys(data.columns)) data.columns[name] = Int32Array.from(data.columns[name]);
  const ofProblem = data.problems.dataset;
  data.columns.dataset = Int32Array.from(data.columns.problem, (problem) => ofProblem[problem]);
  data.chunks = Math.ceil(data.rows / data.chunk);
}

const KEPT_CHUNKS = 12;
const kept = new Map();

/** The bodies of a chunk; the last few stay unpacked. */
function bodies(chunk) {
  const found = kept.get(chunk) || unpack("chunk-" + chunk);
  kept.delete(chunk);
  kept.set(chunk, found);
  if (kept.size > KEPT_CHUNKS) kept.delete(kept.keys().next().value);
  return found;
}

async function body(id) {
  return (await bodies(Math.floor(id / data.chunk)))[id % data.chunk];
}

/** The word that column `name` has for row `id`. */
const word = (name, id) => data.names[name][data.columns[name][id]];
const questionOf = (id) => data.problems.question[data.columns.problem[id]];
const goldOf = (id) => data.problems.gold[data.columns.problem[id]];

const MARKS = { correct: ["✓", "right", "right"], incorrect: ["✗", "wrong", "wrong"], unscored: ["?", "open", "unscored"] };

/** A mark for an outcome: a sign, a colour and a word, so that none of them is needed alone. */
function markOf(outcome) {
  const [sign, name, said] = MARKS[outcome] || MARKS.unscored;
  return make("span", { class: name }, sign, make("span", { class: "sr" }, " " + said));
}
const TITLES = { cot: "Chain of Thought", sub: "Sub-questioning", pot: "Program of Thought", none: "no strategy" };
const title = (name) => TITLES[name] || name;
