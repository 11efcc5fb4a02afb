"""The layers of Tensor's methods: core, movement, elementwise, reduction, indexing, neural."""
