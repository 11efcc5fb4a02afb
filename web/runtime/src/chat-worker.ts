/** Entry of tinyweb-chat-worker.js: a chat, with its tokenizer and template. */

import { ChatSession } from "./chat.js";
import { start } from "./worker-scope.js";

start(ChatSession.open);
