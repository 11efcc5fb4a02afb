/** What a reader gave that does not fit; the message says what to do. */
export class FeedError extends Error {}
