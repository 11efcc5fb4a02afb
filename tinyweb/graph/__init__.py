"""The compiler's core: graph, scheduler, optimiser. It knows no device by name."""
