/**
 * Grid sizes that depend on variables: a JSON tree of integers, `{"var": name}` and `{"op", "args": [a, b]}`.
 * A tree is checked once and turned into a closure over the variables' slots, so the hot loop only calls functions.
 */

export type ExpressionOp = "add" | "mul" | "floordiv" | "mod" | "max" | "min";
export type Expression = number | { var: string } | { op: ExpressionOp; args: [Expression, Expression] };

/** Value of an expression for the variables' values, given in slot order. */
export type Evaluate = (variables: Int32Array) => number;

const OPERATORS: Record<ExpressionOp, (a: number, b: number) => number> = {
  add: (a, b) => a + b,
  mul: (a, b) => a * b,
  floordiv: (a, b) => Math.floor(a / b),
  mod: (a, b) => a - b * Math.floor(a / b), // the sign of the divisor, as floor division asks
  max: Math.max,
  min: Math.min,
};

/** A hostile manifest must not overflow the stack or grow closures without end. */
const MAX_DEPTH = 64;

/**
 * Checks an untrusted tree and returns its evaluator.
 * @param slots slot of each variable by name
 * @param fail throws, saying what is wrong
 */
export function compileExpression(tree: unknown, slots: ReadonlyMap<string, number>, fail: (what: string) => never, depth = 0): Evaluate {
  if (depth > MAX_DEPTH) fail("the expression is nested too deeply");
  if (typeof tree === "number") {
    if (!Number.isSafeInteger(tree)) fail(`${tree} is not an integer`);
    return () => tree;
  }
  if (typeof tree !== "object" || tree === null) return fail("an expression must be an integer or an object");
  if ("var" in tree) {
    const slot = slots.get(tree.var as string);
    if (slot === undefined) return fail(`unknown variable ${JSON.stringify(tree.var)}`);
    return (variables) => variables[slot] as number;
  }
  const { op, args } = tree as { op?: unknown; args?: unknown };
  if (typeof op !== "string" || !Object.hasOwn(OPERATORS, op)) return fail(`unknown operator ${JSON.stringify(op)}`);
  if (!Array.isArray(args) || args.length !== 2) return fail(`operator "${op}" needs two arguments`);
  const operator = OPERATORS[op as ExpressionOp];
  const left = compileExpression(args[0], slots, fail, depth + 1);
  const right = compileExpression(args[1], slots, fail, depth + 1);
  return (variables) => operator(left(variables), right(variables));
}
