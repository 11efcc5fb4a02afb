/** `load(url)`: any bundle, by what its manifest says it is for. */

export {};
