/**
 * How much memory a page may count on, by the kind of device. Browsers tell little: Chromium the device's memory in coarse steps (the
 * largest stands for "or more"), others nothing; no browser tells at how many bytes it ends a page. The table errs on the small side on
 * phones, where a page that asks for too much is ended without an error, and trusts computers, which swap. `memoryBudgetBytes` overrides it.
 */

const GIB = 2 ** 30;

/** What is assumed where the browser does not tell, and the share of what it does tell. */
export const DEVICES = {
  iphone: { untold: GIB, share: 0 },
  ipad: { untold: 1.5 * GIB, share: 0 },
  android: { untold: GIB, share: 0.4 },
  computer: { untold: Infinity, share: 0.5 },
} as const;

export type DeviceKind = keyof typeof DEVICES;

/** From this many GiB on, a computer's browser may mean any amount. */
const CAP = 8;

/** The part of a page's `navigator` that is looked at. */
export interface Told {
  userAgent?: string;
  maxTouchPoints?: number;
  deviceMemory?: number;
}

export function deviceKind({ userAgent = "", maxTouchPoints = 0 }: Told): DeviceKind {
  if (/Android/.test(userAgent)) return "android";
  if (/iPhone|iPod/.test(userAgent)) return "iphone";
  // An iPad calls itself a Macintosh, but no Macintosh has a touch screen.
  return /iPad/.test(userAgent) || (/Macintosh/.test(userAgent) && maxTouchPoints > 1) ? "ipad" : "computer";
}

/** Bytes that a model may take here; Infinity where nothing speaks against any amount. */
export function memoryBudget(told: Told = (globalThis.navigator ?? {}) as Told): number {
  const kind = deviceKind(told);
  const { untold, share } = DEVICES[kind];
  const { deviceMemory } = told;
  return !deviceMemory || !share || (kind === "computer" && deviceMemory >= CAP) ? untold : deviceMemory * share * GIB;
}
