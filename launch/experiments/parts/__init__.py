"""The parts of an experiment: settings that belong together, with what follows from them."""
