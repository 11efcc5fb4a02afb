/** Which messages of a long conversation the model still sees. */

import { sleep } from "./download.js";
import { throwIfAborted, TinywebError } from "./errors.js";
import type { ChatTokenizer, Message } from "./tokenizer.js";

export interface Fitted {
  ids: number[];
  /** How many of the oldest messages were left out. */
  dropped: number;
}

/** Room for an answer below which a prompt counts as too long. */
const MIN_ANSWER = 16;
/** A prompt with more letters for each token of the context is counted in slices first: what is far too long is not encoded as a whole. */
const LETTERS = 8;
/** Letters between two looks at the signal. */
const SLICE = 16_384;

interface Prompt {
  text: string;
  /** Absent where the text takes more than twice the context. */
  ids: number[] | undefined;
  /** Of the first `letters` of the text, which are all of it where there are ids. */
  tokens: number;
  letters: number;
}

/**
 * Drops the oldest turns until the prompt leaves room for the answer. System messages at the start and the last message
 * always stay. Room for the answer is `maxTokens`, but no more than half of the context; when only the messages that must
 * stay are left, a shorter answer is accepted.
 *
 * A template may look at all messages, so only whole prompts are counted: that of all messages first, then, from where its length says
 * that the kept part begins, others until one fits and the one with a turn more does not. Their number grows with the logarithm of the
 * turns, their length is bounded by the context.
 * @throws TinywebError "context-full", with its `excess`, when even what must stay does not fit
 */
export async function fitMessages(
  messages: readonly Message[],
  context: number,
  maxTokens: number,
  tokenizer: Pick<ChatTokenizer, "render" | "encode">,
  signal?: AbortSignal,
): Promise<Fitted> {
  const rest = messages.findIndex((message) => message.role !== "system");
  const first = rest < 0 ? messages.length : rest;
  const head = messages.slice(0, first);
  const reserve = Math.min(maxTokens, Math.floor(context / 2));
  const starts = turnStarts(messages, first);
  const least = Math.min(reserve, MIN_ANSWER);

  const promptFrom = async (turn: number): Promise<Prompt> => {
    const text = tokenizer.render([...head, ...messages.slice(starts[turn])]);
    if (text.length > Math.max(SLICE, LETTERS * context)) {
      const { tokens, letters } = await countSlices(text, tokenizer, signal, 2 * context);
      if (letters < text.length) return { text, ids: undefined, tokens, letters };
    }
    const ids = tokenizer.encode(text);
    return { text, ids, tokens: ids.length, letters: text.length };
  };
  const fits = ({ ids, tokens }: Prompt): boolean => ids !== undefined && tokens + reserve <= context;
  const taken = (turn: number, { ids }: Prompt): Fitted => ({ ids: ids as number[], dropped: (starts[turn] as number) - first });

  const whole = await promptFrom(0);
  if (fits(whole)) return taken(0, whole);

  /** The prompt from `low` does not fit; the one from `high` does, or must do, or was refused by the template. */
  let [low, high] = [0, starts.length - 1];
  let found: Prompt | undefined;
  let refusal: { error: unknown } | undefined;
  // Away from the guess in growing steps until the border is passed, then halving.
  let turn = guess(whole, messages, starts, context - reserve);
  let halving = false;
  let before: boolean | undefined;
  for (let step = 1; high - low > 1; step *= 2) {
    await sleep(0, signal); // lets a signal in
    turn = halving ? (low + high) >> 1 : Math.min(Math.max(turn, low + 1), high - 1);
    let enough: boolean;
    try {
      const prompt = await promptFrom(turn);
      enough = fits(prompt);
      if (enough) [found, refusal] = [prompt, undefined];
    } catch (error) {
      throwIfAborted(signal);
      // No reason to leave out more: the rule comes here only if nothing longer fits.
      [enough, refusal] = [true, { error }];
    }
    if (enough) high = turn;
    else low = turn;
    halving ||= before === !enough;
    before = enough;
    turn += enough ? -step : step;
  }
  if (refusal) throw refusal.error;
  if (found) return taken(high, found);
  await sleep(0, signal);
  const last = high === 0 ? whole : await promptFrom(high);
  if (last.ids && last.tokens + least <= context) return taken(high, last);
  throw await tooLong(last, head, first < messages.length ? [messages.at(-1) as Message] : [], context, least, tokenizer, signal);
}

/** Places where the kept part may begin: the first message, every question after it, and the last message. */
function turnStarts(messages: readonly Message[], first: number): number[] {
  const starts = [first];
  for (let i = first + 1; i < messages.length; i++) {
    if (messages[i]?.role === "user" || i === messages.length - 1) starts.push(i);
  }
  return starts;
}

/** The turn from which a prompt takes about `room` tokens, if all messages are spelled like those that were counted. */
function guess({ text, tokens, letters }: Prompt, messages: readonly Message[], starts: readonly number[], room: number): number {
  const spoken = messages.reduce((sum, { content }) => sum + content.length, 0);
  const around = (text.length - spoken) / messages.length; // what the template adds to a message
  let left = text.length - (room * letters) / tokens;
  let message = starts[0] as number;
  return starts.findIndex((start) => {
    for (; message < start; message++) left -= (messages[message] as Message).content.length + around;
    return left <= 0;
  });
}

/** Tokens of a text, not much more than it has: cuts go through words. Stops where they are more than `most`. */
async function countSlices(
  text: string,
  tokenizer: Pick<ChatTokenizer, "encode">,
  signal: AbortSignal | undefined,
  most = Infinity,
): Promise<{ tokens: number; letters: number }> {
  let [tokens, letters] = [0, 0];
  while (letters < text.length && tokens <= most) {
    if (letters > 0) await sleep(0, signal);
    tokens += tokenizer.encode(text.slice(letters, letters + SLICE)).length;
    letters = Math.min(text.length, letters + SLICE);
  }
  return { tokens, letters };
}

/** Says which of what must stay is too long, and by how much. */
async function tooLong(
  { ids, tokens }: Prompt,
  head: readonly Message[],
  last: readonly Message[],
  context: number,
  least: number,
  tokenizer: Pick<ChatTokenizer, "encode">,
  signal: AbortSignal | undefined,
): Promise<TinywebError> {
  const count = async (texts: readonly string[]): Promise<number> => {
    let sum = 0;
    for (const one of texts) sum += (await countSlices(one, tokenizer, signal)).tokens;
    return sum;
  };
  const [system, message] = [await count(head.map(({ content }) => content)), await count(last.map(({ content }) => content))];
  const total = ids ? tokens : system + message;
  const excess = total + least - context;
  const [ofSystem, ofMessage] = [system >= excess, message >= excess]; // which would do, if it were shorter
  const which =
    last.length === 0 || (ofSystem && !ofMessage) ? "system" : head.length === 0 || (ofMessage && !ofSystem) ? "message" : "both";
  const [what, it] = {
    system: ["The system prompt is", "it"],
    message: ["The message is", "it"],
    both: ["The system prompt and the message together are", "them"],
  }[which];
  const shares = [...(head.length > 0 ? [`${system} the system prompt`] : []), ...(last.length > 0 ? [`${message} the message`] : [])].join(
    ", ",
  );
  return new TinywebError(
    "context-full",
    `${what} too long by ${ids ? "" : "about "}${excess} tokens: the prompt takes ${total} (${shares}), and this model reads at most ${context} ` +
      `including its answer, for which ${least} are kept. Shorten ${it}.`,
    undefined,
    { of: which, tokens: excess },
  );
}
