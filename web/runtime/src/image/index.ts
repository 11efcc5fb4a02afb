/** Pictures from text. */

export {};
