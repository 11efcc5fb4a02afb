/** What tinyweb.js exports: the public names, and what only the library's other files (scripts/files.mjs) take from it. */

export * from "./index.js";
export { answerOf } from "./answer.js";
export { badArgument, checkFunction, checkNumber, checkOneOf, optionsOf, unlike } from "./arguments.js";
export { debug, FunctionModel } from "./client.js";
export { fetchAny, folderUrl, Listeners, loadOptions, startWorker } from "./connection.js";
export { memoryBudget } from "./device.js";
export { aborted, brokeEngine, describe, isAbort, linkedAbort, throwIfAborted } from "./errors.js";
export { LoadMarker } from "./marker.js";
export { checkMessages, generateOptions } from "./options.js";
