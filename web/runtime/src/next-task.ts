let channel: MessageChannel | undefined;
const waiting: (() => void)[] = [];

/** Lets queued events run. A message to oneself, because timers are clamped to 4 ms and slower in hidden pages. */
export function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    const { setImmediate } = globalThis as { setImmediate?(f: () => void): void };
    if (setImmediate) return setImmediate(resolve);
    if (!channel) {
      channel = new MessageChannel();
      channel.port1.onmessage = () => waiting.shift()?.();
    }
    waiting.push(resolve);
    channel.port2.postMessage(0);
  });
}
