"""From a model folder to a static site: capture, plan, shard, write the bundle (docs/bundle.md), add the page."""
