/** Entry of tinyweb-worker.js: functions of arrays. */

import { FunctionSession } from "./function.js";
import { start } from "./worker-scope.js";

start(FunctionSession.open);
