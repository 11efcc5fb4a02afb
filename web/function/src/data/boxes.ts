/** Boxes in what a detector gives: for each candidate its middle and size in pixels of the input, and a score for each class. */

/** Which class, how sure, and where, as shares of the picture's sides. */
export interface Box {
  index: number;
  score: number;
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Where the numbers of candidates lie; null where a shape has none. @param labels how many classes there are */
export function candidatesOf(
  shape: readonly number[],
  labels: number,
): { count: number; whole: boolean; at: (c: number, field: number) => number } | null {
  const sizes = [...shape];
  while (sizes.length > 2 && sizes[0] === 1) sizes.shift();
  const [a = 0, b = 0] = sizes;
  if (sizes.length !== 2 || labels === 0) return null;
  const fits = (fields: number, count: number): boolean => (fields === 4 + labels || fields === 5 + labels) && count > fields;
  if (fits(a, b)) return { count: b, whole: a === 5 + labels, at: (c, field) => field * b + c };
  if (fits(b, a)) return { count: a, whole: b === 5 + labels, at: (c, field) => c * b + field };
  return null;
}

const [SURE, OVERLAP, MOST] = [0.25, 0.5, 100];

function overlap(a: Box, b: Box): number {
  const across = Math.min(a.left + a.width, b.left + b.width) - Math.max(a.left, b.left);
  const down = Math.min(a.top + a.height, b.top + b.height) - Math.max(a.top, b.top);
  const both = Math.max(0, across) * Math.max(0, down);
  return both / (a.width * a.height + b.width * b.height - both || 1);
}

/** The surest first; of those of a class that lie on each other the surest alone. @param side of the input, in pixels */
export function boxesOf(
  values: ArrayLike<number>,
  shape: readonly number[],
  labels: number,
  side: { width: number; height: number },
): Box[] {
  const found = candidatesOf(shape, labels);
  if (found === null) return [];
  const { count, whole, at } = found;
  const boxes: Box[] = [];
  for (let c = 0; c < count; c++) {
    const read = (field: number): number => values[at(c, field)] as number;
    const sure = whole ? read(4) : 1; // that there is anything
    const first = whole ? 5 : 4;
    let index = 0;
    for (let i = 1; i < labels; i++) if (read(first + i) > read(first + index)) index = i;
    const score = sure * read(first + index);
    const [width, height] = [read(2) / side.width, read(3) / side.height];
    if (score < SURE || !(width > 0 && height > 0)) continue;
    boxes.push({ index, score, width, height, left: read(0) / side.width - width / 2, top: read(1) / side.height - height / 2 });
  }
  const kept: Box[] = [];
  for (const box of boxes.sort((x, y) => y.score - x.score)) {
    if (kept.length === MOST) break;
    if (kept.every((other) => other.index !== box.index || overlap(other, box) < OVERLAP)) kept.push(box);
  }
  return kept;
}
