/** What makes the files smaller and a minifier cannot do by itself, because it knows neither that a file is all there is nor types. */

import { parseAst } from "rolldown/parseAst";

/** Names that objects inherit, some of which the platform itself asks for: those mean something outside of the file. */
const INHERITED = new Set(
  [Object, Function, Error, Array, Map, Set, Promise, Date].flatMap(({ prototype }) => Object.getOwnPropertyNames(prototype)).concat("next", "return", "throw"),
);

/**
 * Names of fields and methods that occur as `this.name` or in `{ name } = this` and nowhere else: on no other object, as no other key,
 * in no text. Nothing but the class itself, or who uses it from outside of the file, can mean them.
 * @param {string} code
 * @returns {string[]}
 */
export function ownNames(code) {
  const own = new Set();
  const shared = new Set(INHERITED);
  const visit = (node, ofThis = false) => {
    if (Array.isArray(node)) return node.forEach((child) => visit(child, ofThis));
    if (typeof node?.type !== "string") return;
    const { type, computed, key, object, property, value } = node;
    if (type === "MemberExpression" && !computed) (object.type === "ThisExpression" ? own : shared).add(property.name);
    else if (/^(Method|Property)Definition$/.test(type) && !computed) own.add(key.name ?? String(key.value));
    else if (type === "Property" && !computed) (ofThis ? own : shared).add(key.name ?? String(key.value));
    else if (type === "Literal") shared.add(String(value));
    else if (type === "TemplateElement") shared.add(value.cooked);
    for (const [name, child] of Object.entries(node)) {
      const pattern = type === "VariableDeclarator" && name === "id" && node.init?.type === "ThisExpression";
      visit(child, pattern || (ofThis && type === "ObjectPattern" && name === "properties"));
    }
  };
  visit(parseAst(code));
  return [...own].filter((name) => !shared.has(name));
}

/**
 * Names of members that TypeScript lets nobody but their class use, and that no class or interface has as an open member.
 * @param {string[]} sources TypeScript
 * @returns {Set<string>}
 */
export function privateNames(sources) {
  const hidden = new Set();
  const open = new Set();
  const visit = (node) => {
    if (Array.isArray(node)) return node.forEach(visit);
    if (typeof node?.type !== "string") return;
    const { type, accessibility, key, parameter } = node;
    const name = type === "TSParameterProperty" ? (parameter.left ?? parameter).name : /^(Method|Property)Definition$|^TS(Property|Method)Signature$/.test(type) ? key.name : undefined;
    if (name) (accessibility === "private" ? hidden : open).add(name);
    Object.values(node).forEach(visit);
  };
  for (const source of sources) visit(parseAst(source, { lang: "ts" }));
  return new Set([...hidden].filter((name) => !open.has(name)));
}

/** The Jinja library's table of token types says every name twice, and each use looks it up: the names themselves take less. */
export const plainTokenTypes = {
  name: "tinyweb-token-types",
  transform: {
    filter: { id: /jinja[\\/]dist[\\/]index\.js$/ },
    handler(code) {
      const [, table] = /var TOKEN_TYPES = Object\.freeze\(\{(.*?)\}\)/s.exec(code) ?? [];
      const named = table?.match(/^ *\w+: "\w+",?$/gm) ?? [];
      if (named.length === 0 || named.some((line) => !/(\w+): "\1"/.test(line))) throw new Error("the Jinja library's table of token types has another form");
      // every line stays where it was, and so the source map says, by which notices of licences are checked, whose code this is
      return { code: code.replace(/\bTOKEN_TYPES\.(\w+)/g, '"$1"'), map: null };
    },
  },
};
