"""When and where: the order of steps, and the slots their values live in."""
