// A word diff: what a refinement kept, dropped and added.

const MOST_WORDS = 1500;

/** Pieces [kind, text] with kind -1 (only in a), 0 (in both), 1 (only in b). Myers' greedy algorithm on words. */
function wordDiff(a, b) {
  const left = a.match(/\s+|[^\s\w]|\w+/gu) || [], right = b.match(/\s+|[^\s\w]|\w+/gu) || [];
  let head = 0, tail = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head++;
  while (tail < left.length - head && tail < right.length - head &&
    left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail++;
  const x = left.slice(head, left.length - tail), y = right.slice(head, right.length - tail);
  const middle = x.length + y.length > 2 * MOST_WORDS ? [[-1, x.join("")], [1, y.join("")]] : myers(x, y);
  return joined([[0, left.slice(0, head).join("")], ...middle, [0, tail ? left.slice(-tail).join("") : ""]]);
}

function myers(x, y) {
  const most = x.length + y.length, trace = [];
  let reach = new Int32Array(2 * most + 3);
  for (let d = 0; d <= most; d++) {
    trace.push(reach.slice());
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && reach[most + k] < reach[most + k + 2]);
      let i = down ? reach[most + k + 2] : reach[most + k] + 1;
      while (i < x.length && i - k < y.length && x[i] === y[i - k]) i++;
      reach[most + k + 1] = i;
      if (i >= x.length && i - k >= y.length) return walk(x, y, trace, most);
    }
  }
  return [];
}

function walk(x, y, trace, most) {
  const pieces = [];
  let i = x.length, j = y.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const reach = trace[d], k = i - j;
    const down = k === -d || (k !== d && reach[most + k] < reach[most + k + 2]);
    const before = down ? k + 1 : k - 1;
    const from = d === 0 ? 0 : reach[most + before + 1];
    while (i > from + (down ? 0 : 1) && j > from - before + (down ? 1 : 0) && i > 0 && j > 0) { pieces.push([0, x[--i]]); j--; }
    if (d === 0) { while (i > 0) { pieces.push([0, x[--i]]); j--; } break; }
    if (down) pieces.push([1, y[--j]]);
    else pieces.push([-1, x[--i]]);
  }
  return pieces.reverse();
}

function joined(pieces) {
  const found = [];
  for (const [kind, text] of pieces) {
    if (!text) continue;
    if (found.length && found[found.length - 1][0] === kind) found[found.length - 1][1] += text;
    else found.push([kind, text]);
  }
  return found;
}

/** The diff as nodes. */
function diffNodes(a, b) {
  return wordDiff(a, b).map(([kind, text]) => (kind === 0 ? document.createTextNode(text) : make(kind < 0 ? "del" : "ins", {}, text)));
}
