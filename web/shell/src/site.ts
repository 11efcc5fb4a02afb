/** The exported site around the page: what the export says of it, keeping it on the device, and new versions of it. */

/** A bundle of the site, whose weights the runtime keeps. */
export interface SiteBundle {
  /** Of its manifest: "model/manifest.json". */
  manifest: string;
  /** Names the bundle's folder in browser storage. */
  sha256: string;
  bytes: number;
}

/** site.json, which an export writes beside the page. */
export interface SiteFacts {
  /** Of all the site's files but the weights. */
  hash: string;
  /** Version of tinyweb that exported it. */
  tinyweb: string;
  /** Version of the bundle's format. */
  format: number;
  bundles: readonly SiteBundle[];
}

/**
 * Whether the page opens without a network: not where the browser or the address (plain http) has no service workers, not
 * yet while its files are being kept, or not because that failed.
 */
export type OfflineState = "unavailable" | "preparing" | "ready" | "failed";

export class Site {
  /** Undefined until they are there; null where the page is no exported site, as while developing. */
  facts: SiteFacts | null | undefined;
  offline: OfflineState = "unavailable";
  private registration: ServiceWorkerRegistration | undefined;
  private checkedAt = 0;

  /** @param changed called after every change; @param newVersion called when another version than the page's own is ready */
  constructor(
    private readonly changed: () => void,
    private readonly newVersion: () => void,
  ) {}

  /** Reads site.json, then has the page kept on this device. Never throws. */
  async open(): Promise<void> {
    this.facts = await readFacts();
    this.changed();
    const { serviceWorker } = navigator;
    // `serviceWorker` is missing in pages from plain http and in some private windows.
    if (this.facts === null || serviceWorker === undefined) return;
    // A site in a folder further up may have a worker that this page was opened through; it keeps nothing of this one.
    const own = serviceWorker.controller?.scriptURL === new URL("./sw.js", location.href).href;
    this.become(own ? "ready" : "preparing");
    try {
      const registration = await registerWorker(serviceWorker);
      this.registration = registration;
      this.checkedAt = Date.now();
      registration.addEventListener("updatefound", () => this.watch(registration.installing));
      this.watch(registration.installing);
      this.watch(registration.waiting ?? registration.active);
      document.addEventListener("visibilitychange", () => this.lookAgain());
    } catch {
      this.become("failed");
    }
  }

  private become(offline: OfflineState): void {
    this.offline = offline;
    this.changed();
  }

  private watch(worker: ServiceWorker | null): void {
    if (worker === null) return;
    const look = (): void => {
      if (worker.state === "installed" || worker.state === "activated") {
        this.become("ready");
        void this.compare(worker);
      } else if (worker.state === "redundant" && this.registration?.active == null) this.become("failed");
    };
    worker.addEventListener("statechange", look);
    look();
  }

  /** A home-screen app is not opened anew for weeks. */
  private lookAgain(): void {
    if (document.hidden || Date.now() - this.checkedAt < LOOK_AGAIN_MS) return;
    this.checkedAt = Date.now();
    void this.registration?.update().catch(() => undefined);
  }

  private async compare(worker: ServiceWorker): Promise<void> {
    const channel = new MessageChannel();
    const said = new Promise<unknown>((resolve) => (channel.port1.onmessage = ({ data }) => resolve(data)));
    worker.postMessage("version", [channel.port2]);
    if ((await said) !== this.facts?.hash) this.newVersion();
    channel.port1.close();
  }

  /** Opens the newest version that is kept. Other tabs go on with theirs. */
  async takeNewVersion(): Promise<void> {
    const waiting = this.registration?.waiting;
    if (waiting) {
      const active = new Promise<void>((resolve) =>
        waiting.addEventListener("statechange", () => waiting.state === "installed" || resolve()),
      );
      waiting.postMessage("activate");
      await Promise.race([active, new Promise((resolve) => setTimeout(resolve, TAKE_MS))]);
    }
    location.reload();
  }
}

const LOOK_AGAIN_MS = 3_600_000;
/** How long a new version may take to come up; the reload shows what there is then. */
const TAKE_MS = 10_000;

export function registerWorker(serviceWorker: ServiceWorkerContainer): Promise<ServiceWorkerRegistration> {
  return serviceWorker.register("./sw.js", { scope: "./", updateViaCache: "none" });
}

/** Null where the page is no exported site. Never throws. */
export async function readFacts(): Promise<SiteFacts | null> {
  try {
    const response = await fetch("./site.json", { cache: "no-cache" });
    return response.ok ? ((await response.json()) as SiteFacts | null) : null;
  } catch {
    return null;
  }
}
