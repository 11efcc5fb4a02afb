"""`tinyweb api`: models behind the HTTP protocol of OpenAI, so that a page can be developed against them.

- `generation`: one answer under way: its tokens, its text, where it ends.
- `scheduler`: which tokens of which answers a step reads; `pages`: whose the pages of the cache are, and what they
  hold; `one_by_one`: answers of models that have no pages.
- `worker`: the thread that computes. Only it touches a model.
- `errors`, `fields`, `requests`: from JSON to what is asked, or to what is wrong with it; `answers`: back to JSON.
- `models`: what is served; `app`: the routes, on Starlette; `server`: the socket, on Uvicorn.
"""
