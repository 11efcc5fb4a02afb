/** The calls of page.js for a side, wherever it lives. A side is { run, result, notes?, time? }. */
export function serve(side) {
  const calls = {
    async time(repeat) {
      if (side.time) return side.time(repeat);
      const begin = performance.now();
      for (let i = 0; i < repeat; i++) await side.run();
      return (performance.now() - begin) / 1000;
    },
    result: () => side.result(),
    notes: () => side.notes?.() ?? {},
  };
  return async (name, argument) => calls[name](argument);
}
