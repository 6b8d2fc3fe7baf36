"""What a run would cost: time, memory and devices, from a sweep's stages and the store's times."""
