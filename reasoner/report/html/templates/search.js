// Full-text search over questions, responses, turns, plans and answers. Texts are unpacked once, at the first search.

const texts = []; // a chunk: { text, starts }, lower case, the rows of the chunk joined by NUL
const questions = [];
let reading = null;

function searchable(one) {
  const parts = [one.response, one.answer, one.advice];
  for (const turn of one.turns || []) parts.push(turn.text, turn.note);
  for (const call of one.calls || []) parts.push(call.text);
  if (one.plan) parts.push(one.plan.plan, ...one.plan.subproblems);
  return parts.filter(Boolean).join("\n").toLowerCase().replaceAll("\0", " ");
}

/** Unpack everything; tells how far it is. A second call waits for the first. */
function readTexts(tell) {
  reading ||= (async () => {
    for (let p = 0; p < data.problems.question.length; p++) {
      questions.push((data.problems.question[p] + "\n" + data.problems.gold[p] + "\n" + data.problems.id[p]).toLowerCase());
    }
    for (let chunk = 0; chunk < data.chunks; chunk++) {
      const rows = (await unpack("chunk-" + chunk)).map(searchable);
      const starts = new Uint32Array(rows.length);
      let at = 0;
      rows.forEach((row, i) => { starts[i] = at; at += row.length + 1; });
      texts.push({ text: rows.join("\0"), starts });
      tell((chunk + 1) / data.chunks);
    }
  })();
  return reading;
}

/** Words and “phrases” of a query, lower case. */
function terms(query) {
  const found = [];
  for (const [, phrase, single] of query.toLowerCase().matchAll(/["“]([^"”]+)["”]?|(\S+)/g)) {
    const term = (phrase || single || "").trim();
    if (term) found.push(term);
  }
  return found;
}

/** Which rows hold every term, as 0 and 1. `readTexts` must have ended. */
function searchRows(query) {
  const wanted = terms(query);
  const hits = new Uint8Array(data.rows).fill(wanted.length ? 0 : 1);
  wanted.forEach((term, nth) => {
    const asked = questions.map((question) => question.includes(term));
    const now = new Uint8Array(data.rows);
    for (let id = 0; id < data.rows; id++) now[id] = asked[data.columns.problem[id]] ? 1 : 0;
    texts.forEach(({ text, starts }, chunk) => {
      let row = 0;
      for (let at = text.indexOf(term); at >= 0; at = text.indexOf(term, at + 1)) {
        while (row + 1 < starts.length && starts[row + 1] <= at) row++;
        now[chunk * data.chunk + row] = 1;
        if (row + 1 >= starts.length) break;
        at = starts[row + 1] - 1; // one hit a row is enough
      }
    });
    for (let id = 0; id < data.rows; id++) hits[id] = now[id] && (nth === 0 || hits[id]);
  });
  return hits;
}

/** `text` as nodes, the terms marked. */
function marked(text, wanted) {
  if (!wanted.length) return [document.createTextNode(text)];
  const nodes = [], low = text.toLowerCase();
  if (low.length !== text.length) return [document.createTextNode(text)]; // letters that change their length
  let from = 0;
  while (from < text.length) {
    let at = -1, length = 0;
    for (const term of wanted) {
      const found = low.indexOf(term, from);
      if (found >= 0 && (at < 0 || found < at || (found === at && term.length > length))) { at = found; length = term.length; }
    }
    if (at < 0) break;
    if (at > from) nodes.push(document.createTextNode(text.slice(from, at)));
    nodes.push(make("mark", {}, text.slice(at, at + length)));
    from = at + length;
  }
  nodes.push(document.createTextNode(text.slice(from)));
  return nodes;
}
