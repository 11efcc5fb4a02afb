/** Conversations: a session that keeps its messages, and the shape of the OpenAI client. */

export {};
